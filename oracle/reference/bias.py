"""What the previous token adds to the next step's logits."""

import torch

from .logits import rounded


def embedded(previous: torch.Tensor, w1: torch.Tensor) -> torch.Tensor:
    """The embedding e of the previous token.

    previous [...] int64 in [0, V); w1 [V, R]. Returns [..., R] float64 holding values of w1.dtype.
    A previous token outside [0, V) is a ValueError.
    """
    outside = (previous < 0) | (previous >= w1.shape[0])
    if bool(outside.any()):
        seen = int(previous[outside][0])
        raise ValueError(f"previous token {seen} lies outside [0, {w1.shape[0]})")
    return w1[previous].to(torch.float64)


def projected(values: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """Multiply with w2^T, rounded once to w2.dtype: [B, R] to [B, V] float64."""
    return rounded(values @ w2.to(torch.float64).T, w2.dtype)


def affine(joined: torch.Tensor, w3: torch.Tensor, b3: torch.Tensor) -> torch.Tensor:
    """w3 x + b3 without rounding: joined [B, N] float64; w3 [M, N]; b3 [M]. Returns [B, M]."""
    return joined @ w3.to(torch.float64).T + b3.to(torch.float64)


def markov_bias(previous: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor) -> torch.Tensor:
    """Vanilla Markov head: bias = w1[previous] w2^T.

    previous [B] int64 in [0, V); w1 [V, R]; w2 [V, R]. Returns [B, V] float64 holding values of
    w2.dtype. A previous token outside [0, V) is a ValueError.
    """
    return projected(embedded(previous, w1), w2)


def gated_bias(
    previous: torch.Tensor,
    hidden: torch.Tensor | None,
    w1: torch.Tensor,
    w2: torch.Tensor,
    w3: torch.Tensor,
    b3: torch.Tensor,
) -> torch.Tensor:
    """Gated Markov head: bias = w2 (sigmoid(w3 [h ; e] + b3) * e), e = w1[previous].

    previous [B] int64; hidden h [B, D], before the muP division; w1, w2 [V, R]; w3 [R, D + R];
    b3 [R]. Returns [B, V] float64 holding values of w2.dtype. Rounding points: e inside the affine
    part, and the affine part, to the dtype of h; the gate and the gated e to w1.dtype; the product
    to w2.dtype. hidden None is a ValueError.
    """
    if hidden is None:
        raise ValueError("hidden is None, required: hidden states [B, D] for a gated Markov head")
    embedding = embedded(previous, w1)
    joined = torch.cat([hidden.to(torch.float64), rounded(embedding, hidden.dtype)], dim=1)
    opening = rounded(affine(joined, w3, b3), hidden.dtype)
    gate = rounded(torch.sigmoid(opening), w1.dtype)
    gated = rounded(gate * embedding, w1.dtype)
    return projected(gated, w2)


def recurrent_bias(
    previous: torch.Tensor,
    hidden: torch.Tensor | None,
    state: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    w3: torch.Tensor,
    b3: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Recurrent Markov head: (a, c, o) = w3 [state ; e ; h] + b3 and bias = w2 tanh(o).

    previous [B] int64; hidden h [B, D], before the muP division; state [B, R] float64, zeros at
    step 0; w1, w2 [V, R]; w3 [3 R, 2 R + D]; b3 [3 R]. The bias comes from the old state. Returns
    the bias [B, V] float64 holding values of w2.dtype, and the next state sigmoid(a) * state +
    (1 - sigmoid(a)) * tanh(c), [B, R] float64. Rounding points: e inside the affine part, the
    affine part and the next state to the dtype of h; tanh(o) to w1.dtype; the product to w2.dtype.
    hidden None is a ValueError.
    """
    if hidden is None:
        raise ValueError("hidden is None, required: hidden states [B, D] for a rnn Markov head")
    embedding = rounded(embedded(previous, w1), hidden.dtype)
    joined = torch.cat([state, embedding, hidden.to(torch.float64)], dim=1)
    a, c, o = rounded(affine(joined, w3, b3), hidden.dtype).chunk(3, dim=1)
    bias = projected(rounded(torch.tanh(o), w1.dtype), w2)
    keep = torch.sigmoid(a)
    new_state = rounded(keep * state + (1 - keep) * torch.tanh(c), hidden.dtype)
    return bias, new_state


def no_bias(previous: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Return the zero correction of a family without a Markov head: [B, V] float64."""
    return torch.zeros(previous.shape[0], vocabulary, dtype=torch.float64)
