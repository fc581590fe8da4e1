"""What the previous token adds to the next step's logits."""

import torch

from .logits import rounded


def markov_bias(previous: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """Vanilla Markov head: bias = w1[previous] w2^T.

    previous [B] int64 in [0, V); w1 [V, R]; w2 [V, R]. Returns [B, V] float64 holding values of
    w2.dtype. A previous token outside [0, V) is a ValueError.
    """
    outside = (previous < 0) | (previous >= w1.shape[0])
    if bool(outside.any()):
        seen = int(previous[outside][0])
        raise ValueError(f"previous token {seen} lies outside [0, {w1.shape[0]})")
    embedding = w1[previous].to(torch.float64)
    projection = w2.to(torch.float64)
    return rounded(embedding @ projection.T, w2.dtype)


def no_bias(previous: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Return the zero correction of a family without a Markov head: [B, V] float64."""
    return torch.zeros(previous.shape[0], vocabulary, dtype=torch.float64)
