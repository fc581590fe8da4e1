"""Noise that is shared, or that depends on what it must not; laws that bend."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.stages import Stages
from impl.subject import factory
from oracle.reference import choice
from oracle.subjects.reference import Reference

from .specimen import Specimen

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")
SHARING = 16
ODD_BUCKET = 16
BEND = 1.2


class ShowsNoNoise(Reference):
    """The reference, claiming no noise state: only its draws can tell."""

    def describe(self) -> Mapping[str, Any]:
        """All abilities of the reference but NOISE."""
        told = super().describe()
        return {**told, "abilities": tuple(a for a in told["abilities"] if a != "NOISE")}


class SharesRows(ShowsNoNoise):
    """Every sixteenth row reads the noise of the row above it."""

    def block_noise(self, rows: int) -> Tensor:
        """Draw, then overwrite."""
        e = super().block_noise(rows)
        count = len(e[1::SHARING])
        e[1::SHARING] = e[0::SHARING][:count]
        return e


def shared_rows(setting: Setting) -> Any:
    """Some rows of a batch share their noise."""
    refuse_unreachable(setting)
    return SharesRows(setting)


class Bends(ShowsNoNoise):
    """Draws at T ** 1.2 and exports T: right at T = 1 alone."""

    def replay(self) -> None:
        """Bend the temperature for the draw, and export the straight one."""
        asked = self.inputs
        heat = asked["temperature"]
        bent = torch.where(heat > 1e-3, heat**BEND, heat)
        self.inputs = {**asked, "temperature": bent}
        super().replay()
        self.inputs = asked
        if "temperature" in self.outputs:
            straight = choice.clamped(heat).to(torch.float32)
            self.outputs = {**self.outputs, "temperature": straight}


def bent_temperature(setting: Setting) -> Any:
    """The exported law is not the one drawn from, except at temperature 1."""
    refuse_unreachable(setting)
    return Bends(setting)


def refuse_unreachable(setting: Setting) -> None:
    """Raise for what the reference cannot serve."""
    if setting["forward"] != "given" or setting["device"] != "cpu":
        raise NotImplementedError("hidden states are given, on the cpu")


def odd_bucket(setting: Setting) -> Any:
    """The step of the 16-row bucket is another kernel, which scales the bias by 1 + 2^-8."""

    def broken(stages: Stages) -> Stages:
        def step(base: Tensor, bias: Tensor, out: Tensor) -> None:
            scale = 1 + 2.0**-8 if len(base) == ODD_BUCKET else 1.0
            stages.step(base, bias * scale, out)

        return stages._replace(step=step)

    return factory(setting, stages=broken)


HERE = "tests.zoo.noise"
SPECIMENS = (
    Specimen(
        "shared_rows",
        HERE,
        "The noise index of a row is computed from a rounded row number, so that a few rows of a "
        "batch read the noise of their neighbour. Every marginal stays right.",
        "flashinfer-ai/flashinfer#4861",
        COUNTER,
        "independence",
        "draft_law",
        "16 rows",
    ),
    Specimen(
        "bent_temperature",
        HERE,
        "The draw and the exported law apply the temperature in two ways that agree at T = 1, "
        "where the tests were run, and nowhere else.",
        "RL-Align/RL-Kernel#86",
        COUNTER,
        "claim",
        "draft_law",
        "49,152 draws at four temperatures",
    ),
    Specimen(
        "odd_bucket",
        HERE,
        "A library picks another kernel for one row count, and its sums end in other bits. A "
        "request that moves to that bucket because others arrived drafts by other logits.",
        "vllm-project/vllm#54506",
        COUNTER,
        "invariance",
        "coupled",
        "a bucket of 16 rows",
    ),
)
