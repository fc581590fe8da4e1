"""Base logits: both sides equal, padding out of play, bad sizes refused."""

import pytest
import torch
from hypothesis import given

from impl.logits import OutputHead
from impl.logits import base_logits as folded
from oracle.reference.logits import base_logits, draft_rows

from .strategies import Shape, grid, shapes, source


@given(shapes())
def test_both_sides_agree_bit_for_bit_on_exact_products(shape: Shape) -> None:
    """P1 rounds once, from a sum that float32 holds exactly."""
    draw = source(shape.seed)
    weight = grid(draw, shape.stored, shape.hidden).to(shape.dtype)
    hidden = grid(draw, shape.rows, shape.drafts, shape.hidden)
    out = torch.empty(shape.rows, shape.drafts, shape.vocabulary, dtype=shape.dtype)
    folded(OutputHead(weight, shape.vocabulary), hidden, out)
    assert torch.equal(out.double(), base_logits(hidden, weight, shape.vocabulary))


@given(shapes())
def test_padded_rows_of_the_head_have_no_influence(shape: Shape) -> None:
    """Whatever the padding holds, NaN included, the real columns stay."""
    draw = source(shape.seed)
    weight = grid(draw, shape.vocabulary + 5, shape.hidden).to(shape.dtype)
    hidden = grid(draw, shape.rows, shape.drafts, shape.hidden)
    before = base_logits(hidden, weight, shape.vocabulary)
    weight[shape.vocabulary :] = torch.nan
    assert torch.equal(before, base_logits(hidden, weight, shape.vocabulary))


@given(shapes())
def test_the_anchor_row_is_dropped_when_it_is_not_a_query(shape: Shape) -> None:
    """The last K query rows predict drafts, in both layouts."""
    hidden = grid(source(shape.seed), shape.rows, shape.drafts + shape.dropped, shape.hidden)
    assert torch.equal(draft_rows(hidden, shape.drafts), hidden[:, shape.dropped :])


def test_a_layout_that_fits_neither_is_refused() -> None:
    """Q must be K or K + 1."""
    with pytest.raises(ValueError, match="hidden has 5 query rows, required 3 or 4"):
        draft_rows(torch.zeros(1, 5, 2), 3)


def test_more_ids_than_rows_is_refused_on_both_sides() -> None:
    """V is a number that the caller states; a head that is too short is an error."""
    weight = torch.zeros(4, 2)
    with pytest.raises(ValueError, match="vocabulary 5 exceeds the 4 rows"):
        base_logits(torch.zeros(1, 2), weight, 5)
    with pytest.raises(ValueError, match="5"):
        OutputHead(weight, 5)
