"""The bank of likelihood ratios: proper laws, exact at any depth, as powerful as planned."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.judge import bank
from oracle.judge.bank import Member
from oracle.judge.significance import Counts, Floats

ALARM = 5e-10  # half of a case at 1e-9


def wide(vocabulary: int = 128, seed: int = 0) -> Floats:
    """The softmax of 1.5 times normal logits."""
    weights = np.exp(1.5 * np.random.default_rng(seed).normal(size=vocabulary))
    return np.asarray(weights / weights.sum())


def everything(law: Floats, counts: Counts, known: Sequence[Member]) -> Floats:
    """Log e-values of the members and of the never-drawn mixture. law, counts [V]."""
    with np.errstate(divide="ignore"):
        lost = bank.never_drawn(np.log(law)[None], counts[None])
    return np.append(bank.log_values(counts[None], known), lost)


@given(
    st.lists(st.lists(st.sampled_from([0, 0, 1, 7, 900]), min_size=9, max_size=9), min_size=1),
    st.sampled_from([0.7, 1.0]),
)
def test_every_member_is_a_law_in_every_context(rows: list[list[int]], heat: float) -> None:
    """Whatever is impossible, a lone id and a whole context included: sums of 1, finite ratios."""
    weights = np.array(rows, dtype=np.float64)
    total = weights.sum(axis=1, keepdims=True)
    law = weights / np.where(total > 0, total, 1)
    with np.errstate(divide="ignore"):
        log_law = np.log(law)
    for one in bank.members(log_law, log_law * 3, heat):
        assert np.isfinite(one.log_ratio).all(), one.name
        assert (one.log_ratio[law == 0] == 0).all(), one.name
        sums = (law * np.exp(one.log_ratio)).sum(axis=1)
        assert np.allclose(sums, law.sum(axis=1), atol=1e-12), one.name


def test_members_are_the_faults_that_they_are_called() -> None:
    """Each against its definition, written out for one law."""
    law = wide(1024, 3)
    logits = np.log(law) + 2.5
    known = {m.name: law * np.exp(m.log_ratio[0]) for m in members_of(law, logits, 0.8)}
    assert len(known) == 25
    hot = law ** (1 / 1.03)
    assert np.allclose(known["T +3 %"], hot / hot.sum())
    assert np.allclose(known["T ignored"], law**0.8 / (law**0.8).sum())
    assert known["most likely token -0.1 %"].max() == pytest.approx(law.max() - 1e-3)
    up = 0.999 * np.roll(law, 1) + 1e-3 * law
    assert np.allclose(known["ids shifted by +1"], up / up.sum())
    tail = known["last 16 ids lost"][-16:].sum() / known["last 16 ids lost"][:-16].sum()
    assert tail == pytest.approx(1e-3 * law[-16:].sum() / law[:-16].sum())
    assert {"last 1 ids lost", "last 2 ids lost"} <= set(known)
    assert np.allclose(known["1 % uniform"], 0.99 * law + 0.01 / 1024)
    half = np.exp(logits.astype(np.float16).astype(np.float64))
    assert np.allclose(known["fp16 logits"], half / half.sum(), rtol=1e-9)


def members_of(law: Floats, logits: Floats | None = None, heat: float = 1.0) -> tuple[Member, ...]:
    """The bank for one context. law, logits [V]."""
    return bank.members(np.log(law)[None], None if logits is None else logits[None], heat)


def test_bf16_keeps_eight_significant_bits() -> None:
    """Ties to even, whatever the exponent and the sign."""
    values = np.array([[1 + 1 / 256, 1 + 3 / 256, -300.7, 1e-3, -np.inf]])
    rounded = [1.0, 1 + 4 / 256, -300.0, 131 / 131072]
    expected = np.exp(np.array(rounded)) / np.exp(np.array(rounded)).sum()
    assert np.allclose(np.exp(bank.coarse(values, 8))[0], [*expected, 0.0], rtol=1e-12)


def test_the_expected_value_under_the_law_is_one() -> None:
    """All outcomes of four draws over three ids, of each member and of the mixture."""
    law, draws = np.array([0.6, 0.3, 0.1]), 4
    known = members_of(law, np.log(law), 1.3)
    expected = np.zeros(len(known) + 1)
    for outcome in itertools.product(range(3), repeat=draws):
        counts = np.bincount(outcome, minlength=3)
        expected += np.prod(law[list(outcome)]) * np.exp(everything(law, counts, known))
    assert np.allclose(expected, 1.0, atol=1e-12)


def test_values_of_batches_add_up() -> None:
    """Integer counts in parts, in any order, are the counts as a whole."""
    law = wide()
    known = members_of(law)
    parts = [np.random.default_rng(n).multinomial(999, law)[None] for n in range(4)]
    whole = bank.log_values(np.sum(parts, axis=0), known)
    assert np.allclose(whole, sum(bank.log_values(part, known) for part in parts[::-1]))


def null_alarms(sign: float) -> int:
    """How many of 600 correct samplers reach 1 / .01; sign -1 turns the likelihood ratios round."""
    alarms = 0
    for seed in range(600):
        draw = np.random.default_rng(seed)
        law = wide(int(draw.integers(2, 201)), seed + 1000)
        counts = draw.multinomial(4096, law)
        alarms += bank.rejects(sign * everything(law, counts, members_of(law)), 0.01)
    return alarms


def test_a_correct_sampler_is_rarely_rejected() -> None:
    """600 random laws at .01: 6 on average at most, 15 has probability 1e-3."""
    assert null_alarms(1.0) <= 14


def test_ratios_the_wrong_way_round_would_be_noticed() -> None:
    """The test above fails for log(p / q) in place of log(q / p)."""
    assert null_alarms(-1.0) > 14


def test_a_billionth_is_a_billionth() -> None:
    """Importance sampling from the bank itself: the alarm probability at 1e-9, from 2,000 draws."""
    law, draws, alarm = wide(), 200_000, 1e-9
    known = members_of(law)
    source = np.random.default_rng(7)
    total, reached = 0.0, 0
    for _ in range(2000):
        which = int(source.integers(len(known) + 1))
        if which < len(known):
            faulty = law * np.exp(known[which].log_ratio[0])
        else:
            faulty = np.where(np.arange(len(law)) == source.integers(len(law)), 0.0, law)
        counts = source.multinomial(draws, faulty / faulty.sum())
        values = everything(law, counts, known)
        if bank.rejects(values, alarm):
            reached += 1
            total += math.exp(-bank.mean_log(values))
    assert reached > 500
    assert 0 < total / 2000 <= alarm


@pytest.mark.parametrize(
    "name", ["T +1 %", "T -3 %", "most likely token +1 %", "1 % uniform", "last 1 ids lost"]
)
def test_the_planned_draws_find_the_fault_as_often_as_stated(name: str) -> None:
    """95 % is asked for; at least 90 % of 200 runs must reject."""
    law = wide()
    known = members_of(law)
    fault = next(one for one in known if one.name == name)
    draws = bank.draws_needed(fault, law[None], len(known) + 1, ALARM, 0.05)
    faulty = law * np.exp(fault.log_ratio[0])
    found = samples_found(law, faulty / faulty.sum(), draws, known)
    assert found >= 180
    assert samples_found(law, faulty / faulty.sum(), draws // 4, known) <= 40


def samples_found(law: Floats, faulty: Floats, draws: int, known: Sequence[Member]) -> int:
    """How many of 200 samples of a faulty law the bank rejects."""
    source = np.random.default_rng(11)
    samples = source.multinomial(draws, faulty, size=200)
    return sum(bank.rejects(everything(law, counts, known), ALARM) for counts in samples)


def test_the_smallest_tilt_is_found_and_half_of_it_is_not() -> None:
    """At the stated tilt of either sign at least 90 % of 200 runs reject, at half of it few."""
    law, draws = wide(), 50_000
    known = members_of(law)
    tilt = bank.smallest_tilt(known, law[None], draws, len(known) + 1, ALARM)
    assert 0.02 < tilt < 0.06
    for sign in (1, -1):
        for size, low, high in ((tilt, 180, 200), (tilt / 2, 0, 40)):
            faulty = law ** (1 / (1 + sign * size))
            assert low <= samples_found(law, faulty / faulty.sum(), draws, known) <= high


def test_more_draws_see_less() -> None:
    """The smallest tilt falls like one over the root of n, and uniform logits show none."""
    law = wide()
    known = members_of(law)
    few, many = (bank.smallest_tilt(known, law[None], n, 20, ALARM) for n in (40_000, 4_000_000))
    assert few / many == pytest.approx(10, rel=0.25)
    flat = np.full(16, 1 / 16)
    assert bank.smallest_tilt(members_of(flat), flat[None], 10**6, 20, ALARM) == math.inf


def test_a_member_that_is_the_law_has_no_plan() -> None:
    """Uniform logits have no temperature."""
    flat = np.full(16, 1 / 16)
    with pytest.raises(ValueError, match="'T \\+0\\.3 %' is the law itself"):
        bank.draws_needed(members_of(flat)[2], flat[None], 20, ALARM, 0.05)


def test_contexts_are_judged_by_their_own_law() -> None:
    """Two contexts in equal shares: a token law that is right on average is not right in each."""
    law = np.stack([wide(16, 1), wide(16, 2)])
    known = bank.members(np.log(law))
    source = np.random.default_rng(3)
    right = np.stack([source.multinomial(20_000, row) for row in law])
    tilted = [law[0] ** (1 / 1.1), law[1] ** (1 / 1.1)]
    wrong = np.stack([source.multinomial(20_000, row / row.sum()) for row in tilted])
    assert not bank.rejects(bank.log_values(right, known), 0.01)
    values = bank.log_values(wrong, known)
    assert bank.rejects(values, ALARM)
    assert known[int(values.argmax())].name == "T +10 %"


def test_an_id_that_never_comes_is_found_at_the_planned_draws() -> None:
    """The median id of eight, removed: (1 - p)^-n / 8 reaches the bound, and not long before."""
    law = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02])
    faulty = np.where(np.arange(8) == 4, 0.0, law)
    needed = math.ceil(math.log(20 * 8 / ALARM) / -math.log1p(-0.10))
    for draws, seen in ((needed + 1, True), (needed // 2, False)):
        counts = np.random.default_rng(2).multinomial(draws, faulty / faulty.sum())
        values = np.append(np.full(19, -np.inf), bank.never_drawn(np.log(law)[None], counts[None]))
        assert bank.rejects(values, ALARM) == seen
