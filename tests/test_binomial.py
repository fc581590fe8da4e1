"""Exact binomials: tails against direct sums, effects against their definitions."""

import math

import numpy as np
import pytest

from oracle.judge import binomial
from oracle.judge.significance import pairs_seen


def law(draws: int, rate: float) -> np.ndarray:
    """P(X = count), X binomial, for every count."""
    return np.array(
        [math.comb(draws, k) * rate**k * (1 - rate) ** (draws - k) for k in range(draws + 1)]
    )


def at_most(count: int, draws: int, rate: float) -> float:
    """P(X <= count)."""
    return math.fsum(law(draws, rate)[: count + 1])


def at_least(count: int, draws: int, rate: float) -> float:
    """P(X >= count)."""
    return math.fsum(law(draws, rate)[count:])


def test_tails_are_exact_and_a_log_is_never_infinite() -> None:
    """Both sides include the count itself; what cannot be is 1e-300."""
    hits, draws = np.array([0, 3, 30, 40]), np.array([40, 40, 40, 40])
    rate = np.array([0.25, 0.25, 0.3, 0.25])
    above = [math.log(at_least(int(h), 40, float(r))) for h, r in zip(hits, rate, strict=True)]
    below = [math.log(at_most(int(h), 40, float(r))) for h, r in zip(hits, rate, strict=True)]
    assert binomial.log_above(hits, draws, rate) == pytest.approx(above, rel=1e-9, abs=1e-12)
    both = [min(math.log(2) + min(pair), 0.0) for pair in zip(above, below, strict=True)]
    assert binomial.log_both(hits, draws, rate) == pytest.approx(both, rel=1e-9, abs=1e-12)
    middle = binomial.log_both(np.array([10]), np.array([40]), np.array([0.25]))
    assert middle.tolist() == [0.0]
    least = math.log(1e-300)
    assert float(binomial.log_above(np.array(5), np.array(9), np.array(0.0))) == least
    impossible = binomial.log_both(np.array([5, 3]), np.array([9, 9]), np.array([0.0, 1.0]))
    assert impossible == pytest.approx([least + math.log(2)] * 2, rel=1e-15)


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
def test_the_rate_that_is_seen_is_seen_on_both_sides(rate: float) -> None:
    """The harder side misses with the stated probability, the other less often."""
    draws, alarm = 300, 1e-3
    below = np.cumsum(law(draws, rate))
    low = int(np.flatnonzero(below <= alarm / 2).max())
    high = 1 + int(np.flatnonzero(1 - below <= alarm / 2).min())
    for keywords, miss in (({}, 0.05), ({"miss": 0.2}, 0.2)):
        change = binomial.rate_seen(draws, rate, alarm, **keywords)
        sides = at_most(low, draws, max(rate - change, 0)), at_least(high, draws, rate + change)
        assert min(sides) == pytest.approx(1 - miss, abs=1e-9)
        assert max(sides) > 1 - miss


@pytest.mark.parametrize("rate", [0.01, 0.99])
def test_a_rate_near_an_end_has_no_stated_change(rate: float) -> None:
    """With 100 draws not even a rate of nought, or of one, would differ enough."""
    assert binomial.rate_seen(100, rate, 1e-3) == math.inf
    assert binomial.rate_seen(10_000, rate, 1e-3) < 0.01


def test_the_pairs_that_are_needed_are_the_first_that_do() -> None:
    """On the grid of one percent, for a given share; a share is no bound of [0, 1]."""
    rate, alarm = 0.1, 1e-4
    grid = [1]
    while grid[-1] < 300:
        grid.append(grid[-1] + max(1, grid[-1] // 100))
    for share, keywords, miss in ((0.3, {}, 0.05), (0.5, {"miss": 0.3}, 0.3)):
        needed = binomial.pairs_needed(share, rate, alarm, **keywords)
        assert needed == next(n for n in grid if pairs_seen(n, rate, alarm, miss) <= share)
    # From 200 pairs on a step is two of them.
    assert (200 in grid, 201 in grid, 202 in grid) == (True, False, True)
    seen = {n: pairs_seen(n, 0.02, alarm) for n in grid}
    share = 0.99 * min(value for n, value in seen.items() if n <= 200)
    needed = next(n for n, value in seen.items() if value <= share)
    assert binomial.pairs_needed(share, 0.02, alarm) == needed
    assert binomial.pairs_needed(0.96, 1e-5, 1e-3) == 1
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=f"share is {share}, required: between 0 and 1, both"):
            binomial.pairs_needed(share, rate, alarm)
