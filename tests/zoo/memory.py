"""Buffers that are stale, moved, shared or left unwritten."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from impl.assembly import Parts
from impl.proposer import Proposer
from impl.sampler import READ, Admitted, DraftSampler
from impl.subject import factory

from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")


class StagesLater(DraftSampler):
    """Holds the sampling parameters back until it is told."""

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Remember."""
        self.waiting = (admitted, padded)

    def stage_now(self) -> None:
        """Copy what was remembered."""
        super().stage_sampling_params(*self.waiting)


class RunsFirst(Proposer):
    """Replays, and stages the sampling parameters afterwards."""

    def run(self) -> None:
        """Run the block on the parameters of the step before."""
        super().run()
        if isinstance(self.tail, StagesLater):
            self.tail.stage_now()


def staged_after_replay(setting: Setting) -> Any:
    """Temperatures are staged after the replay that should use them."""
    return factory(setting, parts=Parts(sampler=StagesLater, proposer=RunsFirst))


class Rebinds(DraftSampler):
    """Puts a new tensor in the place of a static buffer."""

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Rebind the temperature, then stage into the new tensor."""
        held = self.buffers
        fresh = held["temperature"].clone()
        self.captured = [*getattr(self, "captured", []), held["temperature"]]
        held._by_name["temperature"] = fresh
        held.all = tuple(
            replace(buffer, tensor=fresh) if buffer.name == "temperature" else buffer
            for buffer in held.all
        )
        super().stage_sampling_params(admitted, padded)


def rebound_buffer(setting: Setting) -> Any:
    """A static buffer is rebound instead of copied into."""
    return factory(setting, parts=Parts(sampler=Rebinds))


class SkipsEqualObjects(Wrapped):
    """Skips staging when temperature and top_k are the objects of the last load."""

    last: Mapping[str, Tensor] | None = None
    staged: Mapping[str, Tensor] | None = None

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Load, with the parameters staged before when their objects are the same."""
        names = ("temperature", "top_k")
        same = self.last is not None and all(inputs[n] is self.last[n] for n in names)
        if not same or self.staged is None:
            self.staged = {name: inputs[name].clone() for name in names}
        self.last = inputs
        self.inside.load({**inputs, **self.staged})


def restage_skip(setting: Setting) -> Any:
    """An edit in place of the sampling parameters is missed."""
    return SkipsEqualObjects(factory(setting))


class ReadsViews(DraftSampler):
    """Returns the static buffers themselves."""

    def read(self, rows: int) -> dict[str, Tensor]:
        """Views, which the next replay overwrites."""
        return {name: self.buffers[name][:rows] for name in READ if name in self.buffers}


def results_are_views(setting: Setting) -> Any:
    """Results change under the reader at the next replay."""
    return factory(setting, parts=Parts(sampler=ReadsViews))


class StagesLiveRows(DraftSampler):
    """Stages the live rows and leaves the pad rows as they were."""

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Stage without padding."""
        del padded
        super().stage_sampling_params(admitted, len(admitted.greedy))


def stale_pad_rows(setting: Setting) -> Any:
    """Pad rows keep the sampling parameters of an earlier, larger batch."""
    return factory(setting, parts=Parts(sampler=StagesLiveRows))


HERE = "tests.zoo.memory"
SPECIMENS = (
    Specimen(
        "staged_after_replay",
        HERE,
        "The host writes this step's temperatures into the static buffer after it launched the "
        "replay, so every block is drawn at the temperatures of the block before.",
        "sgl-project/sglang#35198",
        COUNTER,
        "freshness",
        "spike",
        "two loads of different temperature",
    ),
    Specimen(
        "rebound_buffer",
        HERE,
        "A refactoring assigns a new tensor to the attribute instead of copying into the static "
        "buffer. The recording goes on reading the old memory.",
        "HYGON-AI/vllm-plugin-das#91",
        COUNTER,
        "writeset",
        "spike",
        "one load",
    ),
    Specimen(
        "restage_skip",
        HERE,
        "Staging is skipped when the parameter tensors are the same objects as last time, which "
        "misses an edit in place.",
        "NVIDIA/TensorRT-LLM#17544",
        COUNTER,
        "freshness",
        "equality",
        "one edit in place",
    ),
    Specimen(
        "results_are_views",
        HERE,
        "The result record holds slices of the static buffers. A consumer that keeps it for one "
        "step more reads the next block's tokens.",
        "sgl-project/sglang-omni#1369",
        COUNTER,
        "retention",
        "equality",
        "two blocks",
    ),
    Specimen(
        "stale_pad_rows",
        HERE,
        "Only the live rows are staged. The rows that pad the bucket run with the temperatures of "
        "requests that left long ago.",
        "sgl-project/sglang#22958",
        COUNTER,
        "writeset",
        "equality",
        "a batch smaller than its bucket",
    ),
)
