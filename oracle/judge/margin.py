"""How far a correct low-precision value may lie from float64.

u = 2^-24 is the unit roundoff of float32. Bounds are derived, not fitted; each names the rounding
point it belongs to. `ARITHMETIC` holds the errors of the elementary functions of one stage set.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

UNIT = 2.0**-24
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
# Bits of the significand, the hidden one included, and the exponent of the smallest subnormal.
SIGNIFICAND = {"float32": 24, "bfloat16": 8, "float16": 11}
LOWEST_EXPONENT = {"float32": -149, "bfloat16": -133, "float16": -24}


@dataclass(frozen=True)
class Arithmetic:
    """Errors of elementary functions in units of UNIT, relative to the result: 1 is exact rounding.

    divide: l / T. logarithm: log E. exponential_variable: E itself. exponential: exp in softmax.
    """

    divide: float
    logarithm: float
    exponential_variable: float
    exponential: float


# CPU: swept over 1.4e8 keys. CUDA: the largest errors that NVIDIA's programming guide states for
# logf and log1pf (1 ulp) and expf (2 ulp), an ulp being at most two units. Triton: a quotient that
# is rounded to nearest, and one polynomial for both logarithms, 1.41 units over 1.6e7 values.
ARITHMETIC = {
    "torch-cpu": Arithmetic(1.0, 2.0, 2.0, 2.0),
    "torch-cuda": Arithmetic(1.0, 2.0, 2.0, 4.0),
    "triton-cuda": Arithmetic(1.0, 2.0, 2.0, 4.0),
    # Kernels as Triton compiles them unasked: a quotient within 2 ulp, and lg2.approx, whose error
    # is absolute near 1 (2^-22, four units): it counts like an error of E.
    "triton-approx-cuda": Arithmetic(4.0, 4.0, 8.0, 4.0),
}


def spacing(values: Floats, dtype: str) -> Floats:
    """Distance between neighbouring numbers of `dtype` at each value (one ulp).

    At zero that is the smallest subnormal.
    """
    _, exponent = np.frexp(np.abs(values))
    lowest = np.maximum(exponent - SIGNIFICAND[dtype], LOWEST_EXPONENT[dtype])
    lowest = np.where(values == 0, LOWEST_EXPONENT[dtype], lowest)
    return np.asarray(np.ldexp(1.0, lowest), dtype=np.float64)


def finite(values: Floats) -> Floats:
    """The values with every NaN and infinity replaced by zero: they obey rules, not bounds."""
    return np.where(np.isfinite(values), values, 0.0)


def stored(values: Floats, deviation: Floats, dtype: str) -> Floats:
    """Bound on |fl(y) - fl(x)|, both rounded to `dtype`, where |y - x| is at most the deviation.

    Each rounding moves by half a unit in the last place, at most that of |x| + deviation. The
    values may be x or fl(x); NaN and infinities count as zero.
    """
    return deviation + spacing(np.abs(finite(values)) + deviation, dtype)


def granularity(values: Floats) -> float:
    """log2 of the largest power of two that divides all finite values; +inf when all are zero."""
    present = values[np.isfinite(values) & (values != 0)]
    if present.size == 0:
        return np.inf
    mantissa, exponent = np.frexp(present)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    trailing = np.log2((whole & -whole).astype(np.float64))
    return float(np.min(exponent - 53 + trailing))


@dataclass(frozen=True)
class Factor:
    """One factor of a product, measured once: |values| [rows, D], its column maxima, its grid."""

    values: Floats
    magnitudes: Floats
    largest: Floats
    grid: float


def factor(values: Floats) -> Factor:
    """Measure a factor [rows, D]; NaN and infinities count as zero."""
    present = finite(values)
    magnitudes = np.abs(present)
    return Factor(present, magnitudes, magnitudes.max(axis=0), granularity(present))


def product(hidden: Factor, weight: Factor, dtype: str) -> Floats:
    """P1: bound on |computed - reference| of hidden weight^T, stored in `dtype`.

    hidden [rows, D], weight [V, D], both holding values of the dtype. Returns [rows, V]. Zero when
    every sum is exact in float32 in any order: all terms are multiples of one g and no sum of
    magnitudes reaches 2^24 g. Else n u / (1 - n u) times the sum of magnitudes (Higham, Accuracy
    and Stability, 2002, eq. 3.5), as it is `stored`; zero again where all terms are zero.
    """
    largest_sum = float((hidden.largest * weight.largest).sum())
    if largest_sum < 2.0 ** min(24 + hidden.grid + weight.grid, 1000.0):
        return np.zeros((len(hidden.values), len(weight.values)))
    terms = hidden.values.shape[-1]
    growth = terms * UNIT / (1 - terms * UNIT)
    accumulated = growth * (hidden.magnitudes @ weight.magnitudes.T)
    rounded = stored(hidden.values @ weight.values.T, accumulated, dtype)
    return np.where(accumulated > 0, rounded, 0.0)


def step(base_bound: Floats, bias_bound: Floats, logits: Floats, dtype: str) -> Floats:
    """P2: bound on the step logits, given bounds on base and bias; zero when both are exact."""
    inherited = base_bound + bias_bound
    if not inherited.any():
        return inherited
    rounded = stored(logits, stored(logits, inherited, "float32"), dtype)
    return np.where(inherited > 0, rounded, 0.0)


def key_bounds(
    scaled: Floats,
    log_noise: Floats,
    dialect: str,
    arithmetic: Arithmetic,
    whole: Floats | None = None,
) -> tuple[Floats, Floats]:
    """P3: how far each computed key may lie below and above l / T - log E.

    scaled [rows, V] = l / T, log_noise [rows, V] = log E, both float64. Counter: one division, one
    logarithm, one subtraction, and E itself. Race: E is data, the rounding of the softmax sum is
    common to a row and cancels; a probability below the smallest normal float32 may be flushed to
    zero or rounded up to that number, so such a key has no lower bound.

    whole [rows, V]: the complete rows, where scaled and log_noise hold a few columns of them.
    """
    if dialect == "counter":
        key = scaled - log_noise
        relative = (
            arithmetic.divide * np.abs(scaled)
            + arithmetic.logarithm * np.abs(log_noise)
            + np.abs(key)
            + arithmetic.exponential_variable
        )
        return UNIT * relative, UNIT * relative
    rows = scaled if whole is None else whole
    top = rows.max(axis=-1, keepdims=True)
    below = scaled - top
    relative = (
        arithmetic.divide * (np.abs(scaled) + np.abs(top))
        + np.abs(below)
        + arithmetic.exponential
        + 2.0
    )
    log_sum = np.log(np.exp(rows - top).sum(axis=-1, keepdims=True))
    missing = np.log(SMALLEST_NORMAL) - (below - log_sum)
    down = np.where(missing > 0, np.inf, UNIT * relative)
    return down, np.where(missing > 0, missing, 0.0) + UNIT * relative


def near_tie_rate(law: Floats, window: float) -> Floats:
    """Probability that the two best keys of a race lie within `window`, for each row of a law.

    law [rows, V]. Winner i leads by more than w with probability p_i / (p_i + (1 - p_i) e^w).
    """
    stretch = np.expm1(window)
    others = 1.0 - law
    tied = law * stretch * others / (1.0 + stretch * others)
    return np.asarray(tied.sum(axis=-1), dtype=np.float64)
