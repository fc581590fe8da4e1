"""The law of noise number by number: lattices of a few points, tallies by hand, what is stated."""

import math
from bisect import bisect_left
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from oracle.judge import lattice
from oracle.judge.lattice import (
    COUNTER,
    GRIDS,
    OCTAVES,
    PAIRED,
    RACE_CPU,
    RACE_CUDA,
    Lattice,
    Tally,
)

ALARM = 1e-9
HALVES = Lattice("halves", 2, 0.25, 0.5, 0.0, 0.1)
LUMPED = Lattice("lumped", 2, 0.25, 1.0, 0.5, 0.1)


def from_uniform(*f: float) -> np.ndarray:
    """The noise of these uniforms."""
    return -np.log1p(-np.array(f))


def gridded(**looked: tuple[int, int]) -> Tally:
    """A tally of nothing but grids: g20=(7, 5) has looked at 7 values and found 5 on 2^-20."""
    tally = Tally()
    for name, (seen, near) in looked.items():
        tally.seen[int(name[1:])], tally.near[int(name[1:])] = seen, near
    return tally


def test_a_dialect_declares_a_lattice() -> None:
    """The counter everywhere, the race by its device."""
    assert lattice.declared("counter", "cuda:1") is lattice.declared("counter", "cpu") is COUNTER
    assert lattice.declared("race", "cuda:1") is RACE_CUDA
    assert lattice.declared("race", "cpu") is RACE_CPU


def test_the_mass_below_a_value_is_counted_in_points() -> None:
    """Four points of a quarter; three, the lowest half as heavy again; none at all."""
    f = (0.0, 0.1, 0.2, 0.3, 0.6, 0.99)
    assert HALVES.below(from_uniform(*f)).tolist() == [0.0, 0.0, 0.25, 0.25, 0.5, 1.0]
    assert LUMPED.below(from_uniform(*f)).tolist() == [0.0, 0.0, 0.0, 0.375, 0.625, 0.875]
    assert RACE_CPU.below(from_uniform(*f)) == pytest.approx(f, rel=1e-14)
    assert (HALVES.floor, LUMPED.floor, RACE_CPU.floor) == (0.125, 0.25, 0.0)


def test_how_many_points_lie_on_a_grid() -> None:
    """One of two, of four, of eight; halves never; a share that is known stays the least."""
    shares = [LUMPED.chance_near(grid) for grid in (2, 1, 0, -1, -2, -16, -40)]
    assert shares == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.0625, 0.0625]
    assert LUMPED.chance_near(5) == 1.0
    assert HALVES.chance_near(1) == HALVES.chance_near(8) == 0.0625
    assert RACE_CPU.chance_near(1) == 0.0625
    assert all(COUNTER.chance_near(grid) == 0.0625 for grid in GRIDS)
    # Of 34 points three are near: the one on the grid and its neighbours.
    assert Lattice("34", 0, 1 / 34, 0.0, 0.0, 0.1).chance_near(0) == 3 / 34
    # Near is nearer than 0.03.
    assert Lattice("at", 2, 0.25, 0.03, 0.0, 0.1).chance_near(2) == 0.0625
    assert Lattice("within", 2, 0.25, 0.02, 0.0, 0.1).chance_near(2) == 1.0


def test_values_are_counted_one_by_one() -> None:
    """Twice a block: what is no noise apart, sums, octaves, windows and grids."""
    f = np.array([2.0**-10, 0.25, 0.5, 3 * 2.0**-12, 5.1 * 2.0**-20, 0.3, 1.2e-9, 0.9375])
    proper = np.concatenate([from_uniform(*f), [100.0, 1e4, 1e-14, 1.0]])
    values = np.concatenate([proper, [0.0, -1.0, np.inf, np.nan, -np.inf]])
    tally = Tally()
    tally.add(values, 3)
    tally.add(values, 2)
    assert (tally.count, tally.improper) == (24, 10)
    assert tally.total == pytest.approx(2 * math.fsum(proper), rel=1e-14)
    assert tally.paired.dtype == np.float32
    assert tally.paired.tolist() == proper[[0, 1, 2, 0, 1]].astype(np.float32).tolist()
    places = [min(max(5 - math.floor(math.log2(e) + 0.5), 0), 43) for e in proper]
    assert tally.octaves.tolist() == [2 * places.count(place) for place in range(44)]
    for grid in range(8, 35):
        low, high = 2.0 ** -(grid + 2), min(2.0 ** (18 - grid), 0.5)
        steps = [u * 2.0**grid for u in -np.expm1(-proper) if low < u < high]
        assert lattice.window(grid) == (low, high)
        assert tally.seen[grid] == 2 * len(steps)
        assert tally.near[grid] == 2 * sum(abs(s - round(s)) < 0.03 for s in steps)
    assert (tally.seen[8], tally.near[8]) == (4, 2)
    assert Tally().paired.size == 0
    many = Tally()
    many.add(np.ones(PAIRED + 3))
    many.add(np.ones(2))
    assert [len(part) for part in many.sample] == [PAIRED, 2]
    assert len(many.paired) == PAIRED


def test_the_grid_is_the_coarsest_that_holds_nearly_all() -> None:
    """Else the one that is most significant; only those coarser than declared are looked at."""
    for tally, own, p_value, grid in (
        (gridded(), RACE_CPU, 1.0, 0),
        (gridded(g20=(3, 3)), RACE_CPU, 27 / 16**3, 20),
        (gridded(g20=(3, 2)), RACE_CPU, 27 * (3 * 15 + 1) / 16**3, 20),
        (gridded(g20=(3, 0)), RACE_CPU, 1.0, 20),
        (gridded(g20=(4, 4), g22=(5, 5)), RACE_CPU, 27 / 16**5, 20),
        (gridded(g20=(2, 2), g25=(9, 8)), RACE_CPU, 27 * (9 * 15 + 1) / 16**9, 25),
        (gridded(g20=(3, 3), g25=(9, 8)), RACE_CPU, 27 * (9 * 15 + 1) / 16**9, 20),
        (gridded(g24=(5, 5)), RACE_CUDA, 1.0, 0),
        (gridded(g23=(8, 8)), RACE_CUDA, 27 / 2**8, 23),
        (gridded(g23=(20, 20)), RACE_CUDA, 27 / 2**20, 23),
    ):
        found = lattice.grid_p(tally, own)
        assert found[0] == pytest.approx(p_value, rel=1e-9)
        assert found[1] == grid


@pytest.mark.parametrize(
    ("seen", "near", "nearly"),
    [(0, 0, "none"), (1, 1, "all"), (10, 9, "all"), (10, 8, "most")],
)
def test_nine_in_ten_are_nearly_all(seen: int, near: int, nearly: str) -> None:
    """Of some that could be looked at."""
    assert lattice.on_grid(gridded(g20=(seen, near)), 20) == (nearly == "all")


def test_the_finest_grid_that_shows() -> None:
    """Enough values fall into its window, in 19 of 20 samples, at this number and no smaller."""
    enough = 9  # 27 grids, a sixteenth each: 27 / 16^9 < 1e-9
    assert 27 / 16**enough < ALARM < 27 / 16 ** (enough - 1)
    for grid in (24, 33):
        width = 2.0 ** (18 - grid) - 2.0 ** -(grid + 2)
        shown = partial(stats.binom.sf, enough - 1, p=width)
        values = bisect_left(range(10**7), 0.95, key=shown)
        assert lattice.finest_grid(values, ALARM) == grid
        assert lattice.finest_grid(values - 1, ALARM) == grid - 1
    assert lattice.finest_grid(8, ALARM) == 0


def test_equal_pairs_are_counted_within_and_added() -> None:
    """Two, and three of a kind, and what other tallies had."""
    tally = Tally(sample=[np.array([1.0, 2.0]), np.array([2.0, 1.0, 2.0])], equal=2, pairs=5)
    assert lattice.equal_pairs(tally) == (6, 15)
    assert [type(count) for count in lattice.equal_pairs(tally)] == [int, int]
    p_value, equal = lattice.pairs_p(tally, HALVES)
    assert equal == 6
    assert p_value == pytest.approx(
        1 - math.exp(-1.5) * sum(1.5**k / math.factorial(k) for k in range(6)), rel=1e-9
    )
    assert lattice.expected_pairs(5, HALVES) == pytest.approx(1.0, rel=1e-15)


def test_the_smallest_share_of_repeats() -> None:
    """So many more pairs than expected that the alarm is missed once in 20."""
    for values in (1000, PAIRED):
        mean = RACE_CPU.repeat * values * (values - 1) / 2
        limit = next(k for k in range(5000) if stats.poisson.sf(k, mean) <= ALARM)
        share = lattice.smallest_repeat(values, RACE_CPU, ALARM)
        assert stats.poisson.cdf(limit, mean + share * values) == pytest.approx(0.05, rel=1e-9)
    assert lattice.smallest_repeat(3 * PAIRED, RACE_CPU, ALARM) == share


@pytest.mark.parametrize(("total", "side"), [(130.0, stats.gamma.sf), (75.0, stats.gamma.cdf)])
def test_the_mean_is_tested_on_both_sides(total: float, side: object) -> None:
    """Twice the thinner tail of the sum."""
    expected = 2 * side(total, 100)  # type: ignore[operator]
    assert lattice.mean_p(Tally(count=100, total=total)) == pytest.approx(expected, rel=1e-12)


def test_the_smallest_error_of_the_scale() -> None:
    """Stretched by so much, a sum misses its upper bound once in 20."""
    scale = 1 + lattice.smallest_scale(1000, ALARM)
    bound = stats.gamma.isf(ALARM / 2, 1000)
    assert stats.gamma.cdf(bound / scale, 1000) == pytest.approx(0.05, rel=1e-9)


def test_octaves_of_ideal_noise() -> None:
    """From above 2^4.5 down to below 2^-37.5."""
    edges = [math.inf, *(2.0 ** (4.5 - place) for place in range(43)), 0.0]
    expected = [math.exp(-low) - math.exp(-high) for high, low in pairwise(edges)]
    law = lattice.octave_law(RACE_CPU)
    assert len(law) == OCTAVES
    assert law == pytest.approx(expected, rel=1e-3, abs=1e-16)
    assert law[:20] == pytest.approx(expected[:20], rel=1e-9)
    assert lattice.octave_name(0) == "E around 2^5"
    assert lattice.octave_name(7) == "E around 2^-2"


def test_the_most_deviant_octave_is_named() -> None:
    """Too full, too empty, or as it should be."""
    share = float(lattice.octave_law(RACE_CPU)[5])
    full, empty, fair = (np.zeros(OCTAVES, np.int64) for _ in range(3))
    full[5], empty[6], fair[4:9] = 10, 100, (2, 2, 2, 2, 2)
    for octaves, place, p_value in (
        (full, 5, 44 * 2 * share**10),
        (empty, 6, 44 * 2 * float(lattice.octave_law(RACE_CPU)[6]) ** 100),
        (fair, None, 1.0),
    ):
        found = lattice.octave_p(Tally(count=int(octaves.sum()), octaves=octaves), RACE_CPU)
        assert found[0] == pytest.approx(p_value, rel=1e-9)
        assert place in (None, found[1])
    lost = np.rint(1000 * lattice.octave_law(RACE_CPU)).astype(np.int64)
    lost[5] = 0
    p_value, worst = lattice.octave_p(Tally(count=1000, octaves=lost), RACE_CPU)
    assert worst == 5
    assert p_value == pytest.approx(44 * 2 * (1 - share) ** 1000, rel=1e-9)


def test_the_deepest_octave_whose_absence_shows() -> None:
    """As many values are expected in it as an alarm needs; none of a few values."""
    law = lattice.octave_law(RACE_CPU)
    for place in (10, 20):
        values = math.ceil(math.log(88 / ALARM) / law[place])
        assert lattice.deepest_floor(values, RACE_CPU, ALARM) == 5 - place
        assert lattice.deepest_floor(values - 1, RACE_CPU, ALARM) == 6 - place
    assert lattice.deepest_floor(20, RACE_CPU, ALARM) == 6
    # As many as needed, to the last bit: four octaves with a quarter of 32 values each.
    just = 88 / math.exp(8.0)
    assert math.log(88 / just) == 8.0
    assert lattice.deepest_floor(32, HALVES, just) == -3
    assert lattice.deepest_floor(31, HALVES, just) == 6


@pytest.mark.parametrize("least", [1, 2, 3, 4, 7, 1000, 123_456, 2**20 + 1, 2**50])
def test_the_values_that_an_effect_needs(least: int) -> None:
    """The least number that shows it, or a number at most one percent above."""
    asked = []

    def shows(n: int) -> bool:
        asked.append(n)
        return n >= least

    needed = lattice.values_needed(shows)
    assert least <= needed <= max(1.01 * least, 2)
    assert {type(n) for n in (*asked, needed)} == {int}
    with pytest.raises(ValueError, match=r"^2\^50 values do not show it, required: an effect"):
        lattice.values_needed(lambda n: n > 2**50)


@pytest.mark.parametrize("ratio", [2e-6, 0.01, 0.7, 3.0])
def test_the_share_of_a_rare_id_adds_up_over_points(ratio: float) -> None:
    """The lowest point with one and a half steps, the others with one."""
    points = -(-40 // ratio) if ratio >= 0.01 else 0
    tail = math.fsum(math.exp(-ratio * k) for k in range(2, int(points) + 2))
    if ratio < 0.01:
        tail = math.exp(-2 * ratio) / -math.expm1(-ratio)
    assert lattice.kept_share(ratio) == pytest.approx(
        ratio * (1.5 * math.exp(-ratio) + tail), rel=1e-12
    )
    assert lattice.kept_share(ratio / 1e8) == 1.0


def test_the_draws_of_rare_ids_are_tested_on_both_sides() -> None:
    """Twice the thinner tail, at most 1."""
    assert lattice.cliff_p(0, 10, 0.5) == pytest.approx(2 / 1024, rel=1e-12)
    assert lattice.cliff_p(9, 10, 0.5) == pytest.approx(2 * 11 / 1024, rel=1e-12)
    assert lattice.cliff_p(5, 10, 0.5) == 1.0


@pytest.mark.parametrize(
    ("draws", "mass", "alarm"),
    [(25_600, 2.5e-3, 1e-9), (10**8, 2.5e-3, 1e-9), (100, 0.05, 0.1), (100, 0.03, 0.1)],
)
def test_the_lowest_floor_that_the_cliff_sees(draws: int, mass: float, alarm: float) -> None:
    """With it, one run in 20 has more draws than the alarm allows."""
    floor = lattice.smallest_floor(draws, mass, 1e-6, alarm)
    kept = mass * lattice.kept_share(floor / 1e-6)
    around = int(stats.binom.ppf(alarm / 2, draws, mass))
    few = max(
        k for k in range(around - 3, around + 3) if stats.binom.cdf(k, draws, mass) < alarm / 2
    )
    assert stats.binom.sf(few, draws, kept) == pytest.approx(0.05, rel=1e-6)


def test_no_floor_shows_where_no_draw_is_not_too_few() -> None:
    """A count of zero is no alarm."""
    assert lattice.smallest_floor(100, 2.5e-3, 1e-6, ALARM) == math.inf
