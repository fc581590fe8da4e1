"""E-values in the order of time: the mean over known faults, where it crosses, what it can see."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize, special, stats

from .significance import MISS, Floats


@dataclass(frozen=True)
class Course:
    """How a bet went: largest mean log e-value and where, first crossing or -1, best member."""

    highest: float
    at: int
    crossed: int
    strongest: str


def course(ratios: Floats, names: tuple[str, ...], alarm: float) -> Course:
    """Follow the mean e-value after every observation; it may be looked at after each.

    ratios [n, members]: log ratios in the order of time, each with mean 1 under the truth given all
    that came before. The mean over members reaches 1 / alarm with probability `alarm` at most.
    """
    sums = np.cumsum(ratios, axis=0)
    mean = special.logsumexp(sums, axis=1) - math.log(ratios.shape[1])
    over = np.flatnonzero(mean >= -math.log(alarm))
    at = int(np.argmax(mean))
    best = names[int(np.argmax(sums[at]))]
    return Course(float(mean[at]), at, int(over[0]) if len(over) else -1, best)


def smallest_tilt(
    variance: float, tilts: tuple[float, ...], members: int, alarm: float, miss: float = MISS
) -> float:
    """The smallest relative error of T that the bet finds with probability 1 - miss, or infinity.

    variance  the sum of Var log p over the tokens. With x = e / (1 + e) for the error and y so for
    a member, the log ratio of the member has mean variance (x y - y^2 / 2) and spread y
    sqrt(variance), to the second order; the best member must pass log(members / alarm). Too high a
    temperature is the harder sign.
    """
    goal, quantile = math.log(members / alarm), float(stats.norm.isf(miss))

    def lead(error: float) -> float:
        moved = error / (1 + error)
        steps = [tilt / (1 + tilt) for tilt in tilts]
        return max(
            variance * (step * moved - step**2 / 2) - quantile * step * math.sqrt(variance) - goal
            for step in steps
        )

    return math.inf if lead(1.0) < 0 else float(optimize.brentq(lead, 0.0, 1.0, rtol=1e-3))
