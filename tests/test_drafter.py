"""The fitted draft: two sides with one formula, a fit that learns, a cache that goes on."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from impl.bias import MarkovHead
from impl.decoding.drafter import Drafter
from impl.stages import BIASES
from oracle.workloads import drafter, fitting
from oracle.workloads.corpus import ANSWER, Answers
from oracle.workloads.drafter import DRAFTS, RANK, drafted_states, heads_of, trunk_of

V, D = 30, 8


def written(rows: int, seed: int) -> Answers:
    """Answers in which each token is the one before plus three, but for one in ten."""
    source = torch.Generator().manual_seed(seed)
    count = 6 + ANSWER
    tokens = torch.randint(3, V, (rows, count), generator=source)
    for place in range(1, count):
        strays = torch.rand(rows, generator=source) < 0.1
        follows = (tokens[:, place - 1] + 3 - 3) % (V - 3) + 3
        tokens[:, place] = torch.where(strays, tokens[:, place], follows)
    states = torch.randn(rows, count, D, generator=source)
    begun, greedy = torch.full((rows,), 6), torch.arange(rows) % 2 == 0
    return Answers(tokens, states, begun, greedy)


def model() -> Any:
    """A head, a last norm and a name: what a fit asks of the model."""
    source = torch.Generator().manual_seed(4)
    norm = SimpleNamespace(weight=torch.ones(D))
    network = SimpleNamespace(base_model=SimpleNamespace(norm=norm))
    head = torch.randn(V, D, generator=source)
    return SimpleNamespace(head=head, network=network, provenance="tiny")


def test_blocks_are_cut_out_of_answers_and_end_with_them() -> None:
    """An anchor is a token of the answer or the last before it; nothing follows an end token."""
    answers = written(2, 0)
    answers.tokens[1, 16] = 2
    seen, row = drafter.examples(answers)
    assert int((row == 0).sum()) == ANSWER - DRAFTS + 1
    assert int((row == 1).sum()) == 11 - DRAFTS + 1
    assert torch.equal(seen.anchor[row == 0][0], answers.tokens[0, 5])
    assert torch.equal(seen.feature[row == 0][0], answers.states[0, 4])
    assert torch.equal(seen.following[row == 0][0], answers.tokens[0, 6:10])
    assert torch.equal(seen.states[row == 0][0], answers.states[0, 5:9])
    assert int(seen.following[row == 1][-1, -1]) == 2


def test_trunk_is_the_one_that_is_captured() -> None:
    """The formula of the fit and the forward of the decoder give the same hidden states."""
    head = model().head
    seen, _ = drafter.examples(written(3, 1))
    trunk = trunk_of(seen, head, torch.rand(D) + 0.5, 0)
    trunk["lift"] = torch.randn(trunk["lift"].shape, generator=torch.Generator().manual_seed(2))
    rows = 5
    buffers: Any = {
        "context": seen.feature[:rows],
        "input_ids": seen.anchor[:rows, None],
        "hidden": torch.zeros(rows, DRAFTS, D),
    }
    own = Drafter(head, trunk["project"], trunk["lift"], trunk["widen"], trunk["gain"])
    own(buffers, rows)
    wanted = drafted_states(trunk, seen.feature[:rows], head[seen.anchor[:rows]])
    torch.testing.assert_close(buffers["hidden"], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_markov_heads_are_those_of_the_sampler(kind: str) -> None:
    """What the fit multiplies by w2 is what the sampler does, state included."""
    weights = heads_of(V, D, 3)[kind]
    source = torch.Generator().manual_seed(6)
    weights["w2"] = torch.randn(V, RANK, generator=source)
    hidden, state = (torch.randn(4, wide, generator=source) for wide in (D, RANK))
    previous = torch.tensor([3, 9, 0, 29])
    factor, after = drafter.corrections(kind, weights, previous, hidden, state)
    own = MarkovHead(weights["w1"], weights["w2"], kind, weights.get("w3"), weights.get("b3"))
    bias, moved = BIASES[kind](own, previous, hidden, state)
    torch.testing.assert_close(factor @ weights["w2"].T, bias, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(after, moved, rtol=1e-5, atol=1e-5)


def test_fit_learns_and_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted fit goes on with the chunks it has; a kept one is read and not repeated."""
    calls: list[int] = []

    def answered(_model: Any, asked: Any, seed: int) -> Answers:
        calls.append(seed)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return written(len(asked), seed)

    monkeypatch.setattr(fitting, "answered", answered)
    monkeypatch.setattr(drafter, "RATE", 2e-2)
    monkeypatch.setattr(drafter, "EPOCHS", 2)
    with pytest.raises(KeyboardInterrupt):
        fitting.load_or_fit(model(), tmp_path)
    told: list[str] = []
    found = fitting.load_or_fit(model(), tmp_path, lambda task, _done, _total: told.append(task))
    assert calls == [0, 1, 1, 2, 3]
    assert set(told) == {"letting the model write", "fitting the draft"}
    assert float(found.agreed[:, 0].min()) > 0.5
    again = fitting.load_or_fit(model(), tmp_path)
    assert len(calls) == 5
    assert torch.equal(again.trunk["project"], found.trunk["project"])
    assert [path.suffix for path in tmp_path.iterdir()] == [".safetensors"]
