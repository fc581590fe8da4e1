"""Tests as triples: decide, smallest detectable effect, draws needed. Knows no sampler.

Pearson and G statistics come from scipy.stats.power_divergence, tails from scipy.stats.chi2. They
are used inside their calibrated range only: every pooled cell expects at least CELL_MIN draws, and
no level below LEVEL_MIN is read off an asymptotic tail. Two stages at STAGES then reach 1e-9.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

CELL_MIN = 50.0
LEVEL_MIN = 1e-6
STAGES = (1e-3, 1e-6)
# True over nominal level at CELL_MIN, largest product over both stages that was computed.
INFLATION = 1.5
CASE_ALARM = STAGES[0] * STAGES[1] * INFLATION
# G is the better calibrated statistic for few fat cells, Pearson for many thin ones.
G_DEGREES_MAX = 255
MISS = 0.025


@dataclass(frozen=True)
class Pools:
    """Cells merged before anything was drawn: `member[i]` is the pool of cell i."""

    member: Counts
    probability: Floats
    draws: int

    @property
    def degrees(self) -> int:
        """Degrees of freedom: pools - 1."""
        return len(self.probability) - 1


@dataclass(frozen=True)
class Fit:
    """One goodness-of-fit statistic and the level it was read at."""

    statistic: str
    value: float
    degrees: int
    p_value: float
    level: float
    other: float
    least_expected: float

    @property
    def rejects(self) -> bool:
        """Whether the statistic lies in its rejection region."""
        return self.p_value < self.level


def pool(probability: Floats, draws: int) -> Pools:
    """Merge cells, from the law and n alone, until each pool expects CELL_MIN draws.

    probability [cells], summing to 1; draws n. Cells that expect enough stay alone, the others
    are merged in ascending order. ValueError when fewer than two pools remain.
    """
    expected = probability * draws
    member = np.full(len(probability), -1, dtype=np.int64)
    alone = np.flatnonzero(expected >= CELL_MIN)
    member[alone] = np.arange(len(alone))
    sums = [float(probability[i]) for i in alone]
    thin = np.flatnonzero(expected < CELL_MIN)
    gathered: list[int] = []
    mass = 0.0
    for cell in thin[np.argsort(probability[thin], kind="stable")]:
        gathered.append(int(cell))
        mass += float(probability[cell])
        if mass * draws >= CELL_MIN:
            member[gathered] = len(sums)
            sums.append(mass)
            gathered, mass = [], 0.0
    if gathered and sums:
        smallest = int(np.argmin(sums))
        member[gathered] = smallest
        sums[smallest] += mass
    if len(sums) < 2:
        raise ValueError(f"{draws} draws leave {len(sums)} pools of {CELL_MIN:.0f}, required: 2")
    total = np.array(sums, dtype=np.float64)
    return Pools(member, total / total.sum(), draws)


def fit(pools: Pools, counts: Counts, level: float) -> Fit:
    """Decide whether counts follow the pooled law at `level`, not below LEVEL_MIN.

    counts [cells] over the cells that `pool` was given; they must add up to the planned draws.
    """
    if level < LEVEL_MIN:
        raise ValueError(f"level is {level}, required: at least {LEVEL_MIN} for a chi-square tail")
    drawn = int(counts.sum())
    if drawn != pools.draws:
        raise ValueError(f"{drawn} draws were counted, required: the {pools.draws} planned")
    observed = np.bincount(pools.member, weights=counts, minlength=len(pools.probability))
    expected = pools.probability * pools.draws
    both = {
        "G": float(stats.power_divergence(observed, expected, lambda_="log-likelihood")[0]),
        "Pearson": float(stats.power_divergence(observed, expected, lambda_="pearson")[0]),
    }
    name = "G" if pools.degrees <= G_DEGREES_MAX else "Pearson"
    other = "Pearson" if name == "G" else "G"
    p_value = math.exp(stats.chi2.logsf(both[name], pools.degrees))
    least = float(expected.min())
    return Fit(name, both[name], pools.degrees, p_value, level, both[other], least)


def noncentrality(degrees: int, level: float, miss: float) -> float:
    """The noncentrality at which a chi-square test at `level` misses with probability `miss`."""
    bound = stats.chi2.isf(level, degrees)

    def excess(ncp: float) -> float:
        return float(stats.ncx2.cdf(bound, degrees, ncp)) - miss

    high = 10.0 * (degrees + bound)
    return float(optimize.brentq(excess, 1e-9, high))


def distance(pools: Pools, alternative: Floats) -> float:
    """Pearson distance sum (Q - P)^2 / P between an alternative law and the pooled one."""
    merged = np.bincount(pools.member, weights=alternative, minlength=len(pools.probability))
    merged = merged / merged.sum()
    return float(((merged - pools.probability) ** 2 / pools.probability).sum())


def draws_needed(pools: Pools, alternative: Floats, level: float, miss: float = MISS) -> int:
    """Draws for which `fit` at `level` finds the alternative with probability 1 - miss."""
    return math.ceil(noncentrality(pools.degrees, level, miss) / distance(pools, alternative))


def smallest_tilt(
    pools: Pools, log_law: Floats, level: float, miss: float = MISS, weights: Floats | None = None
) -> float:
    """Smallest relative temperature error that `fit` at `level` finds with probability 1 - miss.

    log_law [contexts, V] the log of the law in each context, weights [contexts] their
    probabilities (one context when omitted); cells are contexts times V in that order.
    """
    if weights is None:
        weights = np.ones(1)
    needed = noncentrality(pools.degrees, level, miss) / pools.draws

    def excess(tilt: float) -> float:
        tilted = log_law / (1.0 + tilt)
        tilted = np.exp(tilted - tilted.max(axis=-1, keepdims=True))
        tilted = tilted / tilted.sum(axis=-1, keepdims=True)
        return distance(pools, (weights[:, None] * tilted).ravel()) - needed

    if excess(10.0) < 0:
        return math.inf
    return float(optimize.brentq(excess, 1e-7, 10.0))


def most_hits(draws: int, rate: float, alarm: float) -> int:
    """The largest count that Binomial(draws, rate) exceeds with probability at most `alarm`."""
    return int(stats.binom.isf(alarm, draws, rate))


def hidden_rate(draws: int, miss: float = 0.01) -> float:
    """The largest rate of a fault that shows no hit in `draws` with probability `miss`."""
    return -math.log(miss) / draws


def all_equal(probabilities: Floats) -> float:
    """Probability that independent draws all repeat a given outcome: the product, floored."""
    return float(math.exp(max(np.log(probabilities).sum(), -690.0)))


def pairs_seen(pairs: int, rate: float, alarm: float, miss: float = 0.05) -> float:
    """Smallest share of pairs with common noise that the upper tail finds, at most 1.

    rate: how often independent pairs are equal; a pair with common noise always is.
    """
    limit = most_hits(pairs, rate, alarm)

    def missed(share: float) -> float:
        return float(stats.binom.cdf(limit, pairs, rate + share * (1 - rate))) - miss

    return 1.0 if missed(1.0) > 0 else float(optimize.brentq(missed, 0.0, 1.0))


def equal_counts(counts: Counts, level: float) -> Fit:
    """Decide whether cells are equally likely, by their counts [cells]."""
    cells = len(counts)
    return fit(pool(np.full(cells, 1.0 / cells), int(counts.sum())), counts, level)


def smallest_shift(draws: int, bins: int, level: float, miss: float = MISS) -> float:
    """Smallest share of draws moved into one of `bins` equal bins that `equal_counts` finds.

    The Pearson distance of such a shift is share^2 (bins - 1).
    """
    return math.sqrt(noncentrality(bins - 1, level, miss) / draws / (bins - 1))
