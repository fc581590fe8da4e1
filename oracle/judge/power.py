"""How surely each statistical check of a report would have found a fault, by the fault's size.

A check states the smallest fault that it finds with a given probability. Asked at many
probabilities, the same formula draws its curve.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import bank, binomial, significance
from .budget import SHARES
from .checks import accept_length, draft_law, independence, lossless, noise_law
from .drawn import cases, first_sums
from .goodness import conditional
from .significance import STAGES, Floats
from .sums import Sum

POWERS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.975, 0.99, 0.999)


@dataclass(frozen=True)
class Curve:
    """One check: sizes of a fault, and the probability with which each is found.

    what: the fault that is measured, with its unit.
    """

    check: str
    combination: str
    what: str
    sizes: Sequence[float]
    powers: Sequence[float]


# The smallest fault that is missed with the given probability.
Size = Callable[[float], float]


def tilts(sums: Sequence[Sum], alarm: float) -> Size:
    """Of T: the weakest table, by the stronger of bank and chi-square."""
    tables = [(one.probabilities, int(one.counts.sum())) for one in sums]

    def of_one(law: Floats, draws: int, miss: float) -> float:
        weights, log_law = conditional(law)
        known = bank.members(log_law)
        exact = bank.smallest_tilt(known, law, draws, len(known) + 1, alarm / 2, miss)
        pools = significance.pool(law.ravel(), draws)
        present = np.where(weights[:, None] > 0, log_law, 0.0)
        blurred = significance.smallest_tilt(pools, present, STAGES[1], miss, weights)
        return min(exact, blurred)

    return lambda miss: max(of_one(law, n, miss) for law, n in tables if law is not None)


def shifts(one: Sum) -> Size:
    """Share of draws that moved into one bin."""
    draws, bins = int(one.counts.sum()), one.counts.size
    return lambda miss: significance.smallest_shift(draws, bins, STAGES[1], miss)


def shared(sums: Sequence[Sum], alarm: float) -> Size:
    """Share of pairs with common noise: the poorest kind of pair."""
    kinds = [
        (int(one.counts[1].min()), float(one.probabilities[0]), alarm / one.counts[0].size)
        for one in sums
        if one.what == "[hits, pairs]" and one.probabilities is not None
    ]
    return lambda miss: max(significance.pairs_seen(*kind, miss) for kind in kinds)


def lengths(sums: Sequence[Sum], alarm: float) -> Size:
    """Relative change of how often a length is reached: the weakest length."""
    laws = [
        (int(sums[0].counts[0].sum()), float(one.probabilities[1].sum()))
        for one in sums
        if one.probabilities is not None
    ]
    each = alarm / (2 * len(sums))
    return lambda miss: max(binomial.rate_seen(n, p, each, miss) / p for n, p in laws)


def losses(one: Sum, alarm: float) -> Size:
    """Relative change of how often rare ids are drawn."""
    draws = int(one.counts[1])
    rate = float(one.probabilities[0]) if one.probabilities is not None else 0.0
    return lambda miss: binomial.rate_seen(draws, rate, alarm, miss) / rate


def sizes(check: str, sums: Sequence[Sum], used: int, alpha: float) -> Iterator[tuple[str, Size]]:
    """The faults that a check measures on one case, and how their smallest sizes follow."""
    by_law = {one.law: one for one in sums}
    if check == "coupled" and used:
        yield "share of wrong draws", lambda miss: significance.hidden_rate(used, miss)
    if check == "draft_law" and sums:
        alarm = SHARES["exact law"] * alpha / draft_law.TABLES_MAX
        yield "relative error of T", tilts(sums, alarm)
    if check == "lossless" and sums:
        part = lossless.EXACT_SHARE * SHARES[lossless.LEDGER]
        tables = [one for one in sums if one.what.startswith("[token before")]
        yield "relative error of the target's T", tilts(tables, part * alpha / lossless.TABLES_MAX)
    if check == "claim" and sums:
        yield "share of draws moved into one of 64 bins", shifts(sums[0])
    if check == "block_law" and (one := by_law.get("consecutive tokens in order of probability")):
        yield "share of draws moved into one of 64 bins", shifts(one)
    if check == "independence" and any(one.what == "[hits, pairs]" for one in sums):
        alarm = SHARES[independence.LEDGER] * alpha / independence.TESTS_MAX
        yield "share of pairs with common noise", shared(sums, alarm)
    if check == "accept_length" and sums:
        yield "relative change of a length's rate", lengths(sums, accept_length.alarm_of(alpha))
    if check == "noise_law" and (one := by_law.get("rare ids")):
        alarm = SHARES[noise_law.LEDGER] * alpha / noise_law.TESTS_MAX
        yield "relative change of the rate of rare ids", losses(one, alarm)


def curves(report: Mapping[str, Any]) -> list[Curve]:
    """One curve a check and fault: the case of fewest draws stands for all its cases."""
    found: dict[tuple[str, str], tuple[int, Curve]] = {}
    for row in report["checks"]:
        for case in cases(report, row["check"]):
            law = [one for one in first_sums(case) if fits(one)]
            for what, size in sizes(row["check"], law, case["used"], report["alpha"]):
                key = row["check"], what
                if key not in found or case["used"] < found[key][0]:
                    drawn = curve(row["check"], case["combination"], what, size)
                    found[key] = case["used"], drawn
    return [drawn for _, drawn in found.values() if len(drawn.sizes) > 1]


def fits(one: Sum) -> bool:
    """Whether a sum holds what its curve needs: probabilities, or none by design."""
    return one.probabilities is not None


def curve(check: str, combination: str, what: str, size: Size) -> Curve:
    """The curve of one fault; sizes that are not found at all are left out."""
    points = [(size(1 - power), power) for power in POWERS]
    seen = [(x, power) for x, power in points if math.isfinite(x) and x > 0]
    return Curve(check, combination, what, [x for x, _ in seen], [power for _, power in seen])
