"""Stage two plays the same recording: what a recording froze is confirmed, never washed out."""

from dataclasses import replace

import torch

from oracle.judge.answer import judged
from oracle.judge.budget import Ledger
from oracle.judge.checks import draft_law
from oracle.judge.drive import Driver
from oracle.judge.history import History
from oracle.judge.loading import build
from oracle.judge.protocol import Factory
from oracle.judge.trial import Trial, placed
from oracle.judge.verdict import Outcome, Pending, Verdict

from .judging import FOLDED, context
from .zoo.capture import frozen_noise


def played(factory: Factory, seed: int) -> History:
    """Both stages of draft_law on one subject, whatever stage one has to say."""
    base = context(seed=seed)
    (plan,) = draft_law.plans(base)
    trial = Trial(factory, base)
    subject = build(factory, placed(plan.setting))
    history = trial.opened(plan, subject, base)
    driver = Driver(subject, plan, history)
    trial.play(driver, history, plan.commands)
    history.events.append({"verb": "stage", "reason": "both are wanted"})
    trial.play(driver, history, plan.confirm)
    assert not history.error
    return replace(history, stages=2)


def stages(history: History) -> list[torch.Tensor]:
    """The tokens that each stage read, [reads, B, K]."""
    boundary = [event["verb"] for event in history.events].index("stage")
    halves = (history.events[:boundary], history.events[boundary:])
    return [torch.stack([e["outputs"]["tokens"] for e in h if e["verb"] == "read"]) for h in halves]


def test_frozen_noise_is_alarmed_and_confirmed_by_the_draft_law_alone() -> None:
    """Both stages see the block of one capture, at every start: fresh draws are no fresh ones."""
    for seed in (0, 1):
        history = played(frozen_noise, seed)
        first, second = stages(history)
        assert torch.equal(first[0].expand_as(first), first)
        assert torch.equal(first[0].expand_as(second), second)
        confirmed = judged(draft_law, history, Ledger())
        assert isinstance(confirmed, Verdict)
        assert confirmed.outcome is Outcome.VIOLATED
        assert "on fresh draws" in confirmed.reason
        boundary = [event["verb"] for event in history.events].index("stage")
        alone = replace(history, stages=1, events=history.events[:boundary])
        alarmed = judged(draft_law, alone, Ledger())
        assert isinstance(alarmed, Pending) or alarmed.outcome is Outcome.VIOLATED


def test_a_healthy_recording_passes_the_same_law() -> None:
    """The control: the same sizes, noise that moves."""
    history = played(FOLDED, 0)
    first, second = stages(history)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], second[0])
    verdict = judged(draft_law, history, Ledger())
    assert isinstance(verdict, Verdict)
    assert verdict.outcome is Outcome.HOLDS
