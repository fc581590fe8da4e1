"""One table judged by all tests: what is said of it, and what each stage may use."""

import json
from dataclasses import replace

import numpy as np
import pytest

from oracle.judge.goodness import NEVER_DRAWN, Table, judge
from oracle.judge.significance import Floats

ALARM = 6e-9


def pairs(contexts: int = 4, vocabulary: int = 8) -> Floats:
    """A joint law of context and token; the last context is impossible."""
    source = np.random.default_rng(2)
    law = np.exp(1.3 * source.normal(size=(contexts, vocabulary)))
    law[-1] = 0.0
    return np.asarray(law / law.sum())


def drawn(law: Floats, faulty: Floats, draws: int = 60_000) -> Table:
    """Counts from a faulty law, to be judged against the true one."""
    flat = faulty.ravel() / faulty.sum()
    counts = np.random.default_rng(9).multinomial(draws, flat)
    return Table(law, counts.reshape(law.shape))


def test_a_correct_sampler_passes_all_and_the_evidence_can_be_stored() -> None:
    """No complaint; effects are stated and finite; JSON holds every number."""
    law = pairs()
    one = judge(drawn(law, law), 1, ALARM)
    assert one.complaint == ""
    assert not one.fit.rejects
    assert one.exact is not None
    assert 0 < one.tilt <= min(one.blurred, one.exact.tilt)
    assert 0 < one.exact.mass < 0.01
    assert NEVER_DRAWN in one.exact.values
    assert "T off by" in one.effect
    assert json.loads(json.dumps(one.described(0), allow_nan=False))["draws"] == 60_000


def test_a_tilt_is_named_as_such() -> None:
    """A sampler at 1.1 T in every context, with the member and its weight in the reason."""
    law = pairs()
    weights = law.sum(axis=1, keepdims=True)
    hot = (law / np.where(weights > 0, weights, 1)) ** (1 / 1.1)
    hot = weights * hot / np.where(weights > 0, hot.sum(axis=1, keepdims=True), 1)
    one = judge(drawn(law, hot), 1, ALARM)
    assert "as likely under 'T +10 %'" in one.complaint
    assert "required below 10^8.5" in one.complaint


@pytest.mark.parametrize(
    ("faulty", "words"),
    [
        ({(1, 3): 1.4}, "token 3 after 1: observed"),
        ({(2, 4): 1.3, (2, 5): 1.3, (2, 6): 1.3, (2, 7): 1.3}, "token 4 after 2 to token 7 after"),
    ],
)
def test_an_interval_is_named_with_its_counts(
    faulty: dict[tuple[int, int], float], words: str
) -> None:
    """Faults that no member describes: the scan says where."""
    law = pairs()
    wrong = law.copy()
    for cell, factor in faulty.items():
        wrong[cell] *= factor
    one = judge(drawn(law, wrong, 200_000), 1, ALARM)
    assert one.exact is not None
    assert one.exact.finding.rejects
    assert words in one.complaint
    assert "expected; p = " in one.complaint


def test_a_context_that_cannot_be_is_noticed() -> None:
    """One draw after a token that has probability 0; chi-square alone would not alarm."""
    law = pairs()
    table = drawn(law, law)
    counts = table.counts.copy()
    counts[0, 0] -= 1
    counts[-1, 2] += 1
    one = judge(replace(table, counts=counts), 1, ALARM)
    assert not one.fit.rejects
    assert "observed" in one.complaint
    assert json.dumps(one.described(0), allow_nan=False)


def test_stage_two_is_for_chi_square_alone() -> None:
    """The exact tests have spent their alarm probability; chi-square reads the deeper level."""
    law = pairs()
    one = judge(drawn(law, law), 2, ALARM)
    assert one.exact is None
    assert one.complaint == ""
    assert one.fit.level == 1e-6
    assert "chi-square" in one.effect


def test_an_ignored_temperature_and_rounded_logits_are_members() -> None:
    """They are in the bank when the table says what T and the logits are."""
    law = pairs(1 + 1)[:1]
    law = law / law.sum()
    plain = judge(drawn(law, law), 1, ALARM).exact
    full = judge(replace(drawn(law, law), logits=np.log(law), temperature=0.7), 1, ALARM).exact
    assert plain is not None
    assert full is not None
    assert set(full.values) - set(plain.values) == {"T ignored", "bf16 logits", "fp16 logits"}
