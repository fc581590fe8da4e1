"""Exactly one buffer a replay, or several, behind: each kind of buffer once, and some deeper."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from impl.assembly import Parts
from impl.buffers import Buffers
from impl.runner import WARM_UPS, Forward, Hook, Runner
from impl.sampler import Admitted, DraftSampler
from impl.subject import factory
from oracle.subjects.torch_ops import Multinomial

from .blocks import erring
from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")


def without_ids(buffers: Buffers, forward: Forward, hooks: tuple[Hook, ...], rows: int) -> None:
    """A block whose input ids somebody else fills."""
    with torch.no_grad():
        hidden = forward(buffers, rows)
        assert isinstance(hidden, Tensor)
        for hook in hooks:
            hook(hidden, buffers["input_ids"][:rows])


class FillsIdsNowAndThen(Runner):
    """Input ids are filled outside the recording, before every third replay of a bucket."""

    every = 3

    def capture(self) -> None:
        """Record blocks that fill no input ids."""
        self.runs = 0
        if self.engine is None:
            return
        pool = self.engine.pool()
        for bucket in reversed(self.shapes.buckets):
            body = partial(without_ids, self.buffers, self.forward, self.hooks, bucket)
            for _ in range(WARM_UPS):
                body()
            if self.noise is not None:
                self.noise.reseed(0)
            self.recordings[bucket] = self.engine.record(body, pool=pool, generators=())

    def run(self, rows: int) -> int:
        """Fill them when it is their turn, and replay."""
        if self.runs % self.every == 0:
            ids = self.buffers["input_ids"]
            ids.fill_(self.forward.mask_token)
            ids[:, 0].copy_(self.buffers["anchor"])
        self.runs += 1
        return super().run(rows)


def late_input_ids(setting: Setting) -> Any:
    """Two replays of three run on the input ids of the one before them."""
    return factory(setting, parts=Parts(runner=FillsIdsNowAndThen))


class Holds(Wrapped):
    """Passes one input on as it was some loads ago, as long as the batch has the same size."""

    def __init__(self, inside: Any, field: str, depth: int) -> None:
        """Hold a field back by `depth` loads."""
        super().__init__(inside)
        self.field, self.depth, self.held = field, depth, list[Tensor]()

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Load with the value that was given `depth` loads before."""
        given = inputs[self.field].clone()
        if self.held and len(self.held[-1]) != len(given):
            self.held.clear()
        self.held = [*self.held[-self.depth :], given]
        self.inside.load({**inputs, self.field: self.held[0]})


def late_anchor(setting: Setting) -> Any:
    """The anchor is that of the load before."""
    return Holds(factory(setting), "anchor", 1)


def oldest_temperature(setting: Setting) -> Any:
    """A sampler that shows nothing but its draws uses the temperature of two loads before."""
    drawing = erring(setting, 0.0, "nothing")
    assert isinstance(drawing, Multinomial)
    return Holds(drawing, "temperature", 2)


class RestagesByCount(DraftSampler):
    """Stages the mask of greedy rows only when another number of rows is greedy."""

    last: tuple[int, int] = (0, 0)

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Put the old mask back when the signature is that of the last time."""
        if "greedy" not in self.buffers:
            return
        signature = (len(admitted.greedy), int(admitted.greedy.sum()))
        before = self.buffers["greedy"].clone()
        super().stage_sampling_params(admitted, padded)
        if signature == self.last:
            self.buffers["greedy"].copy_(before)
        self.last = signature


def mask_by_count(setting: Setting) -> Any:
    """The mask of greedy rows stays when as many rows are greedy as before."""
    return factory(setting, parts=Parts(sampler=RestagesByCount))


class Rings(DraftSampler):
    """Results go through a ring in the recording, and the reader gets its oldest slot."""

    output, depth = "tokens", 1

    def __call__(self, hidden: Tensor, input_ids: Tensor) -> None:
        """Draft, and turn the ring."""
        super().__call__(hidden, input_ids)
        if self.output not in self.buffers:
            return
        held = self.buffers[self.output]
        if not hasattr(self, "ring"):
            self.ring = [torch.zeros_like(held) for _ in range(self.depth + 1)]
        for slot in range(self.depth, 0, -1):
            self.ring[slot].copy_(self.ring[slot - 1])
        self.ring[0].copy_(held)
        held.copy_(self.ring[-1])


class KeepsOldLogits(Rings):
    """Kept logits, two replays behind."""

    output, depth = "step_logits", 2


class RatesOld(Rings):
    """Confidence, three replays behind."""

    output, depth = "confidence", 3


def late_tokens(setting: Setting) -> Any:
    """Tokens are those of the replay before."""
    return factory(setting, parts=Parts(sampler=Rings))


def late_kept_logits(setting: Setting) -> Any:
    """Kept logits are those of the last replay but one."""
    return factory(setting, parts=Parts(sampler=KeepsOldLogits))


def late_confidence(setting: Setting) -> Any:
    """Confidence is that of three replays before."""
    return factory(setting, parts=Parts(sampler=RatesOld))


class KeepsTheHead(Wrapped):
    """An update of the output head reaches the target's copy, not the draft's."""

    def reweight(self, weights: Mapping[str, Tensor]) -> None:
        """Update all weights but the head."""
        self.inside.reweight({name: w for name, w in weights.items() if name != "head"})


def unseen_update(setting: Setting) -> Any:
    """The draft goes on with the output head that it was built with."""
    return KeepsTheHead(factory(setting))


HERE = "tests.zoo.staleness"
SPECIMENS = (
    Specimen(
        "late_input_ids",
        HERE,
        "The input ids of a block are prepared outside the recording, by code that skips the steps "
        "after a rejection. Two replays of three draft after the anchor of an earlier step.",
        "spiritbuun/buun-llama-cpp#116",
        COUNTER,
        "freshness",
        "bounds",
        "two loads of different anchor",
    ),
    Specimen(
        "late_anchor",
        HERE,
        "A copy of metadata assigns one field instead of copying it into the captured buffer, and "
        "the anchor that a replay reads is always that of the step before.",
        "sgl-project/sglang#39116",
        COUNTER,
        "freshness",
        "bounds",
        "two loads of different anchor",
    ),
    Specimen(
        "oldest_temperature",
        HERE,
        "Staging goes through a ring of pinned buffers so that no copy in flight is overwritten, "
        "and the consumer takes the oldest slot. The sampler shows no noise and no buffer: draws "
        "alone tell that its temperatures are two steps old.",
        "NVIDIA/Megatron-LM#5715",
        COUNTER,
        "freshness",
        "bounds",
        "three loads of different temperature",
    ),
    Specimen(
        "mask_by_count",
        HERE,
        "Staging is skipped by a signature that counts the greedy rows and ignores their order. "
        "Requests that swap their rows run with the mask of the batch that was staged last.",
        "NVIDIA/TensorRT-LLM#17544",
        COUNTER,
        "freshness",
        "bounds",
        "two requests that swap rows",
    ),
    Specimen(
        "late_kept_logits",
        HERE,
        "The logits that the accept reads are handed over through three buffers, of which the "
        "recording exposes the oldest: tokens are this step's, the law they are judged by is that "
        "of the last step but one.",
        "vllm-project/vllm#37639",
        COUNTER,
        "freshness",
        "bounds",
        "three loads",
    ),
    Specimen(
        "late_tokens",
        HERE,
        "A recording made at a shorter span leaves the output rows of the step before in place, so "
        "that every request reads the block of its previous step.",
        "pegainfer-project/pegainfer#442",
        COUNTER,
        "freshness",
        "retention",
        "two loads",
    ),
    Specimen(
        "late_confidence",
        HERE,
        "The counts that a scheduler decides by are taken from an older speculative step, since "
        "the fast path does not renew them: confidence lags by three steps, the drafts are right.",
        "NVIDIA/TensorRT-LLM#18437",
        COUNTER,
        "freshness",
        "equality",
        "four loads with a confidence head",
    ),
    Specimen(
        "unseen_update",
        HERE,
        "Weights are synchronised from a trainer by a transport that reaches the target only. The "
        "draft keeps the output head of the day it was started, and is rejected more and more.",
        "sgl-project/sglang#27718",
        COUNTER,
        "freshness",
        "equality",
        "one update of the head",
    ),
)
