"""Six answers, never a bool."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """What a check can answer; only HOLDS is green. EXPECTED: a violation that a file announced."""

    HOLDS = "holds"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    EXPECTED = "expected"
    NOT_APPLICABLE = "not applicable"
    ERRORED = "errored"


class ViolationRuntimeError(RuntimeError):
    """A check was violated.

    The printed name holds "RuntimeError" on purpose: a downstream rule that reruns plain assertion
    failures must not rerun a statistical verdict until it is green.
    """


@dataclass(frozen=True)
class Verdict:
    """One answer of one check on one case.

    reason: one sentence, observed and required. used, unit: how many draws or cases were judged.
    effect: the smallest fault that would have been seen. evidence: plain values for the report.
    """

    outcome: Outcome
    reason: str
    used: int = 0
    unit: str = "cases"
    effect: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def raise_if_violated(self) -> None:
        """Raise ViolationRuntimeError for a violation and for every answer that is not green."""
        if self.outcome is not Outcome.HOLDS:
            raise ViolationRuntimeError(f"{self.outcome}: {self.reason}")


@dataclass(frozen=True)
class Pending:
    """A statistical check that was alarmed at stage one and asks for fresh draws."""

    reason: str


SEVERITY = (
    Outcome.VIOLATED,
    Outcome.ERRORED,
    Outcome.UNKNOWN,
    Outcome.EXPECTED,
    Outcome.HOLDS,
    Outcome.NOT_APPLICABLE,
)
EXIT_CODES = {Outcome.VIOLATED: 1, Outcome.ERRORED: 4, Outcome.UNKNOWN: 3}


def holds(reason: str, used: int, effect: str, unit: str = "cases", **evidence: Any) -> Verdict:
    """Answer HOLDS; what would have been seen is required, so it is not optional here."""
    return Verdict(Outcome.HOLDS, reason, used, unit, effect, evidence)


def violated(reason: str, used: int, unit: str = "cases", **evidence: Any) -> Verdict:
    """Answer VIOLATED with the evidence that shows it."""
    return Verdict(Outcome.VIOLATED, reason, used, unit, "", evidence)


def unknown(reason: str, used: int = 0, **evidence: Any) -> Verdict:
    """Answer UNKNOWN: what was needed to decide was not seen."""
    return Verdict(Outcome.UNKNOWN, reason, used, evidence=evidence)


def not_applicable(reason: str) -> Verdict:
    """Answer NOT_APPLICABLE: the subject does not claim what the check is about."""
    return Verdict(Outcome.NOT_APPLICABLE, reason)


def errored(reason: str) -> Verdict:
    """Answer ERRORED: the subject or its adapter raised."""
    return Verdict(Outcome.ERRORED, reason)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome that speaks for a group: violated first, not applicable last."""
    present = set(outcomes)
    for outcome in SEVERITY:
        if outcome in present:
            return outcome
    return Outcome.UNKNOWN


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """0 all that applied holds or was expected, 1 violated, 4 errored, 3 unknown or nothing."""
    speaks = worst(outcomes)
    if speaks is Outcome.NOT_APPLICABLE:
        return 3
    return EXIT_CODES.get(speaks, 0)
