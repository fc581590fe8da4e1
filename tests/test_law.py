"""Enumerated laws against brute force."""

from itertools import product

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
