"""Samplers whose fault has a size: how much is wrong is said by who builds them.

What an exact check would see with certainty is not claimed: no fault moves a token whose noise is
shown, or a commit whose coins are.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.stages import Stages
from impl.subject import factory
from oracle.judge.checks import claim, coupled
from oracle.subjects.reference import Reference

from ..blocks import erring
from ..noise import ShowsNoNoise, refuse_unreachable
from ..specimen import Modest, Wrapped

Setting = Mapping[str, Any]


def warmer(setting: Setting, size: float) -> Any:
    """Draw at T (1 + size), and show no noise."""

    def other(stages: Stages) -> Stages:
        def choice(logits: Tensor, temperature: Tensor | None, *rest: Any) -> None:
            heat = None if temperature is None else temperature * (1 + size)
            stages.choice(logits, heat, *rest)

        return stages._replace(choice=choice)

    return Modest(factory(setting, stages=other), "NOISE")


def bent(setting: Setting, size: float) -> Any:
    """Draw at T ** (1 + bend), export T: at the coldest T of the check, `size` of draws change."""
    bend = size / coupled.CHANGED_PER_TILT / max(abs(math.log(heat)) for heat in claim.HEATS)

    def other(stages: Stages) -> Stages:
        def choice(logits: Tensor, temperature: Tensor | None, *rest: Any) -> None:
            heat = None if temperature is None else temperature ** (1 + bend)
            stages.choice(logits, heat, *rest)

        return stages._replace(choice=choice)

    return Modest(factory(setting, stages=other), "NOISE")


class Floors(ShowsNoNoise):
    """No exponential variable lies below a floor."""

    def __init__(self, setting: Setting, floor: float) -> None:
        """Keep the floor."""
        self.floor = floor
        super().__init__(setting)

    def block_noise(self, rows: int) -> Tensor:
        """Draw, and lift what is too small."""
        return super().block_noise(rows).clamp(min=self.floor)


def floored(setting: Setting, size: float) -> Any:
    """Build the reference with a floor."""
    refuse_unreachable(setting)
    return Floors(setting, size)


class SharesSeldom(ShowsNoNoise):
    """In each block a share of the rows, other ones each time, reads the noise of the row above."""

    def __init__(self, setting: Setting, share: float) -> None:
        """Keep the share, and a source of luck that is not the noise."""
        self.share = share
        self.luck = torch.Generator().manual_seed(setting["seed"] + 3)
        super().__init__(setting)

    def block_noise(self, rows: int) -> Tensor:
        """Draw, then overwrite."""
        e = super().block_noise(rows)
        sharing = (torch.rand(rows, generator=self.luck) < self.share).nonzero().flatten()
        sharing = sharing[sharing > 0]
        e[sharing] = e[sharing - 1]
        return e


def seldom_shared(setting: Setting, size: float) -> Any:
    """Build the reference with shared rows."""
    refuse_unreachable(setting)
    return SharesSeldom(setting, size)


def seldom_foreign(setting: Setting, size: float) -> Any:
    """A share of the blocks reads the previous token of the next row."""
    return erring(setting, size, "token")


class LeansOnCoins(Reference):
    """Accept coins are u ** (1 + bend): each below what it should be, and shown as it is used."""

    def __init__(self, setting: Setting, bend: float) -> None:
        """Keep the bend."""
        self.bend = bend
        super().__init__(setting)

    def bent(self, coins: Tensor) -> Tensor:
        """Coins of another law, as float32 holds them."""
        return (coins ** (1 + self.bend)).float().double()

    def coins(self, rows: int) -> Tensor:
        """Bend all but the last column."""
        coins = super().coins(rows)
        return torch.cat([self.bent(coins[:, :-1]), coins[:, -1:]], 1)


def leaning_coins(setting: Setting, size: float) -> Any:
    """Build the reference with coins that lean to accepting."""
    refuse_unreachable(setting)
    return LeansOnCoins(setting, size)


class LeansAtTheEnd(LeansOnCoins):
    """The final draw of an accept is u ** (1 + bend)."""

    def coins(self, rows: int) -> Tensor:
        """Bend the last column."""
        coins = Reference.coins(self, rows)
        return torch.cat([coins[:, :-1], self.bent(coins[:, -1:])], 1)


def leaning_end(setting: Setting, size: float) -> Any:
    """Build the reference with a final draw that leans to the first ids."""
    refuse_unreachable(setting)
    return LeansAtTheEnd(setting, size)


class RoundsConfidence(Wrapped):
    """Returns confidence and raw confidence a little too low."""

    def __init__(self, inside: Any, size: float) -> None:
        """Keep how much is lost of a value."""
        super().__init__(inside)
        self.kept = 1 - size

    def read(self) -> dict[str, Tensor]:
        """Scale both."""
        found: dict[str, Tensor] = self.inside.read()
        names = [name for name in ("confidence", "confidence_raw") if name in found]
        return {**found, **{name: found[name] * self.kept for name in names}}


def rounded_confidence(setting: Setting, size: float) -> Any:
    """Build the folded sampler with a confidence that is a little too low."""
    return RoundsConfidence(factory(setting), size)
