"""Planted faults of a law shrink to a tiny example, and a correct sampler passes all examples."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisException

from oracle.judge import bank, scan
from oracle.judge.budget import ALPHA, SHARES, Ledger
from oracle.judge.verdict import ViolationRuntimeError, holds, violated

EXAMPLES, DRAWS = 20, 4096
TEMPERATURES = (1.0, 0.5, 2.0, 0.25, 4.0)
Draw = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]


def law_of(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Softmax of logits over T."""
    scaled = logits / temperature
    power = np.exp(scaled - scaled.max())
    return power / power.sum()


def correct(logits: np.ndarray, temperature: float, source: np.random.Generator) -> np.ndarray:
    """Draws from the law."""
    return source.multinomial(DRAWS, law_of(logits, temperature))


def ignores_temperature(
    logits: np.ndarray, temperature: float, source: np.random.Generator
) -> np.ndarray:
    """Draws at T = 1, whatever is asked."""
    del temperature
    return source.multinomial(DRAWS, law_of(logits, 1.0))


def loses_last(logits: np.ndarray, temperature: float, source: np.random.Generator) -> np.ndarray:
    """Never draws the last id of more than four."""
    law = law_of(logits, temperature)
    if len(law) > 4:
        law[-1] = 0.0
    return source.multinomial(DRAWS, law / law.sum())


@dataclass
class Seen:
    """Examples that were judged, and the last one that was violated."""

    calls: int = 0
    first: int = 0
    last: tuple[list[int], float] = field(default_factory=lambda: ([], 0.0))


def judged(draw: Draw, seen: Seen, ledger: Ledger) -> Callable[[], None]:
    """A property: the verdict is a pure function of the example, at a planned share a look."""
    each = SHARES["hypothesis"] * ALPHA / EXAMPLES

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None)
    @given(st.lists(st.integers(-12, 12), min_size=2, max_size=40), st.sampled_from(TEMPERATURES))
    def law_is_followed(quarters: list[int], temperature: float) -> None:
        seen.calls += 1
        if not seen.first and ledger.spent.get("hypothesis", 0.0) < 0.99 * each * EXAMPLES:
            ledger.take("hypothesis", each)
        text = json.dumps([quarters, temperature]).encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
        logits = np.array(quarters) / 4
        counts = draw(logits, temperature, np.random.default_rng(seed)).astype(np.int64)
        log_law = np.log(law_of(logits, temperature))[None]
        members = bank.members(log_law, temperature=temperature)
        rejected = bank.rejects(bank.log_values(counts[None], members), each / 2)
        rejected |= scan.scan(np.exp(log_law), counts, each / 2).rejects
        verdict = holds("the law is followed", DRAWS, "T ignored")
        if rejected:
            seen.first = seen.first or seen.calls
            seen.last = (quarters, temperature)
            verdict = violated(f"V = {len(quarters)}, T = {temperature}", DRAWS)
        verdict.raise_if_violated()

    return law_is_followed


@pytest.mark.parametrize(
    ("fault", "most"), [(ignores_temperature, 2), (loses_last, 5)], ids=["T ignored", "lost id"]
)
def test_a_planted_fault_shrinks_to_a_few_ids(fault: Draw, most: int) -> None:
    """It is found, shrunk to the smallest vocabulary in fewer than 60 calls, and never flaky."""
    seen = Seen()
    with pytest.raises(ViolationRuntimeError) as raised:
        judged(fault, seen, Ledger())()
    assert not isinstance(raised.value, HypothesisException)
    quarters, _ = seen.last
    assert len(quarters) <= most
    assert seen.calls - seen.first < 60


def test_a_correct_sampler_passes_and_spends_its_share_once() -> None:
    """Every example pays its planned part of the line, and no more than the line is paid."""
    seen, ledger = Seen(), Ledger()
    judged(correct, seen, ledger)()
    assert seen.calls <= EXAMPLES
    assert ledger.spent["hypothesis"] <= SHARES["hypothesis"] * ALPHA * (1 + 1e-9)


def test_the_smallest_faults_are_left_to_other_checks() -> None:
    """T + 1 % in 4,096 draws is below what an example sees, and is not claimed."""

    def hair(logits: np.ndarray, temperature: float, source: np.random.Generator) -> np.ndarray:
        return source.multinomial(DRAWS, law_of(logits, temperature * 1.01))

    judged(hair, Seen(), Ledger())()
