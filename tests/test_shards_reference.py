"""The winner from the pieces of a vocabulary equals the winner of the whole."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.reference.choice import winner
from oracle.reference.shards import best, candidate, pieces, sharded_winner

from .strategies import grid, source, spoiled

WIDTHS = st.lists(st.integers(0, 7), min_size=1, max_size=6).filter(any)


@given(WIDTHS, st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_pieces_have_the_winner_of_the_whole(widths: list[int], rows: int, seed: int) -> None:
    """Uneven and empty pieces, ties, NaN, infinities and rows without anything finite."""
    draw = source(seed)
    keys = spoiled(draw, grid(draw, rows, sum(widths), largest=2)).double()
    assert torch.equal(sharded_winner(keys, widths), winner(keys))


@given(WIDTHS, st.integers(0, 2**32 - 1))
def test_the_order_of_the_ranks_has_no_influence(widths: list[int], seed: int) -> None:
    """Ids decide ties, not the place of a rank in a gather."""
    draw = source(seed)
    keys = spoiled(draw, grid(draw, 8, sum(widths), largest=1)).double()
    found = [candidate(piece, start) for piece, start in pieces(keys, widths) if piece.shape[1]]
    assert torch.equal(best(found[::-1]), winner(keys))


def test_a_tie_across_an_edge_goes_to_the_lower_id() -> None:
    """Equal keys on two ranks, the second of them empty in between."""
    keys = torch.tensor([[0.0, 2.0, 2.0, 1.0]], dtype=torch.float64)
    assert sharded_winner(keys, [2, 0, 2]).tolist() == [1]


def test_widths_that_miss_columns_are_refused() -> None:
    """Pieces cover the vocabulary."""
    with pytest.raises(ValueError, match="widths add up to 3, required 4"):
        pieces(torch.zeros(1, 4), [1, 2])
