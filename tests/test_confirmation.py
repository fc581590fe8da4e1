"""Stage two plays the same recording: what a recording froze is confirmed, never washed out."""

import torch

from oracle.judge.budget import Ledger
from oracle.judge.checks import draft_law
from oracle.judge.history import History
from oracle.judge.trial import Trial, judged
from oracle.judge.verdict import Outcome, Pending, Verdict

from .judging import FOLDED, context
from .zoo.capture import frozen_noise


def played(factory, seed: int) -> tuple[History, Verdict]:
    """The history and the verdict of draft_law alone."""
    base = context(seed=seed)
    history, verdict = Trial(factory, base).case(draft_law, draft_law.plans(base)[0], base)
    assert history is not None
    return history, verdict


def stages(history: History) -> list[torch.Tensor]:
    """The tokens that each stage read, [reads, B, K]."""
    boundary = [event["verb"] for event in history.events].index("stage")
    halves = (history.events[:boundary], history.events[boundary:])
    return [torch.stack([e["outputs"]["tokens"] for e in h if e["verb"] == "read"]) for h in halves]


def test_frozen_noise_is_alarmed_and_confirmed_by_the_draft_law_alone() -> None:
    """Both stages see the block of one capture, at every start: fresh draws are no fresh ones."""
    for seed in (0, 1):
        history, verdict = played(frozen_noise, seed)
        assert verdict.outcome is Outcome.VIOLATED
        assert history.stages == 2
        first, second = stages(history)
        assert torch.equal(first[0].expand_as(first), first)
        assert torch.equal(first[0].expand_as(second), second)
        alone = History(**{**vars(history), "events": history.events, "stages": 1})
        boundary = [event["verb"] for event in history.events].index("stage")
        alone.events = history.events[:boundary]
        assert isinstance(judged(draft_law, alone, Ledger()), Pending)


def test_a_healthy_recording_passes_the_same_law() -> None:
    """The control: the same sizes, noise that moves."""
    history, verdict = played(FOLDED, 0)
    assert verdict.outcome is Outcome.HOLDS
    reads = [event["outputs"]["tokens"] for event in history.of("read")]
    assert not torch.equal(reads[0], reads[1])
