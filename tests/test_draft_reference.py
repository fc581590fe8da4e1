"""A block of the reference, one step after the other, for every kind of head."""

import pytest
import torch

from oracle.reference import choice, draft
from oracle.reference.bias import gated_bias, markov_bias, recurrent_bias

from .strategies import grid, source

ROWS, DRAFTS, VOCABULARY, HIDDEN, RANK = 6, 3, 7, 4, 2


def bound(kind: str, draw: torch.Generator) -> tuple[draft.Head, torch.Tensor]:
    """A head of one kind, and the bias that it must give along a block of tokens before."""
    w1, w2 = (grid(draw, VOCABULARY, RANK) for _ in range(2))
    hidden = grid(draw, ROWS, DRAFTS, HIDDEN)
    before = torch.randint(0, VOCABULARY, (ROWS, DRAFTS), generator=draw)
    steps = range(DRAFTS)
    if kind == "none":
        bias = [torch.zeros(ROWS, VOCABULARY).double() for _ in steps]
        head = draft.without_bias(VOCABULARY)
    elif kind == "vanilla":
        bias = [markov_bias(before[:, k], w1, w2) for k in steps]
        head = draft.vanilla(w1, w2)
    elif kind == "gated":
        w3, b3 = grid(draw, RANK, HIDDEN + RANK), grid(draw, RANK)
        bias = [gated_bias(before[:, k], hidden[:, k], w1, w2, w3, b3) for k in steps]
        head = draft.gated(hidden, w1, w2, w3, b3)
    else:
        w3, b3 = grid(draw, 3 * RANK, 2 * RANK + HIDDEN), grid(draw, 3 * RANK)
        state, bias = torch.zeros(ROWS, RANK).double(), []
        for k in steps:
            one, state = recurrent_bias(before[:, k], hidden[:, k], state, w1, w2, w3, b3)
            bias.append(one)
        head = draft.recurrent(hidden, w1, w2, w3, b3)
    return head, torch.stack([before[..., None].expand(-1, -1, VOCABULARY), torch.stack(bias, 1)])


@pytest.mark.parametrize("kind", ["none", "vanilla", "gated", "rnn"])
def test_a_walk_adds_the_bias_of_each_step(kind: str) -> None:
    """Hidden states of the step, the state handed on, and the tokens one place late."""
    draw = source(21)
    head, (before, bias) = bound(kind, draw)
    before = before[..., 0].long()
    base = 2 * grid(draw, ROWS, DRAFTS, VOCABULARY).double() + 1 / 3
    tokens = torch.cat([before[:, 1:], torch.zeros(ROWS, 1).long()], 1)
    assert torch.equal(draft.tokens_before(before[:, 0], tokens), before)
    found = draft.walked_logits(base, before[:, 0], tokens, head, torch.bfloat16)
    wanted = (base + bias).float().bfloat16().double()
    assert torch.equal(found, wanted)
    state = head.started(before[:, 0])
    assert state.dtype == torch.float64
    assert state.shape == (ROWS, RANK if kind == "rnn" else 0)
    assert not state.any()
    if kind in ("none", "vanilla"):
        assert head.at(1) is None
        assert torch.equal(head(before[:, 0]), bias[:, 0])


@pytest.mark.parametrize("kind", ["none", "vanilla", "gated", "rnn"])
@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_a_block_takes_the_token_of_each_step(kind: str, dialect: str) -> None:
    """Token, kept logits and flag of a step; the token feeds the next; greedy rows among them."""
    draw = source(22)
    head, _ = bound(kind, draw)
    base = 2 * grid(draw, ROWS, DRAFTS, VOCABULARY).double()
    base[2, 1, 3], base[3, 2] = torch.nan, -torch.inf
    anchor = torch.randint(0, VOCABULARY, (ROWS,), generator=draw)
    heat, greedy = torch.linspace(0.4, 2, ROWS).double(), torch.arange(ROWS) % 3 == 0
    e = torch.rand(ROWS, DRAFTS, VOCABULARY, generator=draw).double() + 0.01
    tokens, kept, flags = draft.markov_block(
        base, anchor, head, heat, greedy, e, dialect, torch.bfloat16
    )
    assert torch.equal(
        kept.nan_to_num(99),
        draft.walked_logits(base, anchor, tokens, head, torch.bfloat16).nan_to_num(99),
    )
    for k in range(DRAFTS):
        step = choice.token(kept[:, k], heat, greedy, e[:, k], dialect)
        assert torch.equal(tokens[:, k], step)
        assert torch.equal(flags[:, k], choice.flags(kept[:, k]))
    assert (int(flags[2, 1]), int(flags[3, 2]), int(flags[0, 0])) == (1, 2, 0)


def test_a_greedy_block_is_the_argmax_as_global_ids() -> None:
    """Ties to the lowest; ids count from the start of the shard."""
    base = torch.tensor([[[1.0, 3.0, 3.0], [5.0, 0.0, 5.0]]]).double()
    assert draft.greedy_block(base).tolist() == [[1, 0]]
    assert draft.greedy_block(base, 10).tolist() == [[11, 10]]
