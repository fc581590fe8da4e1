"""The scan number by number: its levels, its bound, one level by hand, and what it states."""

import math

import numpy as np
import pytest
from scipy import stats

from oracle.judge import scan

LAW = np.array([0.1, 0.4, 0.2, 0.3])
COUNTS = np.array([30, 70, 45, 55])


def tail(observed: int, draws: int, p: float) -> float:
    """Log of the two-sided tail."""
    law = np.array([math.comb(draws, k) * p**k * (1 - p) ** (draws - k) for k in range(draws + 1)])
    sides = math.fsum(law[: observed + 1]), math.fsum(law[observed:])
    return min(math.log(2 * min(sides)), 0.0)


def test_five_cells_have_three_levels() -> None:
    """Halves, quarters and eighths, those without a cell left out; one cell has one level."""
    assert [edges.tolist() for edges in scan.cuts(5)] == [
        [0, 2, 5],
        [0, 1, 2, 3, 5],
        [0, 1, 2, 3, 4, 5],
    ]
    assert [edges.tolist() for edges in scan.cuts(4)] == [[0, 2, 4], [0, 1, 2, 3, 4]]
    assert [edges.tolist() for edges in scan.cuts(1)] == [[0, 1]]
    assert scan.cuts(70_000)[-1].dtype == np.int64


def test_the_bound_is_chernoffs() -> None:
    """2 exp(-n KL), at most 1, and nothing where the count cannot be."""
    found = scan.bound(np.array([30, 10, 3, 0]), 100, np.array([0.2, 0.1, 0.0, 0.05]))
    divergence = 0.3 * math.log(0.3 / 0.2) + 0.7 * math.log(0.7 / 0.8)
    expected = [math.log(2) - 100 * divergence, 0.0, -math.inf, math.log(2) + 100 * math.log(0.95)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_a_tail_too_thin_for_a_double_is_bounded() -> None:
    """Chernoff's bound stands in where the tail itself would be zero, and only there."""
    seen, law = np.array([0, 10_000, 4990]), np.full(3, 0.5)
    logs = scan.log_tails(seen, 10_000, law)
    assert logs[:2] == pytest.approx([10_001 * -math.log(2) + 2 * math.log(2)] * 2, rel=1e-12)
    assert logs[2] > scan.bound(seen, 10_000, law)[2] - 1
    assert logs[2] == pytest.approx(math.log(2 * stats.binom.cdf(4990, 10_000, 0.5)), rel=1e-9)


def test_one_level_is_judged_interval_by_interval() -> None:
    """The most striking of two halves, with all that is looked at besides."""
    one = scan.strangest(LAW, COUNTS, np.array([0, 1, 2, 3, 4]), 5)
    logs = [tail(int(seen), 200, float(p)) for seen, p in zip(COUNTS, LAW, strict=True)]
    assert int(np.argmin(logs)) == 0
    assert (one.first, one.last, one.observed) == (0, 0, 30)
    assert one.expected == pytest.approx(20.0, rel=1e-12)
    assert one.log_p == pytest.approx(logs[0], rel=1e-9)
    assert one.log_adjusted == pytest.approx(logs[0] + math.log(4 * 5 * 2), rel=1e-9)
    half = scan.strangest(LAW[::-1], COUNTS[::-1], np.array([0, 2, 4]), 1)
    assert (half.first, half.last, half.observed) in ((0, 1, 100), (2, 3, 100))
    assert half.log_adjusted == pytest.approx(tail(100, 200, 0.5) + math.log(4), abs=1e-9)
    # A sum that rounds above one is one.
    whole = scan.strangest(np.array([0.7, 0.3 + 1e-15]), np.array([6, 4]), np.array([0, 2]), 1)
    assert (whole.log_p, whole.expected) == (0.0, 10.0)


@pytest.mark.parametrize("cells", [scan.EVALUATED, scan.EVALUATED + 1, 200])
def test_the_most_deviant_interval_is_evaluated(cells: int) -> None:
    """Wherever it lies among the others."""
    law = np.full(cells, 1 / cells)
    for place in (0, cells // 2, cells - 1):
        counts = np.full(cells, 50)
        counts[place] = 5
        one = scan.strangest(law, counts, np.arange(cells + 1), 1)
        assert (one.first, one.last, one.observed) == (place, place, 5)
        assert one.log_adjusted - one.log_p == pytest.approx(math.log(2 * cells), rel=1e-12)


def test_a_finding_is_the_most_striking_of_all_levels_and_orders() -> None:
    """Named by its order, with the cells in it; the law is made to add up to one."""
    law = np.array([[0.25, 0.05, 0.25, 0.05], [0.05, 0.05, 0.05, 0.25]])
    counts = np.array([[50, 0, 50, 0], [0, 0, 0, 50]])
    found = scan.scan(2 * law, counts, 1e-6)
    # Five of the eight cells are lost: four of them are the rarer half, of mass 1/5.
    assert (found.rejects, found.order, found.first, found.last) == (
        True,
        "falling probability",
        4,
        7,
    )
    assert found.cells == (3, 4, 5, 6)
    assert found.observed == 0
    assert found.expected == pytest.approx(30, rel=1e-12)
    log_p = math.log(2) + 150 * math.log(0.8)
    assert found.log_p == pytest.approx(log_p, rel=1e-9)
    assert math.log(found.adjusted) == pytest.approx(log_p + math.log(2 * 3 * 2), rel=1e-9)
    # The alarm probability itself is enough, and a certain count is no news.
    log_adjusted = found.log_p + math.log(2 * 3 * 2)
    assert math.log(math.exp(log_adjusted)) == log_adjusted
    assert scan.scan(law, counts, math.exp(log_adjusted)).rejects
    assert scan.scan(law, counts, found.adjusted * (1 + 1e-9)).rejects
    assert not scan.scan(law, counts, found.adjusted * (1 - 1e-9)).rejects
    even = scan.scan(np.array([0.5, 0.5]), np.array([1, 1]), 0.5)
    assert (even.rejects, even.adjusted, even.order) == (False, 1.0, "id")
    single = scan.scan(np.array([0.5, 0.5]), np.array([1, 0]), 0.5)
    assert single.observed in (0, 1)


def test_the_cells_of_a_finding_are_those_of_its_interval() -> None:
    """Also where other cells follow."""
    found = scan.scan(np.full(4, 0.25), np.array([0, 100, 100, 100]), 1e-6)
    assert (found.order, found.first, found.last, found.cells) == ("id", 0, 0, (0,))


@pytest.mark.parametrize(
    ("cells", "counts", "said"),
    [(1, [7], "7 draws over 1 cells"), (3, [0, 0, 0], "0 draws over 3 cells")],
)
def test_nothing_to_scan_is_an_error(cells: int, counts: list[int], said: str) -> None:
    """A law of one cell says nothing, and neither do no draws."""
    with pytest.raises(ValueError, match=f"^{said}, required: 1 over 2 or more$"):
        scan.scan(np.full(cells, 1 / cells), np.array(counts), 1e-6)


def test_what_cannot_be_is_told_as_1e_300() -> None:
    """JSON holds no log of zero; cells of a wide interval are cut off."""
    lost = scan.scan(np.array([0.0, 1.0]), np.array([1, 9]), 1e-9)
    assert math.isclose(lost.adjusted, 1e-300)
    assert (lost.rejects, lost.log_p) == (True, -math.inf)
    law = np.full(256, 1 / 256)
    counts = np.where(np.arange(256) < 128, 0, 40)
    wide = scan.scan(law, counts, 1e-9)
    assert (wide.first, wide.last, len(wide.cells)) in ((0, 127, 32), (128, 255, 32))


def test_the_smallest_mass_is_where_a_loss_just_shows() -> None:
    """Single cells, in all levels and both orders; none of a few draws."""
    law, n, alarm = np.full(64, 1 / 64), 100_000, 1e-9
    for keywords, miss in (({}, 0.025), ({"miss": 0.3}, 0.3)):
        mass = scan.smallest_mass(law, n, alarm, **keywords)
        goal = math.log(alarm / (2 * 64 * 6 * 2))

        def lead(size: float, quantile: float = miss, at_most: float = goal) -> float:
            most = stats.binom.isf(quantile, n, 1e-3 * size)
            return float(stats.binom.logcdf(most, n, size)) - at_most

        assert lead(0.999 * mass) > 0 > lead(1.001 * mass)
    assert scan.smallest_mass(law, 20, alarm) == math.inf
    assert 0.1 < scan.smallest_mass(np.full(2, 0.5), 60, 1e-4) < 0.5


def test_a_mass_is_as_exact_as_it_is_small() -> None:
    """Of 2^40 draws a loss of 3e-11 shows, to a part in a thousand."""
    n, alarm = 2**40, 1e-9
    mass = scan.smallest_mass(np.full(64, 1 / 64), n, alarm)
    goal = math.log(alarm / (2 * 64 * 6 * 2))
    most = stats.binom.isf(0.025, n, 1e-3 * mass)
    assert (
        stats.binom.logcdf(most, n, 0.999 * mass) > goal > stats.binom.logcdf(most, n, 1.001 * mass)
    )


def test_the_largest_mass_that_is_stated_is_a_half() -> None:
    """The alarm probability at which a lost half just shows; a smaller one shows nothing."""
    pair, n = np.full(2, 0.5), 60
    most = stats.binom.isf(0.025, n, 1e-3 * 0.5)
    log_p = float(stats.binom.logcdf(most, n, 0.5))
    alarm = 8 * math.exp(log_p)
    assert math.log(alarm / 8) == log_p
    assert scan.smallest_mass(pair, n, alarm) == 0.5
    assert scan.smallest_mass(pair, n, alarm / 2) == math.inf
