"""What a session of tests asks of a sampler, and what it is answered: plain records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .budget import ALPHA
from .trial import Result
from .verdict import Outcome, ViolationRuntimeError, worst

FINE = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
SHOWN = 3


class AskedError(ValueError):
    """What a session asks for cannot be had; the text says what would do."""


@dataclass(frozen=True)
class Asked:
    """What a session asks for, as plain values; the names are those of the options of verify.

    device: '' for that of the engine. folder: from where the subject is imported. expectations: a
    file of deviations that are known beforehand, as `oracle.judge.expected` reads it. require_gpu:
    what only the device leaves out is unknown. workers: processes that share the tests, and the
    cores.
    """

    subject: str
    profile: str = "smoke"
    seed: int = 0
    engine: str = "auto"
    device: str = ""
    workload: str = "synthetic"
    alpha: float = ALPHA
    folder: Path = field(default_factory=Path)
    expectations: str = ""
    require_gpu: bool = False
    workers: int = 1


@dataclass(frozen=True)
class Answer:
    """One check on one combination.

    raw: the results as plain values, before expectations were held against them.
    declined: the subject does not claim or does not serve what the check asks, so it never applies.
    spent: of each ledger line. again: the commands that show it again, shortest first.
    """

    check: str
    label: str
    results: Sequence[Result]
    raw: Sequence[Mapping[str, Any]]
    spent: Mapping[str, float]
    declined: bool
    seed: int
    again: Sequence[str]

    @property
    def outcome(self) -> Outcome:
        """The worst verdict of all cases."""
        return worst(result.verdict.outcome for result in self.results)

    @property
    def reason(self) -> str:
        """What the worst cases say, each once."""
        texts = dict.fromkeys(
            result.verdict.reason
            if result.case == "-"
            else f"{result.case}: {result.verdict.reason}"
            for result in self.results
            if result.verdict.outcome is self.outcome
        )
        more = f"\n  and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        return "\n  ".join([*texts][:SHOWN]) + more

    def require(self) -> None:
        """Raise ViolationRuntimeError unless it holds, is out of scope, or is expected."""
        __tracebackhide__ = True
        if self.outcome not in FINE and self.outcome.value != "expected":
            raise ViolationRuntimeError(
                f"{self.outcome}: {self.check}, {self.label}\n  {self.reason}"
            )

    @property
    def told(self) -> str:
        """Seed, and how to see it again."""
        return "\n".join([f"seed {self.seed}", *(f"again: {line}" for line in self.again)])

    @property
    def carried(self) -> dict[str, Any]:
        """Plain values, for the process that writes the report."""
        return {"cases": list(self.raw), "spent": dict(self.spent), "declined": self.declined}
