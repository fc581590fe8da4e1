"""What each profile promises to see: one fault a line, killed by the check that carries it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from oracle.judge.context import PROFILES
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.verdict import Outcome
from oracle.subjects.torch_ops import Multinomial

from .judging import bad, context, verdicts
from .zoo.noise import ShowsNoNoise

COUNTER = ("dspark", "counter")
RACE = ("dspark", "race")


def heated(tilt: float) -> Factory:
    """A sampler that draws at T (1 + tilt), exports T, and shows no noise to couple with."""

    class Heated(ShowsNoNoise):
        def replay(self) -> None:
            asked = self.inputs
            self.inputs = {**asked, "temperature": asked["temperature"] * (1 + tilt)}
            super().replay()
            self.inputs = asked
            if "temperature" in self.outputs:
                straight = torch.clamp(asked["temperature"], min=1e-5)
                self.outputs = {**self.outputs, "temperature": straight}

    def build(setting: Mapping[str, Any]) -> Any:
        if setting["forward"] != "given":
            raise NotImplementedError("hidden states are given")
        return Heated(setting)

    return build


def zoo(name: str) -> Factory:
    """The factory of a specimen."""
    return load_factory(f"tests.zoo.{name}")


class Warmer(Multinomial):
    """torch's own draws at 0.1 % more than T: fast enough for the draws of deep without a GPU."""

    def law(self, logits: torch.Tensor) -> torch.Tensor:
        """Softmax at the wrong temperature."""
        return super().law(logits / 1.001)


SMOKE, CI, DEEP = "smoke", "ci", "deep"
TARGETS = (
    ("T off by 2 %", SMOKE, "draft_law", COUNTER, heated(0.02)),
    ("T off by 0.12 %, noise shown", SMOKE, "coupled", COUNTER, zoo("arithmetic:hotter")),
    ("one token never drawn", SMOKE, "spike", COUNTER, zoo("arithmetic:dead_id")),
    ("logits in bf16", SMOKE, "coupled", COUNTER, zoo("arithmetic:rounded_before_draw")),
    ("uniforms of 24 bits, noise shown", SMOKE, "noise_law", RACE, zoo("noise_law:coarse_race")),
    ("T off by 0.5 %", CI, "draft_law", COUNTER, heated(0.005)),
    ("one token never drawn", CI, "spike", COUNTER, zoo("arithmetic:dead_id")),
    ("noise of 1 % of rows shared", CI, "independence", COUNTER, zoo("blocks:rarely_shared_noise")),
    ("uniforms of 24 bits, by draws", CI, "coupled", COUNTER, zoo("noise_law:coarse_words")),
    ("T off by 0.1 %", DEEP, "draft_law", COUNTER, Warmer),
    ("1 % foreign tokens", CI, "block_law", COUNTER, zoo("blocks:rare_foreign_token")),
)


@pytest.mark.parametrize(
    ("profile", "check", "combination", "factory"),
    [
        pytest.param(
            *target[1:],
            marks=[pytest.mark.slow] if target[1] != SMOKE else [],
            id=f"{target[1]}: {target[0]}",
        )
        for target in TARGETS
    ],
)
def test_a_profile_sees_what_it_promises(
    profile: str, check: str, combination: tuple[str, str], factory: Factory
) -> None:
    """The check answers violated at the sizes of the profile."""
    base = context(profile=PROFILES[profile])
    results = verdicts(factory, base, (combination,), (check,))[check]
    outcomes = {result.verdict.outcome for result in bad(results)}
    assert outcomes == {Outcome.VIOLATED}, [result.verdict.reason for result in results]


@pytest.mark.parametrize("vocabulary", [2, 61, 4096])
def test_a_dead_id_is_found_with_certainty_at_any_vocabulary(vocabulary: int) -> None:
    """The last id of a vocabulary can never be drawn: the sweep names it."""

    class Dead(ShowsNoNoise):
        def replay(self) -> None:
            super().replay()
            last = self.setting["vocabulary"] - 1
            tokens = self.outputs["tokens"]
            self.outputs = {**self.outputs, "tokens": torch.where(tokens == last, 0, tokens)}

    base = context(profile=replace(PROFILES[SMOKE], spike_vocabulary=vocabulary))
    (result,) = verdicts(Dead, base, (COUNTER,), ("spike",))["spike"]
    assert result.verdict.outcome is Outcome.VIOLATED
    assert result.verdict.evidence["wrong_ids"] == [vocabulary - 1]
