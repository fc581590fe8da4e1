"""The block: K steps, each fed with the token before it."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from .bias import gated_bias, markov_bias, no_bias, recurrent_bias
from .choice import flags, step_logits, token, winner

Step = Callable[
    [torch.Tensor, torch.Tensor | None, torch.Tensor], tuple[torch.Tensor, torch.Tensor]
]


class Head(NamedTuple):
    """A Markov head bound to its weights.

    start [R] float64 the state of every row at step 0, empty without a state; step maps previous
    [B], hidden [B, D] of this step and state [B, R] to the bias [B, V] and the next state; hidden
    [B, K, D] the draft rows of the block, before the muP division, for a head that reads them.
    """

    start: torch.Tensor
    step: Step
    hidden: torch.Tensor | None = None

    def __call__(self, previous: torch.Tensor) -> torch.Tensor:
        """The bias [B, V] after previous [B], of a head that reads no hidden states."""
        return self.step(previous, None, self.started(previous))[0]

    def started(self, anchor: torch.Tensor) -> torch.Tensor:
        """The state [B, R] before step 0, one row for each anchor [B]."""
        return self.start.expand(anchor.shape[0], -1)

    def at(self, k: int) -> torch.Tensor | None:
        """The hidden states [B, D] of step k, or None when the head was bound without any."""
        return None if self.hidden is None else self.hidden[:, k]


STATELESS = torch.zeros(0, dtype=torch.float64)


def vanilla(w1: torch.Tensor, w2: torch.Tensor) -> Head:
    """Bind the factors w1, w2 [V, R] of a vanilla head."""
    return Head(STATELESS, lambda previous, _, state: (markov_bias(previous, w1, w2), state))


def gated(
    hidden: torch.Tensor | None,
    w1: torch.Tensor,
    w2: torch.Tensor,
    w3: torch.Tensor,
    b3: torch.Tensor,
) -> Head:
    """Bind a gated head to its weights and to the draft rows hidden [B, K, D] of a block."""
    return Head(
        STATELESS,
        lambda previous, row, state: (gated_bias(previous, row, w1, w2, w3, b3), state),
        hidden,
    )


def recurrent(
    hidden: torch.Tensor | None,
    w1: torch.Tensor,
    w2: torch.Tensor,
    w3: torch.Tensor,
    b3: torch.Tensor,
) -> Head:
    """Bind a recurrent head to its weights and to the draft rows hidden [B, K, D] of a block."""
    return Head(
        torch.zeros(w1.shape[1], dtype=torch.float64),
        lambda previous, row, state: recurrent_bias(previous, row, state, w1, w2, w3, b3),
        hidden,
    )


def without_bias(vocabulary: int) -> Head:
    """Bind the zero correction of a vocabulary V."""
    return Head(STATELESS, lambda previous, _, state: (no_bias(previous, vocabulary), state))


def markov_block(
    base: torch.Tensor,
    anchor: torch.Tensor,
    head: Head,
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
    previous, state = anchor, head.started(anchor)
    tokens, kept, marks = [], [], []
    for k in range(base.shape[1]):
        bias, state = head.step(previous, head.at(k), state)
        logits = step_logits(base[:, k], bias, dtype)
        previous = token(logits, temperature, greedy, noise[:, k], dialect)
        tokens.append(previous)
        kept.append(logits)
        marks.append(flags(logits))
    return torch.stack(tokens, 1), torch.stack(kept, 1), torch.stack(marks, 1)


def tokens_before(anchor: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The token before each draft: anchor [B], tokens [B, K] int64. Returns [B, K] int64."""
    return torch.cat([anchor.unsqueeze(1), tokens[:, :-1]], dim=1)


def walked_logits(
    base: torch.Tensor, anchor: torch.Tensor, tokens: torch.Tensor, head: Head, dtype: torch.dtype
) -> torch.Tensor:
    """Step logits of a block that was already drafted, each step fed with the token drawn before.

    base [B, K, V] float64; anchor [B], tokens [B, K] int64. Returns [B, K, V] float64 (P2).
    """
    before, state = tokens_before(anchor, tokens), head.started(anchor)
    kept = []
    for k in range(base.shape[1]):
        bias, state = head.step(before[:, k], head.at(k), state)
        kept.append(step_logits(base[:, k], bias, dtype))
    return torch.stack(kept, 1)


def greedy_block(base: torch.Tensor, vocab_start: int = 0) -> torch.Tensor:
    """DFLASH: the argmax of every position, as global ids.

    base [B, K, V] float64; vocab_start the global id of column 0. Returns [B, K] int64.
    """
    return winner(base) + vocab_start
