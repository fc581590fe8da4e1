"""What is measured without a GPU.

A replay of the emulator over the same block eager, and how many drafts a second the suite draws and
judges.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from impl.assembly import Parts
from impl.runner import Runner
from impl.subject import Subject, factory

from .chains import ours
from .clock import HostClock
from .peers import plain
from .problem import Case, Problem, problem_for
from .rows import Row
from .variant import Variant

SECTION = "host"
CASE = Case(4096, 8, 7, "sampled", rank=64)
# The emulator may cost this much more than the block it replays.
AIM = 1.5


def problem() -> Problem:
    """The block whose replay is measured: batch 8, V = 4,096."""
    given = problem_for(CASE, torch.device("cpu"))
    # Products of bfloat16 are slow on a CPU, and would hide the cost of a replay.
    wide = {name: getattr(given, name).float() for name in ("base", "w1", "w2")}
    return replace(given, **wide)


def overhead(dialect: str, clock: HostClock) -> Row:
    """A replay of the emulator over the eager block, and over torch as one would write it."""
    given = problem()
    eager, folded = ours(given, "torch", dialect)
    row = compared(dialect, clock, eager, folded)
    row.extra["torch chain"] = clock.cold([plain(given)[0].run])[0]
    return row


def compared(dialect: str, clock: HostClock, eager: Variant, folded: Variant) -> Row:
    """A replay of the emulator over the same block eager."""
    one, two = clock.cold([folded.run, eager.run])
    row = Row(SECTION, f"emulator replay, {dialect}", CASE, hot=one)
    row.extra = {"eager": two, "ratio": one / two}
    return row


class _Counting(Runner):
    """A runner that counts the drafts it replays."""

    drafted = 0

    def run(self, rows: int) -> int:
        """Replay and count."""
        _Counting.drafted += rows * self.shapes.drafts
        return super().run(rows)


def _counted(setting: Mapping[str, Any]) -> Subject:
    return factory(setting, parts=Parts(runner=_Counting))


def throughput(check: str = "draft_law") -> Row:
    """Drafts a second through one statistical check: folded in the emulator, counted and judged."""
    # The judge and what it needs, which a machine that only times may lack.
    from oracle.judge.verdict import Outcome

    from ..judging import context, verdicts

    _Counting.drafted = 0
    began = time.process_time()
    base = context()
    results = verdicts(_counted, base, (("dspark", "counter"),), (check,))
    spent = time.process_time() - began
    found: list[Any] = [result.verdict.outcome for result in results[check]]
    row = Row(SECTION, f"suite, {check}", Case(0, 0, 0, "sampled", rank=0), hot=spent * 1e6)
    row.parity = "yes" if set(found) == {Outcome.HOLDS} else f"WRONG: {found}"
    row.extra = {"drafts a second": _Counting.drafted / spent, "drafts": _Counting.drafted}
    return row
