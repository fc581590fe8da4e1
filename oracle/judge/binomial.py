"""Exact binomial tests of many counts at once, and the smallest fault each would have seen."""

import math

import numpy as np
from scipy import optimize, stats

from .significance import Counts, Floats, most_hits

MISS = 0.05
# A count whose tail is thinner than a double can hold; JSON has no log of zero.
LOG_LEAST = math.log(1e-300)


def log_above(hits: Counts, draws: Counts, rate: Floats) -> Floats:
    """Log of P(X >= hits), X binomial: arrays of one shape, or numbers."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.maximum(stats.binom.logsf(hits - 1, draws, rate), LOG_LEAST))


def log_both(hits: Counts, draws: Counts, rate: Floats) -> Floats:
    """Log of 2 min(P(X <= hits), P(X >= hits)), at most 0: arrays of one shape, or numbers."""
    with np.errstate(divide="ignore"):
        below = np.maximum(stats.binom.logcdf(hits, draws, rate), LOG_LEAST)
    least = np.minimum(below, log_above(hits, draws, rate))
    return np.asarray(np.minimum(math.log(2) + least, 0.0))


def rate_seen(draws: int, rate: float, alarm: float, miss: float = MISS) -> float:
    """Smallest change of a rate, to either side, that two sides of `alarm` / 2 each find.

    Infinite where a change to one side would not be found, however large it is.
    """
    low = int(stats.binom.ppf(alarm / 2, draws, rate)) - 1
    high = int(stats.binom.isf(alarm / 2, draws, rate)) + 1

    def falls_short(change: float) -> float:
        return float(stats.binom.cdf(low, draws, max(rate - change, 0.0))) - (1 - miss)

    def goes_beyond(change: float) -> float:
        return float(stats.binom.sf(high - 1, draws, min(rate + change, 1.0))) - (1 - miss)

    if falls_short(rate) < 0 or goes_beyond(1 - rate) < 0:
        return math.inf
    down = float(optimize.brentq(falls_short, 0.0, rate))
    return max(down, float(optimize.brentq(goes_beyond, 0.0, 1 - rate)))


def pairs_needed(share: float, rate: float, alarm: float, miss: float = MISS) -> int:
    """Pairs from which on the upper tail finds a share of pairs with common noise.

    rate: how often independent pairs are equal. Searched on a grid of steps of one percent.
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"share is {share}, required: between 0 and 1, both excluded")
    pairs, common = 1, rate + share * (1 - rate)
    while stats.binom.cdf(most_hits(pairs, rate, alarm), pairs, common) > miss:
        pairs += max(1, pairs // 100)
    return pairs
