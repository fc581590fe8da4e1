"""Draws that a stated effect needs, test by test.

Every test is planned by the rule it decides with: the same pools, levels and binomials. An effect
is turned into the law it produces, a law into the draws after which the test finds it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from . import bank, scan, significance
from .significance import STAGES

Floats = npt.NDArray[np.float64]

DRAWS_MAX = 10**12
CONFIRMATION = 1.6


@dataclass(frozen=True)
class Need:
    """What one check needs to find an effect.

    draws: of its first stage, where it has two. why: the rule in a few words.
    """

    check: str
    draws: int
    why: str


def tilted(law: Floats, tilt: float) -> Floats:
    """The law drawn at T (1 + tilt) instead of T; law [V], sums to 1."""
    with np.errstate(divide="ignore"):
        scaled = np.log(law) / (1.0 + tilt)
    power = np.exp(scaled - scaled.max())
    return np.asarray(power / power.sum(), dtype=np.float64)


def raised(law: Floats, mass: float) -> Floats:
    """The law whose most likely id has `mass` more, the others in proportion less."""
    top = int(law.argmax())
    if not 0 < law[top] + mass < 1:
        raise ValueError(f"mass {mass} on top of {law[top]:.3g}, required: a sum between 0 and 1")
    other = law * ((1.0 - law[top] - mass) / (1.0 - law[top]))
    other[top] = law[top] + mass
    return np.asarray(other, dtype=np.float64)


def without(law: Floats, mass: float) -> Floats:
    """The law without its rarest ids that hold at most `mass` together, one at the least."""
    order = np.argsort(law, kind="stable")
    lost = max(int((np.cumsum(law[order]) <= mass).sum()), 1)
    other = law.copy()
    other[order[:lost]] = 0.0
    return np.asarray(other / other.sum(), dtype=np.float64)


def changed(law: Floats, other: Floats) -> float:
    """Share of draws that two laws decide differently in one race on common noise.

    Id i wins both races with probability 1 / sum_j max(p_j / p_i, q_j / q_i). laws [V].
    """
    present = (law > 0) & (other > 0)
    only_law, only_other = law[~present].sum(), other[~present].sum()
    p, q = law[present], other[present]
    order = np.argsort(q / p, kind="stable")
    p, q = p[order], q[order]
    # Behind id i in this order q_j / q_i is the larger of the two ratios.
    below, above = np.cumsum(p), np.cumsum(q[::-1])[::-1] - q
    both = 1.0 / ((below + only_law) / p + (above + only_other) / q)
    return float(max(1.0 - both.sum(), 0.0))


def coupled_draws(law: Floats, other: Floats, miss: float) -> int:
    """Draws in which at least one race is decided otherwise, with probability 1 - miss."""
    rate = changed(law, other)
    return DRAWS_MAX if rate <= 0 else math.ceil(-math.log(miss) / rate)


def smallest(enough: Callable[[int], bool], start: int = 100) -> int:
    """The smallest n with enough(n), to one part in a hundred; DRAWS_MAX when none is."""
    high = start
    while not enough(high):
        high *= 2
        if high > DRAWS_MAX:
            return DRAWS_MAX
    low = high // 2 if high > start else 1
    while high - low > max(high // 100, 1):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def chi_square_draws(law: Floats, other: Floats, miss: float) -> int:
    """Draws of stage one after which both stages reject `other` with probability 1 - miss."""

    def enough(draws: int) -> bool:
        try:
            first = significance.pool(law, draws)
            second = significance.pool(law, math.ceil(draws * CONFIRMATION))
        except ValueError:
            return False
        return all(
            significance.draws_needed(pools, other, level, miss / 2) <= pools.draws
            for pools, level in ((first, STAGES[0]), (second, STAGES[1]))
        )

    return smallest(enough)


def bank_draws(law: Floats, tilt: float, alarm: float, miss: float) -> int:
    """Draws after which the bank finds an error of T of this size, of either sign."""
    with np.errstate(divide="ignore"):
        log_law = np.log(law)[None]
    members = bank.members(log_law)
    size = abs(tilt)

    def enough(draws: int) -> bool:
        seen = bank.smallest_tilt(members, law[None], draws, len(members) + 1, alarm, miss)
        return seen <= size

    return smallest(enough)


def scan_draws(law: Floats, mass: float, alarm: float, miss: float) -> int:
    """Draws after which the scan finds any interval of this mass that is lost."""
    return smallest(lambda draws: scan.smallest_mass(law, draws, alarm, miss) <= mass)


def pair_draws(rate: float, share: float, alarm: float, miss: float) -> int:
    """Pairs in which common noise in `share` of them is seen; independent ones match at `rate`."""
    return smallest(lambda n: significance.pairs_seen(n, rate, alarm, miss) <= share)
