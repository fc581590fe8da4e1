"""Enumerated laws against brute force."""

from itertools import product

import pytest
import torch
from hypothesis import given

from oracle.reference import choice, draft, law

from .strategies import Shape, grid, shapes, source


@given(shapes(vocabulary_max=4))
def test_pair_laws_equal_the_sum_over_all_blocks(shape: Shape) -> None:
    """Enumerate every block of up to three tokens and add its probability to its pairs."""
    draw = source(shape.seed)
    drafts, vocabulary = min(shape.drafts, 3), shape.vocabulary
    base = grid(draw, drafts, vocabulary).double()
    w1, w2 = grid(draw, vocabulary, 2), grid(draw, vocabulary, 2)
    bias = draft.vanilla(w1, w2)
    tables = law.pair_laws(law.transitions(base, bias, 0.7, torch.float32), anchor=1)
    expected = [torch.zeros(vocabulary, vocabulary, dtype=torch.float64) for _ in range(drafts)]
    for block in product(range(vocabulary), repeat=drafts):
        previous, probability = 1, 1.0
        for k, token in enumerate(block):
            logits = choice.step_logits(
                base[k : k + 1], bias(torch.tensor([previous])), torch.float32
            )
            step = choice.law(logits, torch.tensor([0.7], dtype=torch.float64))
            probability *= float(step[0, token])
            previous = token
        before = 1
        for k, token in enumerate(block):
            expected[k][before, token] += probability
            before = token
    for table, wanted in zip(tables, expected, strict=True):
        assert torch.allclose(table, wanted, atol=1e-12, rtol=0)


def test_each_table_sums_to_one() -> None:
    """A joint law is a law."""
    draw = source(3)
    base = grid(draw, 4, 9).double()
    bias = draft.vanilla(grid(draw, 9, 2), grid(draw, 9, 2))
    for table in law.pair_laws(law.transitions(base, bias, 1.3, torch.bfloat16), anchor=0):
        assert abs(float(table.sum()) - 1) < 1e-12


def heads(draw: torch.Generator) -> dict[str, draft.Head]:
    """One head of each kind for a request of three drafts, with three tokens and two factors."""
    w1, w2 = grid(draw, 3, 2), grid(draw, 3, 2)
    hidden = grid(draw, 1, 3, 4)
    w3, b3 = grid(draw, 2, 6), grid(draw, 2)
    tall, b_tall = grid(draw, 6, 8), grid(draw, 6)
    return {
        "vanilla": draft.vanilla(w1, w2),
        "gated": draft.gated(hidden, w1, w2, w3, b3),
        "rnn": draft.recurrent(hidden, w1, w2, tall, b_tall),
    }


@pytest.mark.parametrize("kind", ["vanilla", "gated", "rnn"])
def test_the_law_of_a_block_is_that_of_its_walks(kind: str) -> None:
    """All 27 blocks, pairs, next tokens, and the steps of a head without a state."""
    draw = source(12)
    head, base = heads(draw)[kind], grid(draw, 3, 3).double() * 2
    joint = law.block_law(base, head, 2, 0.7, torch.bfloat16)
    assert joint.dtype == torch.float64
    assert float(joint.sum()) == pytest.approx(1, abs=1e-12)
    heat = torch.full((1, 3), 0.7, dtype=torch.float64)
    pairs = torch.zeros(3, 3, 3, dtype=torch.float64)
    for block in product(range(3), repeat=3):
        tokens = torch.tensor([block])
        kept = draft.walked_logits(base[None], torch.tensor([2]), tokens, head, torch.bfloat16)
        chances = choice.law(kept, heat)[0, range(3), block]
        assert float(joint[block]) == pytest.approx(float(chances.prod()), rel=1e-12)
        for k, before in enumerate((2, *block[:2])):
            pairs[k, before, block[k]] += chances.prod()
        rows = law.rows_of(joint)
        for k in range(3):
            following = rows(block[:k])
            assert float(following[block[k]]) == pytest.approx(float(chances[k]), rel=1e-9)
    assert torch.allclose(torch.stack(law.pairs_of(joint, 2)), pairs, atol=1e-12, rtol=0)
    if kind == "rnn":
        with pytest.raises(
            ValueError, match=r"^the head has a state of 2 numbers, required: none$"
        ):
            law.transitions(base, head, 0.7, torch.bfloat16)
    else:
        steps = law.transitions(base, head, 0.7, torch.bfloat16)
        tables = torch.stack(law.pair_laws(steps, 2))
        assert torch.allclose(tables, pairs, atol=1e-12, rtol=0)


def test_one_draft_and_one_factor_are_no_exception() -> None:
    """The pair of a lone draft is with the anchor; a state of one number is a state."""
    (table,) = law.pairs_of(torch.tensor([0.25, 0.75]).double(), 0)
    assert table.tolist() == [[0.25, 0.75], [0.0, 0.0]]
    w = torch.zeros(3, 1)
    head = draft.recurrent(torch.zeros(1, 1, 2), w, w, torch.zeros(3, 4), torch.zeros(3))
    with pytest.raises(ValueError, match="state of 1 numbers"):
        law.transitions(torch.zeros(1, 3), head, 1.0, torch.float32)
