"""Bounds of heads that squash, against heads that err as much as the bounds allow."""

import numpy as np
import pytest
import torch

from oracle.judge import head_margin, margin
from oracle.judge.margin import UNIT
from oracle.reference import bias

from .strategies import DTYPES, source

ROWS, DRAFTS, HIDDEN, RANK, VOCABULARY = 300, 3, 24, 8, 40


def as_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as float64 values."""
    return tensor.double().numpy()


def summed(x: torch.Tensor, w: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """x w^T in float64, off by up to one unit for each term: some order of a float32 sum."""
    x, w = x.double(), w.double()
    size = x.abs() @ w.abs().T
    return x @ w.T + x.shape[1] * UNIT * size * (2 * torch.rand(size.shape, generator=draw) - 1)


def erring(values: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """Values of an elementary function, off by up to four units."""
    return values * (1 + 4 * UNIT * (2 * torch.rand(values.shape, generator=draw) - 1))


@pytest.mark.parametrize("kind", ["gated", "rnn"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_heads_stay_inside_their_margin(dtype: torch.dtype, kind: str) -> None:
    """A bias lies within the bound of the reference, with embeddings that are small or zero too."""
    draw = source(7)
    hidden = torch.randn(ROWS, DRAFTS, HIDDEN, generator=draw).to(dtype)
    w1, w2 = (torch.randn(VOCABULARY, RANK, generator=draw).to(dtype) for _ in range(2))
    w1[:4] = 0.0
    w1[4:12] *= 2.0**-12
    w2[:, RANK // 2 :] = -w2[:, : RANK // 2]
    outputs, state_size = (RANK, 0) if kind == "gated" else (3 * RANK, RANK)
    w3 = torch.randn(outputs, state_size + HIDDEN + RANK, generator=draw) / 4
    b3 = torch.randn(outputs, generator=draw)
    before = torch.randint(0, VOCABULARY, (ROWS, DRAFTS), generator=draw)
    computed, exact = [], []
    state, known = torch.zeros(ROWS, RANK).to(dtype), torch.zeros(ROWS, RANK).double()
    constant = torch.ones(ROWS, 1)
    for k in range(DRAFTS):
        now, row = w1[before[:, k]], hidden[:, k]
        inputs = [row, now] if kind == "gated" else [state, now, row]
        joined = torch.cat([*(part.float() for part in inputs), constant], 1)
        opening = summed(joined, torch.cat([w3, b3[:, None]], 1), draw).to(dtype).double()
        if kind == "gated":
            gate = erring(torch.sigmoid(opening), draw).to(dtype)
            values = (gate.double() * now.double()).to(dtype)
            exact.append(bias.gated_bias(before[:, k], row, w1, w2, w3, b3))
        else:
            a, c, o = opening.chunk(3, 1)
            values = erring(torch.tanh(o), draw).to(dtype)
            keep, new = erring(torch.sigmoid(a), draw), erring(torch.tanh(c), draw)
            state = (keep * state.double() + (1 - keep) * new).to(dtype)
            found, known = bias.recurrent_bias(before[:, k], row, known, w1, w2, w3, b3)
            exact.append(found)
        computed.append(summed(values, w2, draw).to(dtype))
    name = str(dtype).removeprefix("torch.")
    bounds = head_margin.gated_bound if kind == "gated" else head_margin.recurrent_bounds
    h, e = as_numpy(hidden), as_numpy(w1[before])
    w2_factor = margin.factor(as_numpy(w2))
    bound = bounds(h, e, as_numpy(w3), as_numpy(b3), w2_factor, name, name, name)
    off = np.abs(as_numpy(torch.stack(computed, 1)) - as_numpy(torch.stack(exact, 1)))
    assert (off <= bound).all()
    assert (off / bound).max() > 0.05


def test_an_embedding_of_zeros_has_a_bias_of_zero() -> None:
    """Its bound is next to zero, and no unit in the last place of one."""
    w3, b3 = np.ones((RANK, HIDDEN + RANK)), np.zeros(RANK)
    w2 = margin.factor(np.ones((VOCABULARY, RANK)))
    hidden, embedded = np.ones((1, 1, HIDDEN)), np.zeros((1, 1, RANK))
    low = "bfloat16"
    bound = head_margin.gated_bound(hidden, embedded, w3, b3, w2, low, low, low)
    assert bound.shape == (1, 1, VOCABULARY)
    assert bound.max() < 1e-37
