"""The law of exponential noise that is made of finite words: grid, repeats, mean, octaves, floor.

Tests come as triples: decide, smallest detectable effect, values needed. F = 1 - exp(-E) is the
uniform that E came from, seen from its small end: that end decides about improbable tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

Floats = npt.NDArray[np.float64]

GRIDS = range(8, 35)
# Closer to an integer than this is "on the grid". Just below 1/32, so that no point of a lattice
# with a power of two as its step lies on the border.
NEAR = 0.03
CHANCE = 1 / 16
ON_GRID = 0.9
# Octave classes: number 0 holds E above 2^4.5, the last one everything below its upper edge.
OCTAVES, TOP = 44, 5
# Equal pairs are counted among this many values. Beyond, the values that a lattice holds more often
# than others make the count wider than Poisson by more than 1.5 %.
PAIRED = 2**18
MISS = 0.05


@dataclass(frozen=True)
class Lattice:
    """What one way to draw Exp(1) noise declares.

    grid: F of small values is a multiple of 2^-grid, 0 where float32 shows no grid. The points are
    (k + origin) step, k >= 0, each of mass `step`, the lowest of (1 + lump) step; step 0: none.
    repeat: chance that two independent values are equal.
    """

    name: str
    grid: int
    step: float
    origin: float
    lump: float
    repeat: float

    @property
    def floor(self) -> float:
        """The lowest point there is."""
        return self.origin * self.step

    def below(self, e: Floats) -> Floats:
        """P(E < e)."""
        f = -np.expm1(-e)
        if self.step == 0:
            return f
        points = np.ceil(f / self.step - self.origin).clip(min=0)
        return np.asarray((points + self.lump * (points > 0)) * self.step)

    def chance_near(self, grid: int) -> float:
        """How often a value of this lattice lies on the grid 2^-grid; never below CHANCE."""
        if self.step == 0:
            return CHANCE
        # Of more points than these, the share that lies near the grid does not change.
        period = min(max(2.0**-grid / self.step, 1.0), 2.0**16)
        places = (np.arange(period) + self.origin) / period
        return max(CHANCE, float((np.abs(places - np.rint(places)) < NEAR).mean()))


# u = (word + 1/2) 2^-32 in float32, E = -log1p(-u). `repeat` sums P(v)^2 over all float32 values.
COUNTER = Lattice("counter", 33, 2.0**-32, 0.5, 0.0, 4.09e-8)
# u = (word + 1/2) 2^-32 in float32, E = -log u: 1 - u is a multiple of 2^-24, and what rounds to
# 0 or 1 step counts as one. `repeat` leaves 3 % for the hardware's logarithm.
RACE_CUDA = Lattice("race on CUDA", 24, 2.0**-24, 1.0, 0.5, 4.5e-8)
# torch's CPU exponential_: 1e7 values show no grid up to 2^-34, and equal pairs as ideal float32.
RACE_CPU = Lattice("race on CPU", 0, 0.0, 0.0, 0.0, 2.15e-8)


def declared(dialect: str, device: str) -> Lattice:
    """The lattice of a dialect on a kind of device."""
    if dialect == "counter":
        return COUNTER
    return RACE_CUDA if device.startswith("cuda") else RACE_CPU


@dataclass
class Tally:
    """Counts over noise values, added block by block.

    improper: values that are not finite and positive; they are in no other count.
    equal, pairs: equal pairs and all pairs, of tallies that were added up from others: equal
    values are looked for within each of them.
    """

    count: int = 0
    improper: int = 0
    total: float = 0.0
    octaves: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(OCTAVES, np.int64))
    seen: dict[int, int] = field(default_factory=lambda: dict.fromkeys(GRIDS, 0))
    near: dict[int, int] = field(default_factory=lambda: dict.fromkeys(GRIDS, 0))
    sample: list[Floats] = field(default_factory=list)
    equal: int = 0
    pairs: int = 0

    def add(self, e: Floats, sampled: int = PAIRED) -> None:
        """Count values; the first `sampled` of them are kept for equal pairs."""
        proper = np.isfinite(e) & (e > 0)
        e = e[proper]
        self.improper += int((~proper).sum())
        self.count += len(e)
        self.total += float(e.sum())
        self.sample.append(e[:sampled].astype(np.float32))
        # Classes end between two powers of two, where no lattice has a point.
        exponent = np.frexp(e * math.sqrt(0.5))[1]
        place = (TOP - exponent).clip(0, OCTAVES - 1)
        self.octaves += np.bincount(place, minlength=OCTAVES)
        f = -np.expm1(-e)
        for grid in GRIDS:
            low, high = window(grid)
            f = f[f < high]
            steps = f[f > low] * 2.0**grid
            self.seen[grid] += len(steps)
            self.near[grid] += int((np.abs(steps - np.rint(steps)) < NEAR).sum())

    @property
    def paired(self) -> Floats:
        """The values among which equal pairs are counted."""
        return np.concatenate(self.sample)[:PAIRED] if self.sample else np.zeros(0)


def window(grid: int) -> tuple[float, float]:
    """Where float32 resolves 1/64 of a step 2^-grid: the range of F that is looked at."""
    return 2.0**-grid / 4, min(2.0 ** (18 - grid), 0.5)


def grid_p(tally: Tally, lattice: Lattice) -> tuple[float, int]:
    """P value of "no grid coarser than declared", and the grid that the values lie on.

    The grid is the coarsest that holds nearly all values, or else the most significant one.
    """
    finer = [g for g in GRIDS if not lattice.grid or g < lattice.grid]
    levels = {
        g: float(stats.binom.sf(tally.near[g] - 1, tally.seen[g], lattice.chance_near(g)))
        for g in finer
        if tally.seen[g]
    }
    if not levels:
        return 1.0, 0
    worst = min(levels, key=lambda g: levels[g])
    p_value = min(1.0, len(GRIDS) * levels[worst])
    full = [g for g in levels if on_grid(tally, g) and levels[g] <= 1e-3]
    return p_value, min(full, default=worst)


def on_grid(tally: Tally, grid: int) -> bool:
    """Whether nearly all values lie on a grid, given that some could be looked at."""
    return tally.seen[grid] > 0 and tally.near[grid] >= ON_GRID * tally.seen[grid]


def finest_grid(values: int, alarm: float) -> int:
    """The finest grid that `grid_p` finds among so many values with probability 1 - MISS."""
    needed = math.ceil(math.log(len(GRIDS) / alarm) / -math.log(CHANCE))
    shown = [0]
    for grid in GRIDS:
        low, high = window(grid)
        if stats.binom.ppf(MISS, values, high - low) >= needed:
            shown.append(grid)
    return max(shown)


def pairs_p(tally: Tally, lattice: Lattice) -> tuple[float, int]:
    """P value of the number of equal pairs, upper tail of a Poisson law, and that number."""
    equal, pairs = equal_pairs(tally)
    return float(stats.poisson.sf(equal - 1, lattice.repeat * pairs)), equal


def equal_pairs(tally: Tally) -> tuple[int, int]:
    """How many pairs of values are equal, and how many pairs there are."""
    values = tally.paired
    _, times = np.unique(values, return_counts=True)
    equal = int((times * (times - 1) // 2).sum())
    return tally.equal + equal, tally.pairs + len(values) * (len(values) - 1) // 2


def expected_pairs(values: int, lattice: Lattice) -> float:
    """How many equal pairs honest noise has among so many values."""
    return lattice.repeat * values * (values - 1) / 2


def smallest_repeat(values: int, lattice: Lattice, alarm: float) -> float:
    """Smallest share of values that repeat an earlier one, each once, that `pairs_p` finds."""
    values = min(values, PAIRED)
    mean = expected_pairs(values, lattice)
    limit = float(stats.poisson.isf(alarm, mean))
    needed = float(stats.gamma.isf(MISS, limit + 1))
    return (needed - mean) / values


def mean_p(tally: Tally) -> float:
    """P value of the sum of the values against Gamma(count), both tails."""
    law = stats.gamma(tally.count)
    return min(1.0, 2 * float(min(law.cdf(tally.total), law.sf(tally.total))))


def smallest_scale(values: int, alarm: float) -> float:
    """Smallest relative error of the scale that `mean_p` finds with probability 1 - MISS."""
    law = stats.gamma(values)
    return float(law.isf(alarm / 2) / law.ppf(MISS)) - 1.0


def octave_law(lattice: Lattice) -> Floats:
    """Probabilities of the octave classes, counted on the lattice itself."""
    edges = math.sqrt(0.5) * np.exp2(TOP - np.arange(OCTAVES - 1, dtype=np.float64))
    below = lattice.below(edges)
    return np.asarray(np.diff(np.concatenate([[0.0], below[::-1], [1.0]]))[::-1])


def octave_p(tally: Tally, lattice: Lattice) -> tuple[float, int]:
    """P value of the most deviant octave, exact binomials times their number, and its class."""
    law = octave_law(lattice)
    low = stats.binom.cdf(tally.octaves, tally.count, law)
    high = stats.binom.sf(tally.octaves - 1, tally.count, law)
    each = 2 * np.minimum(low, high)
    worst = int(each.argmin())
    return min(1.0, OCTAVES * float(each[worst])), worst


def octave_name(place: int) -> str:
    """The values of an octave class, in words."""
    return f"E around 2^{TOP - place}"


def deepest_floor(values: int, lattice: Lattice, alarm: float) -> int:
    """The deepest class whose absence `octave_p` sees for certain, as an exponent of two."""
    expected = values * octave_law(lattice)
    shown = np.flatnonzero(expected >= math.log(2 * OCTAVES / alarm))
    return TOP - int(shown.max()) if len(shown) else TOP + 1


def values_needed(shows: Callable[[int], bool]) -> int:
    """The smallest number of values, within 1 %, for which a monotone predicate holds."""
    high = 2
    while not shows(high):
        high *= 2
        if high > 2**50:
            raise ValueError("2^50 values do not show it, required: an effect that some n shows")
    low = high // 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle) else (middle, high)
    return high


def kept_share(ratio: float) -> float:
    """Share of its draws that a rare id keeps when no noise lies below `ratio` times its law.

    The lowest point holds one and a half steps. ratio = floor / probability of the id.
    """
    if ratio < 1e-6:
        return 1.0
    lowest = 1.5 * math.exp(-ratio)
    return ratio * (lowest + math.exp(-2 * ratio) / -math.expm1(-ratio))


def cliff_p(hits: int, draws: int, rate: float) -> float:
    """P value of so many draws of rare ids, exact, both tails."""
    low, high = stats.binom.cdf(hits, draws, rate), stats.binom.sf(hits - 1, draws, rate)
    return min(1.0, 2 * float(min(low, high)))


def smallest_floor(draws: int, mass: float, each: float, alarm: float) -> float:
    """The lowest noise floor that `cliff_p` sees with probability 1 - MISS; inf when none.

    mass: probability of all rare ids; each: of one of them.
    """
    limit = float(stats.binom.ppf(alarm / 2, draws, mass)) - 1

    def missed(log_ratio: float) -> float:
        share = kept_share(math.exp(log_ratio))
        return float(stats.binom.sf(limit, draws, mass * share)) - MISS

    if limit < 0:
        return math.inf
    return each * math.exp(float(optimize.brentq(missed, math.log(1e-6), 5.0)))
