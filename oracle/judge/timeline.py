"""What every block of a history had to use, and what was read of it, block by block."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from .coupling import block_noise
from .history import History
from .protocol import Setting, Tensors


@dataclass(frozen=True)
class Moment:
    """One block.

    number: of the block, from 0, replays and eager blocks together. setting: with the weights in
    force. inputs: what was given to it. event: the replay or the eager block. outputs: as read,
    empty when they were not. ahead, buffers: name -> observe event, between the load and the block,
    and after the block.
    """

    number: int
    setting: Setting
    inputs: Tensors
    event: Mapping[str, Any]
    outputs: Tensors = field(default_factory=dict)
    ahead: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    buffers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def noise(self) -> torch.Tensor | None:
        """E [B, K, V] that the block had to draw, None when the subject does not show it."""
        return block_noise(self.setting, self.event)

    @property
    def rows(self) -> int:
        """B of the block."""
        return len(self.inputs["anchor"])

    def given(self, name: str) -> torch.Tensor | None:
        """The value that the block had to use of an input, a weight, or 'noise'; None without."""
        if name == "noise":
            return self.noise
        value = self.inputs.get(name, self.setting.get(name))
        return value if isinstance(value, torch.Tensor) else None

    def without(self, values: Mapping[str, torch.Tensor]) -> "Moment":
        """The same block with other inputs, weights or noise."""
        inputs = {n: values.get(n, held) for n, held in self.inputs.items()}
        weights = {n: v for n, v in values.items() if n in self.setting}
        other = replace(self, inputs=inputs, setting={**self.setting, **weights})
        drawn = values.get("noise", self.__dict__.get("noise"))
        if drawn is not None:
            other.__dict__["noise"] = drawn
        return other


def moments(setting: Setting, inputs: Mapping[str, Tensors], events: Sequence[Any]) -> list[Moment]:
    """The blocks that events tell of, in order; a history's own, or the first of them."""
    found: list[Moment] = []
    ahead: dict[str, Any] | None = None
    for event in events:
        verb = event["verb"]
        if verb == "reweight":
            setting = {**setting, **event["weights"]}
        elif verb == "load":
            ahead = {}
        elif verb in ("replay", "eager"):
            given, outputs = inputs[event["inputs"]], event.get("outputs", {})
            found.append(Moment(len(found), setting, given, event, outputs, ahead or {}))
            ahead = None
        elif verb == "observe" and not event.get("absent"):
            if ahead is not None:
                ahead[event["buffer"]] = event
            elif found:
                seen = {**found[-1].buffers, event["buffer"]: event}
                found[-1] = replace(found[-1], buffers=seen)
        elif verb == "read" and found:
            found[-1] = replace(found[-1], outputs=event["outputs"])
    return found


def timeline(history: History) -> list[Moment]:
    """All blocks of a history."""
    return moments(history.setting, history.inputs, history.events)
