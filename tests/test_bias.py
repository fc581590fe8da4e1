"""The Markov correction: both sides equal, outside tokens refused."""

import pytest
import torch
from hypothesis import given

from impl.bias import MarkovHead, vanilla
from oracle.reference.bias import gated_bias, markov_bias, no_bias, recurrent_bias

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
    nothing = no_bias(torch.tensor([1, 2]), 4)
    assert nothing.dtype == torch.float64
    assert nothing.tolist() == [[0.0] * 4] * 2


def stored(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Values as they come back from a storage dtype."""
    return values.float().to(dtype).double()


def test_heads_round_where_they_store() -> None:
    """Three dtypes that hold different values, so that each rounding point is seen by itself."""
    draw = source(6)
    inner, outer, wide = torch.float16, torch.bfloat16, torch.float32
    w1, w2 = torch.randn(9, 4, generator=draw).to(inner), torch.randn(9, 4, generator=draw).to(wide)
    hidden = torch.randn(7, 5, generator=draw).to(outer)
    previous = torch.randint(0, 9, (7,), generator=draw)
    e, h = w1[previous].double(), hidden.double()
    w3, b3 = torch.randn(4, 9, generator=draw), torch.randn(4, generator=draw)
    affine = torch.cat([h, stored(e, outer)], 1) @ w3.double().T + b3.double()
    gate = stored(torch.sigmoid(stored(affine, outer)), inner)
    wanted = stored(stored(gate * e, inner) @ w2.double().T, wide)
    assert torch.equal(gated_bias(previous, hidden, w1, w2, w3, b3), wanted)
    w3, b3 = torch.randn(12, 13, generator=draw), torch.randn(12, generator=draw)
    state = torch.randn(7, 4, generator=draw).to(outer).double()
    joined = torch.cat([state, stored(e, outer), h], 1)
    a, c, o = stored(joined @ w3.double().T + b3.double(), outer).split(4, 1)
    bias, after = recurrent_bias(previous, hidden, state, w1, w2, w3, b3)
    assert torch.equal(bias, stored(stored(torch.tanh(o), inner) @ w2.double().T, wide))
    keep = torch.sigmoid(a)
    assert torch.equal(after, stored(keep * state + (1 - keep) * torch.tanh(c), outer))
