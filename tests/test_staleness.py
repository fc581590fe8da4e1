"""What is stale is named, and how old it was: every kind of buffer, and subjects that show none."""

from functools import cache

import pytest

from oracle.judge.checks import lateness, writeset
from oracle.judge.context import Context
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.verdict import Outcome, Verdict
from oracle.subjects import reference, torch_ops

from .judging import FOLDED, context, probed, verdict
from .zoo import SPECIMENS
from .zoo.noise import ShowsNoNoise
from .zoo.staleness import Holds

BY_ID = {specimen.id: specimen for specimen in SPECIMENS}
COUNTER = ("dspark", "counter")
# Kind of buffer -> specimen, and what the verdict has to say of it.
SAID = {
    "input ids": ("late_input_ids", "buffer input_ids was 2 replays old"),
    "anchor": ("late_anchor", "buffer anchor was 1 replay old"),
    "temperatures, staged late": ("staged_after_replay", "buffer temperature was 1 replay old"),
    "temperatures, edited in place": ("restage_skip", "buffer temperature was 2 replays old"),
    "temperatures, black box": ("oldest_temperature", "the temperature was 2 replays old"),
    "temperatures, rebound": (
        "rebound_buffer",
        "the memory that was left by buffer temperature was older than the first load",
    ),
    "mask": ("mask_by_count", "buffer greedy was 7 replays old"),
    "noise": ("frozen_noise", "the noise was 10 replays old"),
    "kept logits": ("late_kept_logits", "buffer step_logits was 2 replays old"),
    "out": ("late_tokens", "buffer tokens was 1 replay old"),
    "confidence": ("late_confidence", "buffer confidence was 3 replays old"),
    "weights": ("unseen_update", "weight head was 6 replays old"),
    "pad rows": ("stale_pad_rows", "in replay 3: they are 3 replays old, rows 5 to 7"),
}


@cache
def known(factory: Factory, combination: tuple[str, str] = COUNTER) -> Context:
    """What a sampler claims to be able to do, asked once."""
    return probed(context(combination), factory)


def chained(factory: Factory, base: Context) -> Verdict:
    """The verdict on the chain of loads that all differ."""
    return verdict("freshness", lateness.plan(base), base, factory)


@pytest.mark.parametrize("kind", SAID)
def test_the_verdict_names_the_buffer_and_its_age(kind: str) -> None:
    """Each kind of buffer is left stale by one specimen; ages beyond one are told as they are."""
    name, words = SAID[kind]
    factory = load_factory(BY_ID[name].subject)
    base = known(factory if kind.endswith("black box") else FOLDED)
    if kind == "pad rows":
        answer = verdict("writeset", writeset.padded(base), base, factory)
    else:
        answer = chained(factory, base)
    assert answer.outcome is Outcome.VIOLATED
    assert words in answer.reason


HEALTHY = {"folded": FOLDED, "reference": reference.factory, "torch": torch_ops.factory}


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_sampler_is_not_accused(name: str) -> None:
    """Nothing is called stale, whether it shows all, its noise, or its draws alone."""
    answer = chained(HEALTHY[name], known(HEALTHY[name]))
    assert answer.outcome is Outcome.HOLDS
    assert answer.reason == "no earlier value explains a block"
    assert answer.effect


WORDS = {
    "hidden": "the hidden states",
    "anchor": "the anchor",
    "temperature": "the temperature",
    "top_k": "top_k, the mask of greedy rows,",
}


@pytest.mark.parametrize("inside", [ShowsNoNoise, torch_ops.factory])
@pytest.mark.parametrize("field", WORDS)
def test_any_input_of_a_black_box_has_its_age(inside: Factory, field: str) -> None:
    """No buffer to look at: the protocol's word for it, and as many replays as it was held back."""
    answer = chained(lambda setting: Holds(inside(setting), field, 3), known(inside))
    assert answer.outcome is Outcome.VIOLATED
    assert f"stale: {WORDS[field]} was 3 replays old" in answer.reason
    assert list(answer.evidence["ages"]) == [field]


def test_a_fault_that_has_no_age_is_not_called_stale() -> None:
    """Blocks that differ from the reference, and from every earlier one, are counted."""
    answer = chained(load_factory(BY_ID["kept_before_bias"].subject), known(FOLDED))
    assert answer.outcome is Outcome.HOLDS
    assert "blocks are off, and by no age" in answer.reason
