"""Margins against their formulas, number by number."""

import math

import numpy as np
import pytest
import torch

from oracle.judge import margin
from oracle.judge.margin import SMALLEST_NORMAL, UNIT, Arithmetic

EXACT = Arithmetic(1.0, 2.0, 3.0, 5.0)


@pytest.mark.parametrize(
    ("dtype", "bits", "least"), [("float32", 23, -149), ("bfloat16", 7, -133), ("float16", 10, -24)]
)
def test_the_spacing_of_each_dtype(dtype: str, bits: int, least: int) -> None:
    """One ulp at one, below and above it, on either side of zero, and among subnormals."""
    values = np.array([1.0, -1.0, 1.99, 2.0, 0.75, 2.0**least, 0.0, -0.0])
    expected = [2.0**-bits] * 3 + [2.0 ** (1 - bits), 2.0 ** (-1 - bits)] + [2.0**least] * 3
    assert margin.spacing(values, dtype).tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_two_roundings_lie_within_the_bound_of_the_stored(dtype: torch.dtype) -> None:
    """Around zero, powers of two and subnormals, and where the deviation exceeds the value."""
    source = np.random.default_rng(5)
    size = 20_000
    least = np.log2(float(torch.finfo(dtype).tiny))
    deviation = 2.0 ** source.uniform(least - 12, 6, size)
    power = 2.0 ** source.integers(-8, 8, size).astype(np.float64)
    shares = source.uniform(-2, 2, size) * deviation
    x = source.choice([-1.0, 1.0], size) * (source.choice([0.0, 1.0], size) * power + shares)
    x[::5] = 0.0
    y = x + source.choice([-1.0, 1.0, 0.5], size) * deviation
    rounded_x, rounded_y = (torch.from_numpy(z).to(dtype).double().numpy() for z in (x, y))
    name = str(dtype).removeprefix("torch.")
    apart = np.abs(rounded_y - rounded_x)
    for values in (x, rounded_x):
        bound = margin.stored(values, deviation, name)
        assert (apart <= bound).all()
        assert (apart / bound).max() > 0.9
    far = margin.stored(np.array([math.nan, math.inf]), np.array([0.0, 0.75]), "bfloat16")
    assert far.tolist() == [2.0**-133, 0.75 + 2.0**-8]


def test_a_bound_at_zero_is_no_wider_than_what_is_inherited() -> None:
    """Terms that cancel leave their own roundings; terms that are zero leave nothing."""
    hidden = margin.factor(np.array([[1 / 3, 1 / 3], [0.0, 0.0]]))
    weight = margin.factor(np.array([[0.3, -0.3]]))
    bound = margin.product(hidden, weight, "bfloat16")
    growth = 2 * UNIT / (1 - 2 * UNIT) * 0.2
    assert bound[0, 0] == pytest.approx(growth * (1 + 2.0**-7), rel=2.0**-8)
    assert bound[1, 0] == 0.0
    step = margin.step(np.array([2.0**-20]), np.zeros(1), np.zeros(1), "bfloat16")
    assert step.tolist() == [2.0**-20 * (1 + 2.0**-23 + 2.0**-7)]


def test_the_grid_of_values_is_their_largest_common_power() -> None:
    """Three quarters and five halves are multiples of a quarter; zero and NaN of anything."""
    assert margin.granularity(np.array([0.75, -2.5, 0.0, math.nan, math.inf])) == -2.0
    assert margin.granularity(np.array([12.0, 8.0])) == 2.0
    assert margin.granularity(np.array([1.0])) == 0.0
    assert margin.granularity(np.array([1 + 2.0**-52])) == -52.0
    assert margin.granularity(np.array([0.0, math.inf])) == math.inf
    assert margin.finite(np.array([1.5, math.nan, -math.inf])).tolist() == [1.5, 0.0, 0.0]


def test_a_factor_is_measured_column_by_column() -> None:
    """Signs and values that are no numbers do not count."""
    one = margin.factor(np.array([[1.0, -4.0], [-2.0, math.nan]]))
    assert one.values.tolist() == [[1.0, -4.0], [-2.0, 0.0]]
    assert one.magnitudes.tolist() == [[1.0, 4.0], [2.0, 0.0]]
    assert one.largest.tolist() == [2.0, 4.0]
    assert one.grid == 0.0


def test_a_product_is_exact_below_2_to_the_24_steps() -> None:
    """The sum of the largest magnitudes in units of both grids decides, the bound excluded."""
    edge = margin.factor(np.array([[2.0**24, 0.0], [0.0, 1.0]]))
    ones = margin.factor(np.array([[1.0, 0.0]]))
    assert margin.product(edge, ones, "float32").max() > 0
    below = margin.factor(np.array([[2.0**24 - 1, 0.0], [0.0, 1.0]]))
    assert margin.product(below, ones, "float32").tolist() == [[0.0], [0.0]]
    # Quarters of both factors, sixteenths of the products: 2^20 of them are a whole 2^24 steps.
    quarters = margin.factor(np.array([[0.25, 0.0], [0.0, 2.0**19]]))
    for second, exact in ((2.0 - 0.25, True), (2.0, False)):
        weight = margin.factor(np.array([[0.25, second]]))
        assert (margin.product(quarters, weight, "float32") == 0).all() == exact
    nothing = margin.factor(np.zeros((2, 3)))
    assert margin.product(nothing, margin.factor(np.zeros((5, 3))), "float32").shape == (2, 5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_product_that_is_rounded_has_the_bound_of_its_sum(dtype: str) -> None:
    """n u / (1 - n u) times the magnitudes, and one ulp of the result."""
    hidden = np.array([[1 / 3, -2.0, 5.0], [1e-3, 0.7, 0.1]])
    weight = np.array([[0.3, 0.9, -1.7], [2 / 3, 11.0, 0.01]])
    bound = margin.product(margin.factor(hidden), margin.factor(weight), dtype)
    growth = 3 * UNIT / (1 - 3 * UNIT)
    for i, row in enumerate(hidden):
        for j, other in enumerate(weight):
            size = sum(abs(a * b) for a, b in zip(row, other, strict=True))
            ulp = float(margin.spacing(np.array([row @ other]), dtype)[0])
            assert bound[i, j] == pytest.approx(growth * size + ulp, rel=1e-12)


def test_a_step_inherits_and_rounds_twice() -> None:
    """Base and bias bounds add up; the sum is rounded to float32 and to the step dtype."""
    base, bias = np.array([0.25, 0.0, 0.5]), np.array([0.5, 0.0, 0.0])
    logits = np.array([3.0, 3.0, -9.0])
    bound = margin.step(base, bias, logits, "bfloat16")
    assert bound.tolist() == [0.75 + 2.0**-22 + 2.0**-6, 0.0, 0.5 + 2.0**-20 + 2.0**-4]
    assert margin.step(0 * base, 0 * bias, logits, "bfloat16").tolist() == [0.0] * 3


def test_the_bounds_of_a_counter_key() -> None:
    """One division, one logarithm, one subtraction, and E itself; the same both ways."""
    down, up = margin.key_bounds(np.array([[-7.0, 2.0]]), np.array([[0.5, -3.0]]), "counter", EXACT)
    assert down.tolist() == [[UNIT * (7 + 2 * 0.5 + 7.5 + 3), UNIT * (2 + 2 * 3 + 5 + 3)]]
    assert np.array_equal(down, up)


def test_the_bounds_of_a_race_key() -> None:
    """Its own division and that of the row's largest, the difference, exp, and two roundings."""
    whole = np.array([[3.0, -1.0, -120.0], [0.0, 0.0, -80.0]])
    down, up = margin.key_bounds(whole, np.full((2, 3), 9.0), "race", EXACT)
    first = UNIT * np.array([3 + 3 + 0 + 7, 1 + 3 + 4 + 7, 120 + 3 + 123 + 7])
    assert down[0, :2] == pytest.approx(first[:2], rel=1e-12)
    assert up[0, :2] == pytest.approx(first[:2], rel=1e-12)
    log_sum = math.log(1 + math.exp(-4))
    missing = math.log(SMALLEST_NORMAL) + 123 + log_sum
    assert down[0, 2] == math.inf
    assert up[0, 2] == pytest.approx(missing + first[2], rel=1e-12)
    # e^-80 / 2 is a normal number still.
    assert down[1].tolist() == pytest.approx([UNIT * 7, UNIT * 7, UNIT * 167], rel=1e-12)
    # e^-88 is none, though not by much.
    barely = margin.key_bounds(np.array([[0.0, -88.0]]), np.zeros((1, 2)), "race", EXACT)
    short = math.log(SMALLEST_NORMAL) + 88
    assert 0 < short < 1
    assert barely[0][0, 1] == math.inf
    assert barely[1][0, 1] == pytest.approx(short + UNIT * 183, rel=1e-9)
    some = margin.key_bounds(whole[:, 1:], np.full((2, 2), 9.0), "race", EXACT, whole)
    assert np.array_equal(some[0], down[:, 1:])
    assert np.array_equal(some[1], up[:, 1:])


def test_the_near_tie_rate_of_two_ids() -> None:
    """One minus the chances that either leads by more than the window."""
    window = 0.2
    leads = [p / (p + (1 - p) * math.exp(window)) for p in (0.3, 0.7)]
    rate = margin.near_tie_rate(np.array([[0.3, 0.7], [1.0, 0.0]]), window)
    assert rate == pytest.approx([1 - sum(leads), 0.0], rel=1e-12)
