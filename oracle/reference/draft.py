"""The block: K steps, each fed with the token before it."""

from collections.abc import Callable

import torch

from .bias import markov_bias, no_bias
from .choice import flags, step_logits, token, winner

Bias = Callable[[torch.Tensor], torch.Tensor]


def vanilla(w1: torch.Tensor, w2: torch.Tensor) -> Bias:
    """Bind the factors of a vanilla Markov head: previous [B] -> bias [B, V]."""
    return lambda previous: markov_bias(previous, w1, w2)


def without_bias(vocabulary: int) -> Bias:
    """Bind the zero correction: previous [B] -> zeros [B, V]."""
    return lambda previous: no_bias(previous, vocabulary)


def markov_block(
    base: torch.Tensor,
    anchor: torch.Tensor,
    bias: Bias,
    temperature: torch.Tensor,
    greedy: torch.Tensor,
    noise: torch.Tensor,
    dialect: str,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """DSPARK: draft a block, the token before feeding the bias of each step.

    base [B, K, V] float64; anchor [B] int64; temperature [B] float64; greedy [B] bool; noise
    [B, K, V] float64; dtype the step dtype. Returns tokens [B, K] int64, step logits [B, K, V]
    float64 and flags [B, K] uint8.
    """
    previous = anchor
    tokens, kept, marks = [], [], []
    for k in range(base.shape[1]):
        logits = step_logits(base[:, k], bias(previous), dtype)
        previous = token(logits, temperature, greedy, noise[:, k], dialect)
        tokens.append(previous)
        kept.append(logits)
        marks.append(flags(logits))
    return torch.stack(tokens, 1), torch.stack(kept, 1), torch.stack(marks, 1)


def walked_logits(
    base: torch.Tensor, anchor: torch.Tensor, tokens: torch.Tensor, bias: Bias, dtype: torch.dtype
) -> torch.Tensor:
    """Step logits of a block that was already drafted, each step fed with the token drawn before.

    base [B, K, V] float64; anchor [B], tokens [B, K] int64. Returns [B, K, V] float64 (P2).
    """
    before = torch.cat([anchor.unsqueeze(1), tokens[:, :-1]], dim=1)
    steps = [step_logits(base[:, k], bias(before[:, k]), dtype) for k in range(base.shape[1])]
    return torch.stack(steps, 1)


def greedy_block(base: torch.Tensor, vocab_start: int = 0) -> torch.Tensor:
    """DFLASH: the argmax of every position, as global ids.

    base [B, K, V] float64; vocab_start the global id of column 0. Returns [B, K] int64.
    """
    return winner(base) + vocab_start
