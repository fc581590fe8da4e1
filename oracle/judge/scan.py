"""Exact binomials on dyadic intervals: a test of counts that knows no fault in advance.

The cells are put in two orders, by id and by falling probability, and each order is cut into 2, 4,
8, ... intervals down to single cells. The count of an interval is binomial, exactly. Tiles, shards,
tails and single ids are intervals of one order or the other.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from .significance import MISS, Counts, Floats

ORDERS = ("id", "falling probability")
# Only the most deviant intervals of a level are evaluated: that can miss, it cannot alarm.
EVALUATED = 32
# What is left of a lost interval, as in the bank.
REMAINDER = 1e-3
# JSON holds no log of zero.
LOG_LEAST = math.log(1e-300)


@dataclass(frozen=True)
class Finding:
    """The most striking interval of a scan.

    rejects   whether it lies beyond the alarm probability that was asked for
    order     one of ORDERS
    first     first position of the interval in that order, counted from 0
    last      last position, included
    cells     the cells at these positions, at most EVALUATED of them
    observed  draws that fell into it
    expected  draws that should have
    log_p     log of its two-sided binomial p-value
    adjusted  that p-value times everything else that was looked at; below 1e-300 it is 1e-300
    """

    rejects: bool
    order: str
    first: int
    last: int
    cells: tuple[int, ...]
    observed: int
    expected: float
    log_p: float
    adjusted: float


def cuts(cells: int) -> list[Counts]:
    """Boundaries of the intervals of each level, from halves down to single cells.

    Level j has 2^j intervals; those that hold no cell are left out.
    """
    levels = max(1, math.ceil(math.log2(cells)))
    return [
        np.unique(cells * np.arange(2**j + 1, dtype=np.int64) // 2**j) for j in range(1, levels + 1)
    ]


def log_tails(observed: Counts, draws: int, probability: Floats) -> Floats:
    """Log of 2 min(P(X <= observed), P(X >= observed)), at most 0, X binomial: [n]."""
    below = stats.binom.logcdf(observed, draws, probability)
    above = stats.binom.logsf(observed - 1, draws, probability)
    both = np.minimum(math.log(2) + np.minimum(below, above), 0.0)
    # A tail too thin for a double: Chernoff's bound on it is larger than the tail, never smaller.
    return np.where(np.isneginf(both), bound(observed, draws, probability), both)


def bound(observed: Counts, draws: int, probability: Floats) -> Floats:
    """Chernoff's upper bound on `log_tails`; -inf where the observed count is impossible: [n]."""
    share = observed / draws
    exponent = special.rel_entr(share, probability) + special.rel_entr(1 - share, 1 - probability)
    return np.asarray(np.minimum(math.log(2) - draws * exponent, 0.0))


@dataclass(frozen=True)
class Interval:
    """One interval, and how it looks: log p alone and after all else that was looked at."""

    first: int
    last: int
    observed: int
    expected: float
    log_p: float
    log_adjusted: float


def strangest(law: Floats, counts: Counts, edges: Counts, levels: int) -> Interval:
    """The most striking interval of one level. law, counts [cells] in order; levels in all."""
    draws = int(counts.sum())
    observed = np.add.reduceat(counts, edges[:-1])
    probability = np.minimum(np.add.reduceat(law, edges[:-1]), 1.0)
    chosen = np.arange(len(observed))
    if len(chosen) > EVALUATED:
        chosen = np.argpartition(bound(observed, draws, probability), EVALUATED)[:EVALUATED]
    logs = log_tails(observed[chosen], draws, probability[chosen])
    at, log_p = int(chosen[logs.argmin()]), float(logs.min())
    looks = len(observed) * levels * len(ORDERS)
    first, last = int(edges[at]), int(edges[at + 1]) - 1
    expected = float(draws * probability[at])
    return Interval(first, last, int(observed[at]), expected, log_p, log_p + math.log(looks))


def scan(law: Floats, counts: Counts, alarm: float) -> Finding:
    """Test counts against a law, and return the most striking interval.

    law, counts of any one shape, read as a row of cells; the law adds up to 1. Under it, `rejects`
    comes with probability `alarm` at most.
    """
    law, counts = law.ravel(), counts.ravel()
    if len(law) < 2 or counts.sum() == 0:
        raise ValueError(f"{counts.sum()} draws over {len(law)} cells, required: 1 over 2 or more")
    law, levels = law / law.sum(), cuts(len(law))
    orders = (np.arange(len(law)), np.argsort(-law, kind="stable"))
    found = [
        (strangest(law[order], counts[order], edges, len(levels)), which)
        for which, order in enumerate(orders)
        for edges in levels
    ]
    one, which = min(found, key=lambda each: each[0].log_adjusted)
    adjusted = math.exp(max(min(one.log_adjusted, 0.0), LOG_LEAST))
    return Finding(
        rejects=one.log_adjusted <= math.log(alarm),
        order=ORDERS[which],
        first=one.first,
        last=one.last,
        cells=tuple(orders[which][one.first : one.last + 1][:EVALUATED].tolist()),
        observed=one.observed,
        expected=one.expected,
        log_p=one.log_p,
        adjusted=adjusted,
    )


def smallest_mass(law: Floats, n: int, alarm: float, miss: float = MISS) -> float:
    """Mass of the smallest interval whose loss `scan` finds with probability 1 - miss in n draws.

    Lost means drawn REMAINDER times as often as it should be. The interval is a single cell, the
    dearest to look at; a larger one of this mass is found as well. At most 1, infinite if not seen.
    """
    looks = law.size * len(cuts(law.size)) * len(ORDERS)
    goal = math.log(alarm / (2 * looks))

    def lead(mass: float) -> float:
        most = stats.binom.isf(miss, n, REMAINDER * mass)
        return float(stats.binom.logcdf(most, n, mass)) - goal

    if lead(0.5) > 0:
        return math.inf
    return float(optimize.brentq(lead, 1e-15, 0.5, xtol=1e-14, rtol=1e-4))
