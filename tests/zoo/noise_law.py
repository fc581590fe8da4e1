"""Noise of another law than its dialect declares; most draws cannot tell."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from impl.noise import CounterNoise, uniforms
from impl.stages import Stages
from impl.subject import factory

from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
Law = Callable[[Tensor], Tensor]
STEPS = 2.0**24
POOLED = 10
RATE = 1.01


class OwnStream(Wrapped):
    """A sampler whose stream nobody can foretell: it shows the buffer, and no noise state."""

    def describe(self) -> dict[str, Any]:
        """All abilities but NOISE."""
        told = self.inside.describe()
        return {**told, "abilities": tuple(a for a in told["abilities"] if a != "NOISE")}


def own_stream(setting: Setting, law: Law) -> Any:
    """The folded race sampler with its noise buffer changed by `law` in every step."""

    def broken(stages: Stages) -> Stages:
        def noise(state: Any, rows: int, step: int, buffer: Tensor | None) -> Tensor:
            drawn = stages.noise(state, rows, step, buffer)
            assert drawn is not None
            return drawn.copy_(law(drawn))

        return stages._replace(noise=noise)

    if setting["family"] != "dspark" or setting["dialect"] != "race":
        raise NotImplementedError("it draws dspark blocks by an exponential race")
    return OwnStream(factory(setting, stages=broken))


def coarse(drawn: Tensor) -> Tensor:
    """The same noise from uniforms of 24 bits, none of which is 0."""
    steps = (-torch.expm1(-drawn.double()) * STEPS).floor()
    return -torch.log1p(-(steps.clamp(min=1) / STEPS).clamp(max=1 - 1 / STEPS)).float()


def coarse_race(setting: Setting) -> Any:
    """Uniforms of 24 bits behind an exponential race."""
    return own_stream(setting, coarse)


def half_precision_noise(setting: Setting) -> Any:
    """The noise buffer holds bfloat16 values."""
    return own_stream(setting, lambda drawn: drawn.bfloat16().float())


def pooled(drawn: Tensor) -> Tensor:
    """Every tenth id of a row reads the noise of the id before it."""
    out = drawn.clone()
    count = out[:, 1::POOLED].shape[1]
    out[:, 1::POOLED] = drawn[:, 0::POOLED][:, :count]
    return out


def pooled_noise(setting: Setting) -> Any:
    """One value in ten is read twice."""
    return own_stream(setting, pooled)


def wrong_rate(setting: Setting) -> Any:
    """All noise is 1 % too large: no race has another winner."""
    return own_stream(setting, lambda drawn: drawn * RATE)


def coarse_words(setting: Setting) -> Any:
    """Counter noise from the upper 24 bits of each word."""

    def broken(stages: Stages) -> Stages:
        def noise(state: CounterNoise, rows: int, step: int, _: Tensor | None) -> Tensor:
            words = uniforms(state, rows, step).double()
            cells = (words * STEPS).floor()
            return -torch.log1p(-((cells + 0.5) / STEPS)).float()

        return stages._replace(noise=noise)

    if setting["dialect"] != "counter":
        raise NotImplementedError("it draws dspark blocks by counter noise")
    return factory(setting, stages=broken)


HERE = "tests.zoo.noise_law"
RACE = ("dspark", "race")
SPECIMENS = (
    Specimen(
        "coarse_race",
        HERE,
        "The uniform behind the noise keeps 24 bits of its word. Below 2^-24 there is no noise, so "
        "ids of small probability are lost, and no test at a small vocabulary can tell.",
        "vllm-project/vllm#43150",
        RACE,
        "noise_law",
        "draft_law",
        "1,000 values",
    ),
    Specimen(
        "half_precision_noise",
        HERE,
        "The noise buffer was allocated in the dtype of the model, so that the exponential "
        "variables are rounded to eight bits before the race reads them.",
        "GeeeekExplorer/nano-vllm#39",
        RACE,
        "noise_law",
        "independence",
        "100 values",
    ),
    Specimen(
        "pooled_noise",
        HERE,
        "A kernel that draws several values a call hands one of them to two neighbouring ids, once "
        "in ten. Each id alone still has an exponential variable of its own.",
        "local-inference-lab/vllm#205",
        RACE,
        "noise_law",
        "spike",
        "100 values",
    ),
    Specimen(
        "wrong_rate",
        HERE,
        "The logarithm of the uniform is taken by a series whose constant is 1 % off. A race "
        "compares quotients, so its winners stay; whoever reads the noise for itself is misled.",
        "vllm-project/vllm#45996",
        RACE,
        "noise_law",
        "draft_law",
        "700,000 values",
    ),
)
# Found by draws over a large vocabulary only, at the size that the ci profile affords.
WIDE = (
    Specimen(
        "coarse_words",
        HERE,
        "The 32-bit hash of a counter is cut to its upper 24 bits before it becomes a uniform, so "
        "that tail tokens of a large vocabulary come too seldom. The head passes every test.",
        "vllm-project/vllm#51367",
        ("dspark", "counter"),
        "coupled",
        "draft_law",
        "1,536 draws at V = 129,280",
    ),
)
