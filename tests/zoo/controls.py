"""Correct but different samplers: every check must pass them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.stages import Stages
from impl.subject import factory
from oracle.subjects import reference, torch_ops

Setting = Mapping[str, Any]
TILE = 16


def two_stage_argmax(values: Tensor) -> Tensor:
    """The winner of tile winners: the same id as one argmax, ties and NaN included."""
    tiles = list(values.split(TILE, dim=-1))
    best = torch.stack([tile.max(-1).values for tile in tiles], -1)
    where = torch.stack([tile.argmax(-1) + n * TILE for n, tile in enumerate(tiles)], -1)
    return where.gather(-1, best.argmax(-1, keepdim=True)).squeeze(-1)


def tiled(setting: Setting) -> Any:
    """Greedy and sampled winners are found tile by tile."""

    def other(stages: Stages) -> Stages:
        def choice(
            logits: Tensor,
            temperature: Tensor | None,
            greedy: Tensor | None,
            noise: Tensor | None,
            tokens: Tensor,
            flags: Tensor,
        ) -> None:
            stages.choice(logits, temperature, greedy, noise, tokens, flags)
            best = two_stage_argmax(logits)
            tokens.copy_(best if greedy is None else torch.where(greedy, best, tokens))

        return stages._replace(choice=choice)

    return factory(setting, stages=other)


def summed_bias(setting: Setting) -> Any:
    """The bias product is summed in another order, in float64, and rounded once."""

    def other(stages: Stages) -> Stages:
        def bias(markov: Any, previous: Tensor, hidden: Any, state: Any) -> tuple[Tensor, Any]:
            if markov.kind != "vanilla":
                other_bias, after = stages.bias(markov, previous, hidden, state)
                return other_bias, after
            embedding = markov.w1[previous].double().flip(-1)
            product = embedding @ markov.w2.double().flip(-1).T
            return product.float().to(markov.w2.dtype), state

        return stages._replace(bias=bias)

    return factory(setting, stages=other)


def colder_by_a_hair(setting: Setting) -> Any:
    """One unit in the last place of the temperature: below every stated effect."""

    def other(stages: Stages) -> Stages:
        def choice(logits: Tensor, temperature: Tensor | None, *rest: Any) -> None:
            hair = None if temperature is None else temperature * (1 - 2.0**-24)
            stages.choice(logits, hair, *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=other)


def without_recording(setting: Setting) -> Any:
    """The folded sampler, run outside any recording, and saying so."""
    return factory({**setting, "engine": "eager"})


CONTROLS = {
    "reference": reference.factory,
    "torch_multinomial": torch_ops.factory,
    "folded": factory,
    "tiled": tiled,
    "summed_bias": summed_bias,
    "colder_by_a_hair": colder_by_a_hair,
    "without_recording": without_recording,
}
