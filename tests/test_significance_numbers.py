"""The statistics number by number: pools, fields of a fit, and each stated effect by definition."""

import math

import numpy as np
import pytest
from scipy import stats

from oracle.judge import significance
from oracle.judge.significance import Fit

SKEWED = np.array([0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02])


def test_thin_cells_are_merged_in_ascending_order() -> None:
    """20, 25 and 30 of 1,000 draws: two make a pool of 50, 50 alone is one, as it is."""
    law = np.array([0.50, 0.03, 0.275, 0.02, 0.10, 0.05, 0.025])
    pools = significance.pool(law, 1000)
    # 20 + 25 is too few, so 30 is taken as well.
    assert pools.member.tolist() == [0, 4, 1, 4, 2, 3, 4]
    assert pools.probability == pytest.approx([0.50, 0.275, 0.10, 0.05, 0.075], rel=1e-14)
    assert (pools.draws, pools.degrees) == (1000, 4)
    exact = significance.pool(np.array([0.5, 0.375, 0.0625, 0.03125, 0.03125]), 800)
    assert exact.member.tolist() == [0, 1, 2, 3, 3]


def test_what_is_left_over_joins_the_smallest_pool() -> None:
    """45 draws are no pool of their own; a law that does not add up to 1 is made to."""
    law = np.array([0.50, 0.02, 0.30, 0.025, 0.155])
    pools = significance.pool(law * 2, 500)
    assert pools.member.tolist() == [0, 2, 1, 2, 2]
    assert pools.probability == pytest.approx([0.5, 0.3, 0.2], rel=1e-14)
    equal = significance.pool(np.array([0.25, 0.04, 0.355, 0.355]), 1000)
    assert equal.member.tolist() == [0, 0, 1, 2]
    two = significance.pool(np.array([0.5, 0.5]), 100)
    assert two.degrees == 1
    with pytest.raises(ValueError, match="99 draws leave 1 pools of 50, required: 2"):
        significance.pool(np.array([0.5, 0.5]), 99)
    with pytest.raises(ValueError, match="10 draws leave 0 pools of 50, required: 2"):
        significance.pool(np.array([0.5, 0.5]), 10)


def test_a_fit_holds_both_statistics_and_the_tail_of_one() -> None:
    """G = 2 sum o log(o / e), Pearson = sum (o - e)^2 / e, over pools."""
    pools = significance.pool(SKEWED, 2000)
    counts = np.array([610, 380, 310, 240, 195, 145, 75, 45])
    found = significance.fit(pools, counts, 1e-6)
    observed = np.bincount(pools.member, weights=counts)
    expected = np.bincount(pools.member, weights=SKEWED) * 2000
    g = 2 * float((observed * np.log(observed / expected)).sum())
    pearson = float(((observed - expected) ** 2 / expected).sum())
    assert (found.statistic, found.level, found.degrees) == ("G", 1e-6, pools.degrees)
    assert (found.value, found.other) == pytest.approx((g, pearson), rel=1e-9)
    assert found.p_value == pytest.approx(float(stats.chi2.sf(g, pools.degrees)), rel=1e-9)
    assert found.least_expected == pytest.approx(expected.min(), rel=1e-12)
    for cells, name in ((256, "G"), (257, "Pearson")):
        flat = significance.pool(np.full(cells, 1 / cells), 100 * cells)
        one = significance.fit(flat, np.full(cells, 100), 1e-3)
        assert (one.statistic, one.p_value) == (name, 1.0)
        apart = np.full(cells, 100)
        apart[:2] = 110, 90
        two = significance.fit(flat, apart, 1e-3)
        g = 2 * (110 * math.log(1.1) + 90 * math.log(0.9))
        expected_pair = (g, 2.0) if name == "G" else (2.0, g)
        assert (two.value, two.other) == pytest.approx(expected_pair, rel=1e-9)
    with pytest.raises(ValueError, match="1999 draws were counted, required: the 2000 planned"):
        significance.fit(pools, counts - np.eye(8, dtype=np.int64)[0], 1e-3)
    with pytest.raises(ValueError, match="level is 9e-07, required: at least 1e-06 for"):
        significance.fit(pools, counts, 9e-7)


def test_a_fit_at_its_level_does_not_reject() -> None:
    """The p-value lies below the level, or nothing is said."""
    at = Fit("G", 1.0, 1, 1e-3, 1e-3, 1.0, 50.0)
    assert not at.rejects
    assert Fit("G", 1.0, 1, 0.99e-3, 1e-3, 1.0, 50.0).rejects


@pytest.mark.parametrize(("degrees", "level", "miss"), [(1, 1e-3, 0.3), (31, 1e-6, 0.01)])
def test_the_noncentrality_misses_as_asked(degrees: int, level: float, miss: float) -> None:
    """P(noncentral chi-square below the bound of the level) is the miss."""
    found = significance.noncentrality(degrees, level, miss)
    bound = stats.chi2.isf(level, degrees)
    assert float(stats.ncx2.cdf(bound, degrees, found)) == pytest.approx(miss, rel=1e-6)


def test_the_distance_of_a_law_is_taken_over_pools() -> None:
    """Sum of (Q - P)^2 / P; the alternative need not add up to 1; draws follow."""
    pools = significance.pool(np.array([0.5, 0.25, 0.15, 0.1]), 600)
    other = np.array([0.4, 0.3, 0.2, 0.1])
    expected = 0.01 / 0.5 + 0.0025 / 0.25 + 0.0025 / 0.15
    assert significance.distance(pools, 3 * other) == pytest.approx(expected, rel=1e-12)
    needed = significance.noncentrality(3, 1e-3, 0.025) / expected
    assert significance.draws_needed(pools, other, 1e-3) == math.ceil(needed)
    longer = significance.noncentrality(3, 1e-3, 0.001) / expected
    assert significance.draws_needed(pools, other, 1e-3, 0.001) == math.ceil(longer)


def test_the_smallest_tilt_lies_at_the_noncentrality() -> None:
    """Two contexts with weights of their own; a law without temperature has none."""
    draws, weights = 50_000, np.array([0.7, 0.3])
    laws = np.stack([SKEWED, SKEWED[::-1] ** 2 / (SKEWED**2).sum()])
    pools = significance.pool((weights[:, None] * laws).ravel(), draws)
    for keywords, miss in (({}, 0.025), ({"miss": 0.2}, 0.2)):
        tilt = significance.smallest_tilt(pools, np.log(laws), 1e-3, weights=weights, **keywords)
        hot = laws ** (1 / (1 + tilt))
        hot = weights[:, None] * hot / hot.sum(axis=1, keepdims=True)
        needed = significance.noncentrality(pools.degrees, 1e-3, miss)
        assert significance.distance(pools, hot.ravel()) * draws == pytest.approx(needed, rel=1e-6)
    flat = np.full(8, 1 / 8)
    assert significance.smallest_tilt(significance.pool(flat, 9000), np.log(flat)[None], 1e-3) == (
        math.inf
    )
    # A law that is nearly flat has an error that is found, above one and below ten.
    nearly = np.array([0.125] * 6 + [0.124, 0.126])
    wide = significance.pool(nearly, 4_200_000)
    assert 1 < significance.smallest_tilt(wide, np.log(nearly)[None], 1e-3) < 10
    # Beyond ten there is no use in a number.
    beyond = nearly ** (1 / 11.5)
    draws = significance.draws_needed(wide, beyond / beyond.sum(), 1e-3)
    just = significance.pool(nearly, draws)
    assert significance.smallest_tilt(just, np.log(nearly)[None], 1e-3) == math.inf


def test_rates_without_hits() -> None:
    """exp(-rate n) is the chance to see none; a product of chances is floored at e^-690."""
    assert significance.hidden_rate(500) == pytest.approx(-math.log(0.01) / 500, rel=1e-14)
    assert significance.hidden_rate(500, 0.2) == pytest.approx(-math.log(0.2) / 500, rel=1e-14)
    assert significance.all_equal(np.array([0.5, 0.25, 0.1])) == pytest.approx(0.0125, rel=1e-12)
    assert math.isclose(significance.all_equal(np.full(2000, 0.5)), math.exp(-690))


def test_the_share_of_pairs_that_is_seen() -> None:
    """A share s is equal with rate + s (1 - rate); too few pairs see no share."""
    pairs, rate, alarm = 300, 0.1, 1e-6
    limit = significance.most_hits(pairs, rate, alarm)
    for keywords, miss in (({}, 0.05), ({"miss": 0.3}, 0.3)):
        share = significance.pairs_seen(pairs, rate, alarm, **keywords)
        missed = stats.binom.cdf(limit, pairs, rate + share * (1 - rate))
        assert float(missed) == pytest.approx(miss, rel=1e-6)
    assert significance.pairs_seen(5, rate, alarm) == 1.0
    # The first number of pairs at which all of them equal would be more than the limit.
    first = next(n for n in range(1, 50) if significance.most_hits(n, rate, alarm) < n)
    assert significance.pairs_seen(first - 1, rate, alarm) == 1.0
    assert significance.pairs_seen(first, rate, alarm) < 1.0


def test_equal_cells_hold_their_own_values() -> None:
    """Each cell counts for itself; a shift of a share moves share^2 (n - 1) of distance."""
    counts = np.array([60, 55, 70, 65])
    found = significance.equal_counts(counts, 1e-3)
    g = 2 * float((counts * np.log(counts / 62.5)).sum())
    assert (found.statistic, found.degrees, found.level) == ("G", 3, 1e-3)
    assert found.value == pytest.approx(g, rel=1e-9)
    # Thin bins are pooled, empty ones are counted.
    thin = significance.equal_counts(np.array([60, 60, 0, 0]), 1e-3)
    assert (thin.degrees, thin.least_expected) == (1, 60.0)
    assert significance.equal_counts(np.array([100, 100, 0, 0]), 1e-3).rejects
    for keywords, miss in (({}, 0.025), ({"miss": 0.2}, 0.2)):
        share = significance.smallest_shift(10_000, 16, 1e-3, **keywords)
        needed = significance.noncentrality(15, 1e-3, miss)
        assert share**2 * 15 * 10_000 == pytest.approx(needed, rel=1e-9)
