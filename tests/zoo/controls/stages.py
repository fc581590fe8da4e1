"""Folded samplers with other arithmetic in one arrow of the pipeline."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.stages import Stages
from impl.subject import factory

from ..specimen import Wrapped

Setting = Mapping[str, Any]
TILE = 16
PIECES = 3


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
    """One unit in the last place of the temperature: within what rounding explains."""

    def other(stages: Stages) -> Stages:
        def choice(logits: Tensor, temperature: Tensor | None, *rest: Any) -> None:
            hair = None if temperature is None else temperature * (1 - 2.0**-24)
            stages.choice(logits, hair, *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=other)


def gumbel_keys(setting: Setting) -> Any:
    """Logits over T plus Gumbel variables, in float64, in the place of both kinds of key."""

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
            if noise is None or temperature is None or greedy is None:
                return
            scaled = logits.double() / temperature.double()[:, None]
            gumbel = -noise.double().log()
            drawn = ~greedy & scaled.amax(-1).isfinite()
            tokens.copy_(torch.where(drawn, (scaled + gumbel).argmax(-1), tokens))

        return stages._replace(choice=choice)

    return factory(setting, stages=other)


def halved_head(setting: Setting) -> Any:
    """Base logits are summed from two halves of the hidden size, the upper one first."""

    def other(stages: Stages) -> Stages:
        def logits(head: Any, hidden: Tensor, out: Tensor) -> None:
            rows = (hidden.to(head.weight.dtype) / head.mup).double()
            real, half = head.weight[: head.vocabulary].double(), hidden.shape[-1] // 2
            upper = rows[..., half:] @ real[:, half:].T
            out.copy_((upper + rows[..., :half] @ real[:, :half].T).float())

        return stages._replace(logits=logits)

    return factory(setting, stages=other)


def in_pieces(values: Tensor) -> list[Tensor]:
    """Three bfloat16 values that add up to a float32 one; infinities stay in the first."""
    rest, found = values.float(), []
    for _ in range(PIECES):
        piece = rest.bfloat16().float()
        found.append(piece)
        rest = torch.where(piece.isfinite(), rest - piece, 0.0)
    return found


def bias_in_bfloat16(setting: Setting) -> Any:
    """The bias is a sum of products of bfloat16 pieces, as tensor cores make a float32 product."""

    def other(stages: Stages) -> Stages:
        def bias(markov: Any, previous: Tensor, hidden: Any, state: Any) -> tuple[Tensor, Any]:
            if markov.kind != "vanilla":
                other_bias, after = stages.bias(markov, previous, hidden, state)
                return other_bias, after
            left, right = in_pieces(markov.w1[previous]), in_pieces(markov.w2)
            parts = [(one @ two.T).double() for one in left for two in right]
            return torch.stack(parts).sum(0).float().to(markov.w2.dtype), state

        return stages._replace(bias=bias)

    return factory(setting, stages=other)


class Narrows(Wrapped):
    """Returns step logits in the dtype asked for, which holds every value that is kept."""

    def __init__(self, inside: Any, dtype: torch.dtype) -> None:
        """Wrap a subject; dtype: of the step logits as they are read."""
        super().__init__(inside)
        self.dtype = dtype

    def narrowed(self, outputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """The outputs with step logits in the narrow dtype."""
        if "step_logits" not in outputs:
            return outputs
        return {**outputs, "step_logits": outputs["step_logits"].to(self.dtype)}

    def read(self) -> dict[str, Tensor]:
        """Read, and narrow."""
        return self.narrowed(self.inside.read())

    def eager(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run eagerly, and narrow."""
        return self.narrowed(self.inside.eager(inputs))


def float32_kept(setting: Setting) -> Any:
    """Step logits are rounded to their dtype, and kept in float32, whatever dtype was asked for."""
    dtype = getattr(torch, setting["step_dtype"])

    def other(stages: Stages) -> Stages:
        def step(base: Tensor, bias: Tensor, out: Tensor) -> None:
            out.copy_((base.float() + bias.float()).to(dtype))

        return stages._replace(step=step)

    return Narrows(factory({**setting, "step_dtype": "float32"}, stages=other), dtype)


def early_noise(setting: Setting) -> Any:
    """The noise of all steps is drawn before the first of them, into memory of the recording."""
    drawn: list[Tensor | None] = []

    def other(stages: Stages) -> Stages:
        def noise(state: Any, rows: int, step: int, buffer: Tensor | None) -> Tensor | None:
            if step == 0:
                every = range(setting["drafts"])
                drawn[:] = [stages.noise(state, rows, k, None) for k in every]
            found = drawn[step]
            # The buffer is there all the same, and whoever looks at it finds the step's noise.
            if buffer is None or found is None:
                return found
            return buffer[:rows].copy_(found)

        return stages._replace(noise=noise)

    return factory(setting, stages=other)
