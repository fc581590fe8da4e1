"""One table of counts against its law: chi-square in its range, bank and scan at any depth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import significance
from .bank import Member, log_values, mean_log, members, never_drawn, rejects, smallest_tilt
from .scan import Finding, scan, smallest_mass
from .significance import STAGES, Counts, Fit, Floats, Pools

NEVER_DRAWN = "an id never drawn"
DRAWS_MIN, DRAWS_MAX = 2**14, 2**40


@dataclass(frozen=True)
class Table:
    """What is judged: draws of a token in contexts, all planned before the first of them.

    law         [contexts, V] joint law of context and token, adding up to 1
    counts      [contexts, V] draws
    logits      [contexts, V] step logits over T, for the members that round them
    temperature T as it was asked for
    """

    law: Floats
    counts: Counts
    logits: Floats | None = None
    temperature: float = 1.0

    @property
    def draws(self) -> int:
        """Draws over all contexts."""
        return int(self.counts.sum())

    def named(self, cell: int) -> str:
        """A cell in words: the token, and the context where there are several."""
        context, token = divmod(cell, self.law.shape[1])
        return f"token {token}" if len(self.law) == 1 else f"token {token} after {context}"


@dataclass(frozen=True)
class Exact:
    """What bank and scan say of one table; each of them has half of `alarm`.

    values log e-values by the name of the fault. tilt, mass: the smallest relative temperature
    error that the bank, the smallest loss that the scan would have found (97.5 %).
    """

    alarm: float
    values: dict[str, float]
    finding: Finding
    tilt: float
    mass: float
    complaint: str


@dataclass(frozen=True)
class Goodness:
    """One table judged by chi-square and, at stage one, by bank and scan.

    blurred the smallest relative temperature error that the chi-square of this stage finds.
    """

    pools: Pools
    fit: Fit
    blurred: float
    exact: Exact | None

    @property
    def complaint(self) -> str:
        """What bank or scan object to; '' when nothing. It needs no confirmation."""
        return "" if self.exact is None else self.exact.complaint

    @property
    def tilt(self) -> float:
        """The smallest relative temperature error that the strongest test finds."""
        return self.blurred if self.exact is None else min(self.blurred, self.exact.tilt)

    @property
    def effect(self) -> str:
        """The smallest temperature error that would have been seen, and by which test."""
        by = "chi-square" if self.exact is None or self.blurred <= self.exact.tilt else "bank"
        return f"T off by {100 * self.tilt:.2g} % ({by}, 97.5 %)"

    def described(self, step: int) -> dict[str, Any]:
        """What is printed and stored of one table."""
        fitted = {
            "step": step,
            "statistic": self.fit.statistic,
            "value": self.fit.value,
            "other": self.fit.other,
            "degrees": self.fit.degrees,
            "p_value": self.fit.p_value,
            "level": self.fit.level,
            "least_expected": self.fit.least_expected,
            "pools": len(self.pools.probability),
            "draws": self.pools.draws,
        }
        if self.exact is None:
            return fitted
        finding = vars(self.exact.finding) | {"log_p": max(self.exact.finding.log_p, -690.0)}
        values = {name: max(value, -690.0) for name, value in self.exact.values.items()}
        return fitted | {"bank": values, "scan": finding, "exact_alarm": self.exact.alarm}


def conditional(law: Floats) -> tuple[Floats, Floats]:
    """Probability of each context [contexts], and the log of the law in it [contexts, V]."""
    weights = law.sum(axis=1)
    with np.errstate(divide="ignore"):
        return weights, np.log(law / np.where(weights > 0, weights, 1.0)[:, None])


def bank_of(table: Table) -> tuple[Member, ...]:
    """The known faults of a table's law."""
    return members(conditional(table.law)[1], table.logits, table.temperature)


def judge(table: Table, stage: int, alarm: float) -> Goodness:
    """Chi-square of a stage at its level; bank and scan share `alarm`, at stage one only.

    Bank and scan are exact at any depth: they need no second stage, and at stage two their alarm
    probability is spent.
    """
    level = STAGES[stage - 1]
    pools = significance.pool(table.law.ravel(), table.draws)
    fit = significance.fit(pools, table.counts.ravel(), level)
    weights, log_law = conditional(table.law)
    present = np.where(weights[:, None] > 0, log_law, 0.0)
    blurred = significance.smallest_tilt(pools, present, level, weights=weights)
    return Goodness(pools, fit, blurred, exact(table, log_law, alarm) if stage == 1 else None)


def exact(table: Table, log_law: Floats, alarm: float) -> Exact:
    """Bank and scan on one table, each with half of the alarm probability."""
    half = alarm / 2
    bank = members(log_law, table.logits, table.temperature)
    logs = np.append(log_values(table.counts, bank), never_drawn(log_law, table.counts))
    names = [*(one.name for one in bank), NEVER_DRAWN]
    finding = scan(table.law, table.counts, half)
    complaints = []
    if rejects(logs, half):
        best = int(logs.argmax())
        complaints.append(
            f"{table.draws} draws are 10^{logs[best] / math.log(10):.1f} times as likely under "
            f"'{names[best]}' as under the law; mean over {len(logs)} such faults "
            f"10^{mean_log(logs) / math.log(10):.1f}, required below 10^{-math.log10(half):.1f}"
        )
    if finding.rejects:
        complaints.append(
            f"{interval(table, finding)}: observed {finding.observed} draws, "
            f"{finding.expected:.6g} expected; p = {finding.adjusted:.2g} after all intervals, "
            f"required above {half:.2g}"
        )
    tilt = smallest_tilt(bank, table.law, table.draws, len(logs), half)
    mass = smallest_mass(table.law, table.draws, half)
    said = "; ".join(complaints)
    return Exact(alarm, dict(zip(names, logs.tolist(), strict=True)), finding, tilt, mass, said)


def draws_for(laws: Sequence[Floats], tilt: float, alarm: float) -> int:
    """Draws of each table after which the bank finds a temperature error of `tilt` in all of them.

    laws joint laws, [contexts, V] each; alarm as for `judge`. Found means with probability 97.5 %.
    """
    return max(_draws_of_one(law, tilt, alarm / 2) for law in laws)


def _draws_of_one(law: Floats, tilt: float, half: float) -> int:
    _, log_law = conditional(law)
    bank = members(log_law)
    draws = DRAWS_MIN
    while draws < DRAWS_MAX:
        seen = smallest_tilt(bank, law, draws, len(bank) + 1, half)
        if seen <= tilt:
            return draws
        # The error that is seen falls with the root of the draws.
        draws = math.ceil(draws * min(4.0, max(1.02, (seen / tilt) ** 2)))
    raise ValueError(f"an error of {tilt} in T is out of reach, required: a law that depends on T")


def interval(table: Table, finding: Finding) -> str:
    """An interval in words."""
    first = table.named(finding.cells[0])
    if finding.first == finding.last:
        return first
    if finding.order == "id":
        return f"{first} to {table.named(finding.last)}"
    return f"ranks {finding.first} to {finding.last} by {finding.order}, from {first} on"
