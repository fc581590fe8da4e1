"""The statistics: calibrated where they are used, powerful as stated, refused elsewhere."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from oracle.judge import significance
from oracle.judge.margin import near_tie_rate
from oracle.judge.significance import CASE_ALARM, STAGES

SKEWED = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02])


def counts(law: np.ndarray, draws: int, seed: int) -> np.ndarray:
    """One multinomial sample."""
    return np.random.default_rng(seed).multinomial(draws, law)


@given(st.lists(st.integers(1, 1000), min_size=3, max_size=60), st.integers(2000, 200_000))
def test_every_pool_expects_enough_and_no_mass_is_lost(weights: list[int], draws: int) -> None:
    """Pools depend on the law and n alone, hold at least 50 expected draws, and cover all cells."""
    law = np.array(weights) / sum(weights)
    assume(law.max() < 1 - 100 / draws)
    pools = significance.pool(law, draws)
    assert (pools.probability * draws >= 50 * (1 - 1e-9)).all()
    assert sorted(set(pools.member.tolist())) == list(range(pools.degrees + 1))
    merged = np.bincount(pools.member, weights=law)
    assert np.allclose(merged, pools.probability)


def test_truth_is_rarely_rejected_at_stage_one() -> None:
    """4,000 honest samples: at 1e-3 about 4.4 alarms, more than 14 have probability 1e-4."""
    pools = significance.pool(SKEWED, 20_000)
    alarms = sum(
        significance.fit(pools, counts(SKEWED, 20_000, seed), STAGES[0]).rejects
        for seed in range(4000)
    )
    assert alarms <= 14


def test_a_planted_tilt_is_found_as_often_as_stated() -> None:
    """At the stated smallest tilt stage one rejects 97.5 % of 400 samples; 375 is 3 sigma low."""
    draws = 65_536
    pools = significance.pool(SKEWED, draws)
    log_law = np.log(SKEWED)[None]
    tilt = significance.smallest_tilt(pools, log_law, STAGES[0])
    tilted = np.exp(log_law[0] / (1 + tilt))
    tilted /= tilted.sum()
    found = sum(
        significance.fit(pools, counts(tilted, draws, seed), STAGES[0]).rejects
        for seed in range(400)
    )
    assert found >= 375
    assert significance.draws_needed(pools, tilted, STAGES[0]) == pytest.approx(draws, rel=0.01)


def test_half_the_stated_tilt_is_often_missed() -> None:
    """The stated effect is no boast the other way round: far below it, most samples pass."""
    draws = 65_536
    pools = significance.pool(SKEWED, draws)
    tilt = significance.smallest_tilt(pools, np.log(SKEWED)[None], STAGES[0]) / 4
    tilted = SKEWED ** (1 / (1 + tilt))
    tilted /= tilted.sum()
    found = sum(
        significance.fit(pools, counts(tilted, draws, seed), STAGES[0]).rejects
        for seed in range(100)
    )
    assert found <= 30


def test_levels_below_the_calibrated_range_are_refused() -> None:
    """No chi-square tail is read below 1e-6."""
    pools = significance.pool(SKEWED, 10_000)
    with pytest.raises(ValueError, match="required: at least 1e-06"):
        significance.fit(pools, counts(SKEWED, 10_000, 0), 1e-9)


def test_counts_must_be_the_planned_draws() -> None:
    """A run that drew fewer is not judged as if it had drawn all."""
    pools = significance.pool(SKEWED, 10_000)
    with pytest.raises(ValueError, match="9999 draws were counted, required: the 10000"):
        significance.fit(pools, counts(SKEWED, 9_999, 0), STAGES[0])


def test_too_few_draws_leave_nothing_to_test() -> None:
    """Fewer than two pools is an error, not a pass."""
    with pytest.raises(ValueError, match="required: 2"):
        significance.pool(SKEWED, 60)


def test_small_tables_use_g_and_large_ones_pearson() -> None:
    """The better calibrated statistic decides, the other is kept beside it."""
    few = significance.fit(significance.pool(SKEWED, 10_000), counts(SKEWED, 10_000, 1), 1e-3)
    flat = np.full(400, 1 / 400)
    many = significance.fit(significance.pool(flat, 40_000), counts(flat, 40_000, 1), 1e-3)
    assert (few.statistic, many.statistic) == ("G", "Pearson")
    assert few.other != few.value


def test_noncentrality_gives_the_stated_power() -> None:
    """Known values: 85, 142 and 215 at 1e-9 and b = 1e-3 for 1, 31 and 127 degrees."""
    for degrees, expected in ((1, 85), (31, 142), (127, 215)):
        assert significance.noncentrality(degrees, 1e-9, 1e-3) == pytest.approx(expected, rel=0.01)


def test_the_alarm_of_a_case_is_both_stages_times_the_inflation() -> None:
    """1e-3 times 1e-6 times the largest product of true over nominal levels."""
    assert pytest.approx(1.5e-9) == CASE_ALARM


def test_most_hits_is_the_smallest_bound_that_keeps_the_alarm() -> None:
    """Checked against a direct sum of the binomial law."""
    draws, rate, alarm = 2000, 1e-3, 1e-6
    limit = significance.most_hits(draws, rate, alarm)

    def above(count: int) -> float:
        return 1 - sum(
            math.comb(draws, k) * rate**k * (1 - rate) ** (draws - k) for k in range(count + 1)
        )

    assert above(limit) <= alarm < above(limit - 1)


@pytest.mark.parametrize("window", [0.3, 0.05])
def test_the_near_tie_rate_is_that_of_a_gumbel_race(window: float) -> None:
    """200,000 simulated races; the tolerance is four standard errors."""
    draw = np.random.default_rng(5)
    keys = np.sort(np.log(SKEWED) + draw.gumbel(size=(200_000, 8)), axis=1)
    seen = ((keys[:, -1] - keys[:, -2]) <= window).mean()
    rate = float(near_tie_rate(SKEWED[None], window)[0])
    assert abs(seen - rate) <= 4 * math.sqrt(rate * (1 - rate) / 200_000)
