"""Greedy drafts: every row its argmax, nothing drawn, nothing kept, nothing claimed."""

import pytest
import torch

from impl.config import Config
from impl.proposal import Proposal
from impl.sampler import DraftSampler
from impl.subject import factory

from .rig import GREEDY, SAMPLED, consumed, rig
from .settings import TALL, device_of, folded, inputs, setting


@pytest.mark.parametrize("kind", list(TALL))
@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_a_greedy_draft_is_the_argmax_of_every_row(
    engine_name: str, kind: str, dialect: str
) -> None:
    """As an all-greedy batch drafts; nothing is kept, nothing is drawn, and nothing is claimed."""
    made = setting(device_of(engine_name), kind, dialect)
    subject = factory({**made, "greedy_draft": True})
    before = consumed(subject.noise)
    given = inputs(made)
    found = folded(subject, given)
    cold = folded(factory(made), {**given, "top_k": torch.ones_like(given["top_k"])})
    assert torch.equal(found["tokens"], cold["tokens"])
    assert torch.equal(subject.eager(given)["tokens"], cold["tokens"])
    assert consumed(subject.noise) == before
    assert not {"DRAWS", "NOISE", "CLAIMS"} & set(subject.describe()["abilities"])
    assert not {"step_logits", "temperature", "greedy"} & found.keys()
    assert not {"step_logits", "exp_noise"} & subject.buffers().keys()


@pytest.mark.parametrize("mode", ["auto", "off"])
def test_the_environment_asks_for_greedy_drafts(engine_name: str, mode: str) -> None:
    """Sampled rows stay folded, keep their own mask, and the record says that q is one-hot."""
    made = rig(engine_name, "counter", config=Config(greedy_draft=True, folded_sampling=mode))
    tail = made.proposer.tail
    assert isinstance(tail, DraftSampler)
    assert (tail.decision.fold, tail.decision.reason) == ("greedy", "folded")
    before = consumed(made.noise)
    for rows in ((SAMPLED, GREEDY), (SAMPLED,) * 5):
        proposal: Proposal = made.propose(*rows)
        assert proposal.folded == (len(rows) == 2)
        assert proposal.greedy_draft
        assert proposal.step_logits is None
        assert proposal.greedy.tolist() == [row == GREEDY for row in rows]
    assert consumed(made.noise) == before
    assert not rig(engine_name).propose(SAMPLED).greedy_draft


def test_the_setting_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable counts where a setting says nothing."""
    monkeypatch.setenv("DRAFTPROOF_GREEDY_DRAFT", "1")
    assert factory(setting("cpu")).proposer.draft.greedy_draft
    assert not factory(setting("cpu", greedy_draft=False)).proposer.draft.greedy_draft


def test_dflash_is_a_greedy_draft(engine_name: str) -> None:
    """Its drafts are one-hot without being asked."""
    subject = factory(setting(device_of(engine_name), family="dflash", dialect="none"))
    folded(subject, inputs(subject.setting))
    assert subject.proposer.read().greedy_draft


@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_a_greedy_draft_is_accepted_as_one_hot_on_fresh_coins(
    engine_name: str, dialect: str
) -> None:
    """Draft t is accepted iff its coin lies below p; two blocks never share their coins."""
    device = device_of(engine_name)
    made = setting(device, "vanilla", dialect)
    subject = factory({**made, "greedy_draft": True})
    given = inputs(made)
    given["top_k"] = torch.full_like(given["top_k"], 2**30)
    rows, drafts, vocabulary = len(given["anchor"]), made["drafts"], made["vocabulary"]
    target = {
        "target_logits": torch.zeros(rows, drafts + 1, vocabulary, device=device),
        "top_p": torch.ones(rows, device=device),
        "verify_len": torch.full((rows,), drafts + 1, device=device),
        "prefix_len": torch.zeros(rows, dtype=torch.int64, device=device),
        "rule": "chain",
    }
    commits = []
    for _ in range(2):
        folded(subject, given)
        commits.append(subject.accept(target))
    assert not (commits[0]["coins"] == commits[1]["coins"]).any()
    for commit in commits:
        accepted = (commit["coins"][:, :-1] < 1 / vocabulary).long().cumprod(1).sum(1)
        sampled = given["temperature"] >= 1e-6
        assert torch.equal(commit["correct_len"][sampled], accepted[sampled])
