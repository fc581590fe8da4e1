"""What statistical checks count: it adds exactly, and decides as one long run would."""

from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import ModuleType

import numpy as np
import pytest

from oracle.judge.answer import counts
from oracle.judge.budget import Ledger
from oracle.judge.checks import ALL, named
from oracle.judge.drive import Driver
from oracle.judge.evidence import EvidenceError
from oracle.judge.history import History
from oracle.judge.loading import build, load_factory
from oracle.judge.significance import Counts
from oracle.judge.sums import Sum, Sums, added, documents, packed, read, unpacked
from oracle.judge.trial import Trial, placed
from oracle.judge.verdict import Outcome, Verdict

from .judging import SMALL, context, probed

REFERENCE = load_factory("reference")
TINY = replace(SMALL, tilt=0.1, rows_max=512, share=0.2, noise_values=2**18, cliff_draws=2**10)
STATISTICAL = {
    "noise_law",
    "independence",
    "draft_law",
    "block_law",
    "claim",
    "lossless",
    "accept_length",
}
# Checks whose sums do not hang on the judge's own draws, and the case that is played.
SPLIT = [
    ("draft_law", 0),
    pytest.param("block_law", 0, marks=pytest.mark.slow),
    ("accept_length", 1),
    ("noise_law", 1),
]


@cache
def played(check: str, case: int) -> History:
    """What one case of a check sees of a correct sampler."""
    base = probed(context(profile=TINY), REFERENCE)
    plan = named(check).plans(base)[case]
    trial = Trial(REFERENCE, base)
    subject = build(REFERENCE, placed(plan.setting))
    history = trial.opened(plan, subject, base)
    trial.play(Driver(subject, plan, history), history, plan.commands)
    assert not history.error
    return history


def gathered(check: str, history: History) -> Sums:
    """The sums of a history."""
    found = named(check).gathered(history)
    assert isinstance(found, tuple), found
    return found


def quarters(history: History) -> list[History]:
    """The same blocks in four parts: a block begins with its replay."""
    starts = [i for i, event in enumerate(history.events) if event["verb"] == "replay"]
    cuts = [starts[len(starts) * part // 4] for part in range(4)] + [len(history.events)]
    return [replace(history, events=history.events[first:last]) for first, last in pairwise(cuts)]


def test_every_statistical_check_counts() -> None:
    """These checks, and no others, leave sums."""
    assert {check.NAME for check in ALL if counts(check)} == STATISTICAL


@pytest.mark.parametrize(("check", "case"), SPLIT)
def test_four_parts_of_the_same_draws_are_the_whole(check: str, case: int) -> None:
    """Counts bit for bit; the verdict word for word, its p-values and figures included."""
    history = played(check, case)
    whole = gathered(check, history)
    parts = [gathered(check, part) for part in quarters(history)]
    total = parts[0]
    for part in parts[1:]:
        total = added(total, part)
    for one, other in zip(whole, total, strict=True):
        assert np.array_equal(one.counts, other.counts)
        assert (one.law, one.digest) == (other.law, other.digest)
        assert other.log_e == pytest.approx(one.log_e, abs=4 * 2.0**-32)
    module: ModuleType = named(check)
    assert module.decided(history, total, Ledger()) == module.decided(history, whole, Ledger())
    assert module.check(history, Ledger()).outcome is Outcome.HOLDS


def test_a_part_alone_does_not_pass_for_the_whole() -> None:
    """A quarter of the planned draws is not enough, and says so."""
    history = played("noise_law", 1)
    quarter = gathered("noise_law", quarters(history)[0])
    verdict = named("noise_law").decided(history, quarter, Ledger())
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is Outcome.UNKNOWN
    assert "were made, required: 1024" in verdict.reason


@pytest.mark.parametrize(
    "table",
    [
        np.arange(-3, 9).reshape(3, 4),
        np.array([[2**40, 0]]),
        np.zeros((0, 5), dtype=np.int64),
        np.array([300, -300]),
        np.array([70_000]),
    ],
)
def test_counts_are_stored_in_the_narrowest_width_and_read_again(table: Counts) -> None:
    """Every width, every shape."""
    found = unpacked(packed(table))
    assert found.dtype == np.int64
    assert np.array_equal(found, table)
    assert np.iinfo(packed(table)["width"]).max >= np.abs(table).max(initial=0)


@pytest.mark.parametrize(
    "change", [{"deflated": "!"}, {"deflated": "AAAA"}, {"shape": [7]}, {"width": "<i8"}]
)
def test_damaged_counts_are_refused(change: dict) -> None:
    """Content that is no base64, no stream, or of another shape."""
    with pytest.raises(EvidenceError, match="cannot be read"):
        unpacked({**packed(np.array([1, 2, 3])), **change})


ONE = Sum("step 0", "[token]", "a" * 64, np.array([3, 4]), {"T +1 %": 0.5})


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (replace(ONE, law="step 1"), "laws differ"),
        (replace(ONE, digest="b" * 64), "digest of 'step 0' differ"),
        (replace(ONE, counts=np.array([3])), "shapes of 'step 0' differ"),
        (replace(ONE, log_e={"T +2 %": 0.5}), "banks of 'step 0' differ"),
    ],
)
def test_sums_of_other_laws_are_refused(other: Sum, words: str) -> None:
    """What differs is named."""
    with pytest.raises(EvidenceError, match=words):
        added((ONE,), (other,))


def test_sums_add_and_survive_their_documents() -> None:
    """Counts and log e-values add; JSON gives back what was written."""
    (both,) = read(documents(added((ONE,), (ONE,))))
    assert both.counts.tolist() == [6, 8]
    assert both.log_e == {"T +1 %": 1.0}
