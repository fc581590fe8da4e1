"""Borrowed results: views without a copy, refused once a later replay has run."""

import pytest
import torch

from .rig import GREEDY, SAMPLED, rig


def test_borrowed_results_are_views_of_the_last_replay(engine_name: str) -> None:
    """No copy, the live rows, and the number of the replay that wrote them."""
    made = rig(engine_name)
    expected = made.propose(SAMPLED, GREEDY, SAMPLED)
    lent = made.proposer.borrow()
    assert lent.replay == made.runner.replays == 1
    found = lent.tensors()
    assert set(found) == {"tokens", "flags", "step_logits"}
    for name, view in found.items():
        assert view.data_ptr() == made.buffers[name].data_ptr(), name
        assert torch.equal(view, getattr(expected, name)), name
    # A load overwrites nothing that was lent.
    made.proposer.load(made.batch(GREEDY, seed=9))
    assert torch.equal(lent.tensors()["tokens"], expected.tokens)


@pytest.mark.parametrize("rows", [1, 4])
def test_borrowed_results_are_refused_after_a_later_replay(engine_name: str, rows: int) -> None:
    """Of the same bucket or another one: they share the buffers. What was read stays good."""
    made = rig(engine_name)
    made.propose(SAMPLED)
    lent, kept = made.proposer.borrow(), made.proposer.read()
    before = kept.tokens.clone()
    made.propose(*[SAMPLED] * rows, seed=8)
    with pytest.raises(RuntimeError, match=r"borrowed from replay 1, and replay 2 has run; .*"):
        lent.tensors()
    assert made.proposer.borrow().tensors()["tokens"].shape[0] == rows
    assert torch.equal(kept.tokens, before)


def test_nothing_is_lent_without_a_replay(engine_name: str) -> None:
    """Before a block, after a mere load, and of an eager block."""
    made = rig(engine_name)
    with pytest.raises(RuntimeError, match=r"^no batch is loaded"):
        made.proposer.borrow()
    made.proposer.load(made.batch(SAMPLED))
    with pytest.raises(RuntimeError, match=r"^no block has run since the last load"):
        made.proposer.borrow()
    made.propose(*[SAMPLED] * 5)
    with pytest.raises(RuntimeError, match=r"^the last block was eager \(recording did not run\)"):
        made.proposer.borrow()
