"""A state machine whose runs are histories, judged as they grow.

A run that fails is stored, and `draftproof judge` of the file answers the same without the sampler.
"""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from hypothesis.stateful import RuleBasedStateMachine

from oracle.judge.answer import judge_again, judged
from oracle.judge.budget import Ledger
from oracle.judge.checks import accept_rule, equality, path
from oracle.judge.drive import Driver
from oracle.judge.history import History, save
from oracle.judge.protocol import Factory
from oracle.judge.script import Command
from oracle.judge.trial import Trial
from oracle.judge.verdict import Outcome, Verdict

from .judging import FOLDED

FINE = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
KEPT = Path(".draftproof")


class JudgedMachine(RuleBasedStateMachine):
    """Plays commands on a subject, and judges what they showed.

    engine, source: what is put under test. folder: where a failing run is stored. trial, history
    and driver are set by the rule that builds the subject.
    """

    engine: ClassVar[str] = "emulator"
    source: ClassVar[Factory] = staticmethod(FOLDED)
    folder: ClassVar[Path] = KEPT
    examples: ClassVar[int] = 0
    trial: Trial
    history: History
    driver: Driver

    def __init__(self) -> None:
        super().__init__()
        self.failed = False
        self.ledger = Ledger()

    def play(self, *commands: Command) -> None:
        """Play commands, and judge what they showed."""
        start = len(self.history.events)
        self.trial.play(self.driver, self.history, commands)
        self.judge(start)

    def judge(self, start: int) -> None:
        """Judge the events from `start` on; with the block before, whose noise state they follow.

        Loads and weights of before are told again: they say what is in force. What lies over
        buffers is not: the path judges looks that follow a replay at once.
        """
        seen = self.history.events
        blocks = [n for n, event in enumerate(seen[:start]) if event["verb"] in ("replay", "eager")]
        first = blocks[-1] if blocks else 0
        told = [event for event in seen[:first] if event["verb"] in ("load", "reweight")]
        between = [event for event in seen[first:start] if event["verb"] != "observe"]
        recent = replace(self.history, events=[*told, *between, *seen[start:]])
        checks = (equality, path) if recent.of("replay") else (equality,)
        for check in (accept_rule,) if self.accepted(start) else checks:
            answer = judged(check, recent, self.ledger)
            assert isinstance(answer, Verdict)
            if answer.outcome not in FINE:
                self.fail(check, answer)

    def accepted(self, start: int = 0) -> bool:
        """Whether a block was accepted from event `start` on."""
        return any(event["verb"] == "accept" for event in self.history.events[start:])

    def fail(self, check: ModuleType, answer: Verdict) -> None:
        """Store the run and raise."""
        self.failed = True
        stem = self.folder / f"machine-{self.engine}"
        save(replace(self.history, check=check.NAME), stem)
        told = replace(answer, reason=f"{answer.reason}; again: draftproof judge {stem}.json")
        told.raise_if_violated()

    def teardown(self) -> None:
        """The whole run at once, as `draftproof judge` would see it."""
        if self.failed or not hasattr(self, "history"):
            return
        checks = [equality] if self.history.of("read", "eager") else []
        for check in (*checks, accept_rule) if self.accepted() else checks:
            answer = judge_again(replace(self.history, check=check.NAME), self.ledger)
            if answer.outcome not in FINE:
                self.fail(check, answer)
