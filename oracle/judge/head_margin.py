"""P1 for heads that squash: how far a correct low-precision gate or state may lie from float64.

Every elementary function is taken to be within four float32 units of its value; sigmoid has slope
at most 1/4 and tanh at most 1, and both stay below 1 in magnitude.
"""

import numpy as np

from .margin import UNIT, Factor, Floats, spacing, stored

FUNCTION = 4 * UNIT


def affine_bound(inputs: Floats, deviation: Floats, w3: Floats, b3: Floats, dtype: str) -> Floats:
    """Bound on w3 x + b3 in `dtype`, given a bound on x: inputs, deviation [..., n]."""
    terms = w3.shape[1] + 1
    growth = terms * UNIT / (1 - terms * UNIT)
    magnitude = (np.abs(inputs) + deviation) @ np.abs(w3).T + np.abs(b3)
    return stored(inputs @ w3.T + b3, growth * magnitude + deviation @ np.abs(w3).T, dtype)


def projected_bound(values: Floats, deviation: Floats, w2: Factor, dtype: str) -> Floats:
    """Bound on w2 v in `dtype`, given a bound on v: values, deviation [..., R]."""
    terms = w2.values.shape[1]
    growth = terms * UNIT / (1 - terms * UNIT)
    inherited = deviation @ w2.magnitudes.T
    accumulated = growth * (np.abs(values) @ w2.magnitudes.T + inherited)
    return stored(values @ w2.values.T, accumulated + inherited, dtype)


def gated_bound(
    hidden: Floats,
    embedded: Floats,
    w3: Floats,
    b3: Floats,
    w2: Factor,
    hidden_dtype: str,
    embedded_dtype: str,
    dtype: str,
) -> Floats:
    """Bound on the bias of a gated head: hidden [B, K, D], embedded [B, K, R]; result [B, K, V]."""
    joined = np.concatenate([hidden, embedded], -1)
    logit = affine_bound(joined, np.zeros_like(joined), w3, b3, hidden_dtype)
    gate = logit / 4 + FUNCTION + spacing(np.ones(1), embedded_dtype)
    weight = 1 / (1 + np.exp(-(joined @ w3.T + b3)))
    values = weight * embedded
    deviation = stored(values, gate * np.abs(embedded), embedded_dtype)
    return projected_bound(values, deviation, w2, dtype)


def recurrent_bounds(
    hidden: Floats,
    embedded: Floats,
    w3: Floats,
    b3: Floats,
    w2: Factor,
    hidden_dtype: str,
    embedded_dtype: str,
    dtype: str,
) -> Floats:
    """Bound on the bias of a recurrent head; the deviation of its state is carried along."""
    rows, steps, rank = embedded.shape
    state, deviation = np.zeros((rows, rank)), np.zeros((rows, rank))
    bounds = []
    for k in range(steps):
        joined = np.concatenate([state, embedded[:, k], hidden[:, k]], -1)
        still = np.zeros((rows, joined.shape[1] - rank))
        logits = joined @ w3.T + b3
        off = affine_bound(joined, np.concatenate([deviation, still], -1), w3, b3, hidden_dtype)
        a, c, o = np.split(logits, 3, axis=-1)
        a_off, c_off, o_off = np.split(off, 3, axis=-1)
        values = np.tanh(o)
        squashed = o_off + FUNCTION + spacing(np.ones(1), embedded_dtype)
        bounds.append(projected_bound(values, squashed, w2, dtype))
        keep, new = 1 / (1 + np.exp(-a)), np.tanh(c)
        keep_off = a_off / 4 + FUNCTION + spacing(np.ones(1), hidden_dtype)
        new_off = c_off + FUNCTION + spacing(np.ones(1), hidden_dtype)
        span = np.abs(state) + np.abs(new) + 2
        deviation = deviation + keep_off * span + new_off + 3 * spacing(np.ones(1), hidden_dtype)
        state = keep * state + (1 - keep) * new
    return np.stack(bounds, 1)
