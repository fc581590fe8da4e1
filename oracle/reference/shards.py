"""A vocabulary cut into contiguous pieces, one a rank, and the same winner from the pieces."""

from collections.abc import Sequence
from itertools import accumulate

import torch

from .choice import winner

Candidate = tuple[torch.Tensor, torch.Tensor]


def pieces(keys: torch.Tensor, widths: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
    """Cut keys [B, V] into one piece [B, width] a rank, in ascending order, with its first id.

    Widths may be zero. Widths that do not add up to V are a ValueError.
    """
    if sum(widths) != keys.shape[1]:
        raise ValueError(f"widths add up to {sum(widths)}, required {keys.shape[1]}")
    starts = [0, *accumulate(widths)]
    return [
        (keys[:, start : start + width], start)
        for start, width in zip(starts, widths, strict=False)
    ]


def candidate(piece: torch.Tensor, vocab_start: int) -> Candidate:
    """The winner of one piece [B, width > 0], as key [B] float64 and global id [B] int64."""
    local = winner(piece)
    key = piece.gather(1, local.unsqueeze(1)).squeeze(1)
    return key, local + vocab_start


def best(candidates: Sequence[Candidate]) -> torch.Tensor:
    """The candidate of every rank to one id a row: a NaN first, then the largest key, lowest id.

    Whatever the order of the ranks. Returns [B] int64.
    """
    keys = torch.stack([key for key, _ in candidates], dim=1)
    ids = torch.stack([own for _, own in candidates], dim=1)
    nan = keys.isnan()
    largest = keys == keys.amax(dim=1, keepdim=True)
    leading = torch.where(nan.any(dim=1, keepdim=True), nan, largest)
    return torch.where(leading, ids, torch.iinfo(torch.int64).max).amin(dim=1)


def sharded_winner(keys: torch.Tensor, widths: Sequence[int]) -> torch.Tensor:
    """The winner of keys [B, V] float64 from its pieces; an empty piece has no candidate.

    widths: columns of each rank, V together, at least one above zero. Returns [B] int64.
    """
    filled = [(piece, start) for piece, start in pieces(keys, widths) if piece.shape[1] > 0]
    return best([candidate(piece, start) for piece, start in filled])
