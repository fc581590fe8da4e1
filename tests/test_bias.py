"""The Markov correction: both sides equal, outside tokens refused."""

import pytest
import torch
from hypothesis import given

from impl.bias import MarkovHead, vanilla
from oracle.reference.bias import markov_bias, no_bias

from .strategies import Shape, grid, shapes, source


@given(shapes())
def test_both_sides_agree_bit_for_bit_on_exact_products(shape: Shape) -> None:
    """The bias is rounded once, to the dtype of w2."""
    draw = source(shape.seed)
    w1 = grid(draw, shape.vocabulary, shape.rank).to(shape.dtype)
    w2 = grid(draw, shape.vocabulary, shape.rank).to(shape.dtype)
    previous = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    folded, _ = vanilla(MarkovHead(w1, w2), previous, None, None)
    assert folded.dtype == shape.dtype
    assert torch.equal(folded.double(), markov_bias(previous, w1, w2))


@pytest.mark.parametrize("token", [-1, 3])
def test_a_previous_token_outside_the_vocabulary_is_refused(token: int) -> None:
    """The reference never wraps an index around."""
    with pytest.raises(ValueError, match=rf"previous token {token} lies outside \[0, 3\)"):
        markov_bias(torch.tensor([0, token]), torch.zeros(3, 2), torch.zeros(3, 2))


def test_no_bias_is_zero() -> None:
    """A family without a Markov head adds nothing."""
    assert torch.equal(no_bias(torch.tensor([1, 2]), 4), torch.zeros(2, 4, dtype=torch.float64))
