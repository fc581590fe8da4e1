"""Measured power is planned power, and truth passes: statistical decisions in numbers alone."""

from collections.abc import Callable

import numpy as np
import pytest

from oracle.judge import bank, goodness, planning, scan, significance
from oracle.judge.context import PROFILES
from oracle.judge.significance import STAGES

WIDE = np.exp(1.5 * np.random.default_rng(3).standard_normal(128))
WIDE /= WIDE.sum()
LOG = np.log(WIDE)[None]
RUNS, ALARM, MISS = 200, 1e-9, 0.05
# With 95 % power, fewer than 180 of 200 has probability 0.2 %; the bank's plan holds a few percent.
FEWEST = 180


def counts(law: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """One multinomial sample."""
    return np.random.default_rng(seed).multinomial(draws, law).astype(np.int64)


MEMBERS = bank.members(LOG)
PLANNED = (
    "T +1 %",
    "T -3 %",
    "T +10 %",
    "most likely token +1 %",
    "most likely token -1 %",
    "ids shifted by +1",
    "last 1 ids lost",
    "1 % uniform",
)


@pytest.mark.parametrize("name", PLANNED)
def test_the_bank_finds_a_fault_in_the_draws_that_were_planned(name: str) -> None:
    """Planned for 95 % at 1e-9; a quarter of the draws finds it less often."""
    (member,) = [one for one in MEMBERS if one.name == name]
    faulty = WIDE * np.exp(member.log_ratio[0])
    faulty /= faulty.sum()
    draws = bank.draws_needed(member, WIDE[None], len(MEMBERS), ALARM, MISS)

    def found(n: int) -> int:
        return sum(
            bank.rejects(bank.log_values(counts(faulty, n, seed)[None], MEMBERS), ALARM)
            for seed in range(RUNS)
        )

    assert found(draws) >= FEWEST
    assert found(draws // 4) < FEWEST


@pytest.mark.parametrize("tilt", [0.02, -0.05])
def test_coupled_draws_show_a_tilt_as_often_as_planned(tilt: float) -> None:
    """Simulated races on common noise: planned for 95 %, the first wrong winner ends a run."""
    other = planning.tilted(WIDE, tilt)
    draws = planning.coupled_draws(WIDE, other, MISS)
    source = np.random.default_rng(11)
    found = 0
    for _ in range(RUNS):
        noise = source.exponential(size=(draws, len(WIDE)))
        found += bool(((WIDE / noise).argmax(1) != (other / noise).argmax(1)).any())
    assert FEWEST <= found < RUNS


def test_a_lost_cell_is_found_by_the_scan_at_the_mass_it_states() -> None:
    """A cell of the smallest mass that the scan promises at n draws, not known in advance."""
    draws = 20_000
    mass = 1.01 * scan.smallest_mass(WIDE, draws, ALARM, MISS)
    law = WIDE * (1 - mass) / (1 - WIDE[77])
    law[77] = mass
    faulty = law.copy()
    faulty[77] *= 1e-3
    faulty /= faulty.sum()
    found = [scan.scan(law, counts(faulty, draws, seed), ALARM) for seed in range(RUNS)]
    assert sum(finding.rejects for finding in found) >= FEWEST
    assert found[0].cells == (77,)


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_truth_passes_every_decision_at_the_draws_of_a_profile(profile: str) -> None:
    """50 seeds of honest counts: chi-square at its second level, bank and scan at 1e-9 a case."""
    size = PROFILES[profile]
    draws = goodness.draws_for([WIDE[None]], size.tilt, ALARM)
    pools = significance.pool(WIDE, draws)
    for seed in range(50):
        seen = counts(WIDE, draws, 500 + seed)
        assert not significance.fit(pools, seen, STAGES[1]).rejects
        assert not bank.rejects(bank.log_values(seen[None], MEMBERS), ALARM)
        assert not scan.scan(WIDE, seen, ALARM).rejects


Decision = Callable[[np.ndarray], bool]


def test_a_test_the_wrong_way_round_is_noticed() -> None:
    """What rejects small statistics instead of large ones alarms on truth and misses faults."""
    draws = 50_000
    pools = significance.pool(WIDE, draws)
    faulty = planning.tilted(WIDE, 0.1)

    def right(seen: np.ndarray) -> bool:
        return significance.fit(pools, seen, STAGES[0]).rejects

    def reversed_(seen: np.ndarray) -> bool:
        return significance.fit(pools, seen, STAGES[0]).p_value >= STAGES[0]

    def healthy(decide: Decision) -> bool:
        alarms = sum(decide(counts(WIDE, draws, seed)) for seed in range(100))
        found = sum(decide(counts(faulty, draws, seed)) for seed in range(100))
        return alarms <= 5 and found >= 95

    assert healthy(right)
    assert not healthy(reversed_)


def test_the_chi_square_tail_is_that_of_exact_enumeration() -> None:
    """Two pools: the binomial law of X^2 is summed exactly; stated inflation at 1e-3 is kept."""
    from scipy import stats

    draws, law = 2000, np.array([0.05, 0.95])
    pools = significance.pool(law, draws)
    heads = np.arange(draws + 1)
    probability = stats.binom.pmf(heads, draws, law[0])
    rejected = [
        significance.fit(pools, np.array([k, draws - k]), STAGES[0]).rejects
        for k in heads
        if probability[k] > 1e-12
    ]
    exact = float(probability[probability > 1e-12][np.array(rejected)].sum())
    assert 0.5 * STAGES[0] <= exact <= significance.INFLATION * STAGES[0]
