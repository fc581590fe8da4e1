"""One check's answer on a history: an error of the sampler first, then what the check decides."""

from types import ModuleType

from .budget import Ledger
from .checks import stored
from .context import Context
from .history import History
from .margin import ARITHMETIC
from .sums import Sums, documents
from .verdict import Pending, Verdict, errored, unknown


def counts(check: ModuleType) -> bool:
    """Whether a check decides on sums of draws alone, so that shards of it can be added."""
    return hasattr(check, "gathered")


def judged(
    check: ModuleType, history: History, ledger: Ledger, only: Context | None = None
) -> Verdict | Pending:
    """One check's answer on a history; an error of the subject comes first.

    only: of a shard, whose sums are kept and decide nothing by chance.
    """
    if history.error:
        return errored(history.error)
    if history.description["stages"] not in ARITHMETIC:
        return errored(
            f"stages are {history.description['stages']!r}, required: one of {sorted(ARITHMETIC)}"
        )
    if not counts(check):
        answer: Verdict | Pending = check.check(history, ledger)
        return answer
    seen: Sums | Verdict = check.gathered(history)
    if isinstance(seen, Verdict):
        return seen
    history.sums[str(history.stages)] = documents(seen)
    if only is not None:
        return unknown(f"counted by shard {only.shard} of {only.shards}: draftproof merge decides")
    decided: Verdict | Pending = check.decided(history, seen, ledger)
    return decided


def undecided(pending: Pending) -> Verdict:
    """The answer of a check that asks for more than two stages."""
    return unknown(f"stage two did not decide: {pending.reason}")


def judge_again(history: History, ledger: Ledger) -> Verdict:
    """Judge a stored history; one that lacks its second stage stays unknown."""
    answer = judged(stored(history.check), history, ledger)
    if isinstance(answer, Pending) and history.stages > 1:
        return undecided(answer)
    if isinstance(answer, Pending):
        return unknown(f"stage one was alarmed and no fresh draws are stored: {answer.reason}")
    return answer
