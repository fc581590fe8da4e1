"""The dyadic scan: what it enumerates, its tails, its calibration, and faults nobody listed."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from oracle.judge import bank, scan
from oracle.judge.significance import Counts, Floats

ALARM = 5e-10
SKEWED = np.array([0.07, 0.30, 0.02, 0.15, 0.20, 0.12, 0.10, 0.04])


def zipf(vocabulary: int, seed: int = 0) -> Floats:
    """Zipf's law with its ids in random order."""
    weights = 1.0 / np.arange(1, vocabulary + 1)
    np.random.default_rng(seed).shuffle(weights)
    return np.asarray(weights / weights.sum())


def direct_tail(observed: int, draws: int, p: float) -> float:
    """Log of the two-sided tail, summed term by term."""
    k = np.arange(draws + 1)
    ways = special.gammaln(draws + 1) - special.gammaln(k + 1) - special.gammaln(draws - k + 1)
    terms = ways + k * math.log(p) + (draws - k) * math.log1p(-p)
    tails = special.logsumexp(terms[: observed + 1]), special.logsumexp(terms[observed:])
    return min(math.log(2) + float(min(tails)), 0.0)


@pytest.mark.parametrize(
    ("observed", "p"), [(0, 0.3), (900, 0.3), (600, 0.3), (5, 1e-9), (100, 1e-4), (1900, 0.999)]
)
def test_tails_are_exact(observed: int, p: float) -> None:
    """Against direct sums, down to 1e-300."""
    found = scan.log_tails(np.array([observed]), 2000, np.array([p]))[0]
    assert found == pytest.approx(direct_tail(observed, 2000, p), rel=1e-9, abs=1e-9)


def test_a_tail_too_thin_for_a_double_is_bounded_from_above() -> None:
    """Chernoff: not below the truth, and not far above; an impossible count is impossible."""
    found = scan.log_tails(np.array([1500, 3]), 2000, np.array([0.3, 0.0]))
    truth = direct_tail(1500, 2000, 0.3)
    assert truth <= found[0] <= truth + 10
    assert found[1] == -math.inf


def brute_force(law: Floats, counts: Counts) -> float:
    """Smallest adjusted log p over 2, 4 and 8 intervals in both orders, for eight cells."""
    draws, best = int(counts.sum()), math.inf
    for order in (list(range(8)), sorted(range(8), key=lambda i: (-law[i], i))):
        for parts in (2, 4, 8):
            size = 8 // parts
            for start in range(0, 8, size):
                cells = order[start : start + size]
                p = float(sum(law[c] for c in cells))
                seen = int(sum(counts[c] for c in cells))
                best = min(best, direct_tail(seen, draws, p) + math.log(parts * 3 * 2))
    return best


@pytest.mark.parametrize("seed", range(12))
def test_the_scan_is_all_intervals_enumerated(seed: int) -> None:
    """Eight cells, honest and faulty counts."""
    source = np.random.default_rng(seed)
    drawn = SKEWED if seed % 2 else source.dirichlet(200 * SKEWED)
    counts = source.multinomial(1500, drawn)
    found = scan.scan(SKEWED, counts, 0.01)
    expected = brute_force(SKEWED, counts)
    assert math.log(found.adjusted) == pytest.approx(min(expected, 0.0), rel=1e-9, abs=1e-9)
    assert found.rejects == (expected <= math.log(0.01))


@pytest.mark.parametrize("cells", [2, 3, 8, 13, 1000])
def test_every_level_covers_every_cell_once(cells: int) -> None:
    """From halves down to single cells, whether or not the cells are a power of two."""
    levels = scan.cuts(cells)
    assert len(levels[0]) == 3
    assert levels[-1].tolist() == list(range(cells + 1))
    for edges in levels:
        assert edges[0] == 0
        assert edges[-1] == cells
        assert (np.diff(edges) > 0).all()


def test_a_correct_sampler_is_rarely_rejected() -> None:
    """600 random laws at .01: 6 on average at most, 15 has probability 1e-3."""
    alarms, smallest = 0, 1.0
    for seed in range(600):
        source = np.random.default_rng(seed)
        logits = 1.5 * source.normal(size=int(source.integers(2, 201)))
        law = np.exp(logits) / np.exp(logits).sum()
        found = scan.scan(law, source.multinomial(4096, law), 0.01)
        alarms += found.rejects
        smallest = min(smallest, found.adjusted)
    assert alarms <= 14
    assert smallest < 0.1


def test_a_missing_multiplicity_would_be_noticed() -> None:
    """Without the number of intervals looked at, correct samplers are rejected right and left."""
    alarms = 0
    for seed in range(100):
        counts = np.random.default_rng(seed).multinomial(4096, SKEWED)
        alarms += scan.scan(SKEWED, counts, 0.01).log_p <= math.log(0.01)
    assert alarms > 5


@pytest.mark.parametrize("vocabulary", [64, 4096])
def test_the_smallest_mass_is_found_and_half_of_it_is_not(vocabulary: int) -> None:
    """97.5 % is asked for; at least 90 % of the runs must reject."""
    draws, runs = 200_000, 200 if vocabulary == 64 else 50
    law = zipf(vocabulary)
    mass = scan.smallest_mass(law, draws, ALARM)
    assert 20 / draws < mass < 50 / draws
    for planted, low, high in ((mass, 0.9, 1.0), (mass / 2, 0.0, 0.2)):
        true = np.append(law * (1 - planted), planted)
        faulty = true * np.append(np.ones(vocabulary), scan.REMAINDER)
        samples = np.random.default_rng(5).multinomial(draws, faulty / faulty.sum(), size=runs)
        found = sum(scan.scan(true, counts, ALARM).rejects for counts in samples)
        assert low <= found / runs <= high


def test_evaluating_few_intervals_misses_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most deviant intervals hold the smallest p-value, with and without a fault."""
    law = zipf(2048)
    faulty = law * np.where(np.arange(2048) // 64 == 9, 1.6, 1.0)
    source = np.random.default_rng(4)
    samples = [source.multinomial(30_000, drawn) for drawn in (law, faulty / faulty.sum())]
    quick = [scan.scan(law, counts, ALARM) for counts in samples]
    monkeypatch.setattr(scan, "EVALUATED", 10**6)
    full = [scan.scan(law, counts, ALARM) for counts in samples]
    assert [one.log_p for one in quick] == [one.log_p for one in full]


def tile(law: Floats) -> Floats:
    """One of 32 tiles of ids comes 5 % too often."""
    size = len(law) // 32
    return law * np.where(np.arange(len(law)) // size == 5, 1.05, 1.0)


def cut(law: Floats) -> Floats:
    """The rarest quarter of the ids is never drawn."""
    return np.where(law.argsort().argsort() < len(law) // 4, 0.0, law)


def swap(law: Floats) -> Floats:
    """The two most likely ids are taken for each other."""
    first, second = np.argsort(-law)[:2]
    swapped = law.copy()
    swapped[[first, second]] = law[[second, first]]
    return swapped


@pytest.mark.parametrize(
    ("fault", "draws", "order"),
    [(tile, 1_800_000, "id"), (cut, 1_800, "falling probability"), (swap, 10_000, "")],
)
def test_faults_outside_the_bank_are_found(
    fault: Callable[[Floats], Floats], draws: int, order: str
) -> None:
    """V = 32,768 at the draws that were measured; the correct sampler passes at the same n."""
    law = zipf(32_768)
    faulty = fault(law)
    source = np.random.default_rng(1)
    found = [
        scan.scan(law, source.multinomial(draws, faulty / faulty.sum()), ALARM) for _ in range(5)
    ]
    assert sum(one.rejects for one in found) >= 4
    assert all(not order or one.order == order for one in found)
    assert not scan.scan(law, source.multinomial(draws, law), 0.01).rejects


def test_the_interval_is_named() -> None:
    """Bounds, cells, observed and expected of a lost tile."""
    law = np.full(64, 1 / 64)
    counts = np.full(64, 100)
    counts[16:20] = 0
    found = scan.scan(law, counts, ALARM)
    assert (found.rejects, found.order, found.first, found.last) == (True, "id", 16, 19)
    assert found.cells == (16, 17, 18, 19)
    assert found.observed == 0
    assert found.expected == pytest.approx(6000 / 16)
    assert found.adjusted < 1e-100


def test_a_token_without_probability_is_rejected() -> None:
    """One draw of it is enough."""
    law = np.array([0.5, 0.5, 0.0, 0.0])
    found = scan.scan(law, np.array([500, 499, 1, 0]), 1e-300)
    assert found.rejects
    assert found.log_p == -math.inf
    assert not scan.scan(law, np.array([500, 500, 0, 0]), 0.01).rejects


def test_bank_and_scan_are_blind_in_different_places() -> None:
    """A tile 5 % too often, at its draws, is not seen by the bank; bf16 logits not by the scan."""
    law = zipf(32_768)
    logits = np.log(law)[None] + 7.0
    known = bank.members(np.log(law)[None], logits)
    source = np.random.default_rng(6)
    often = tile(law)
    counts = source.multinomial(1_800_000, often / often.sum())
    assert not bank.rejects(bank.log_values(counts[None], known), ALARM)
    coarse = next(one for one in known if one.name == "bf16 logits")
    draws = bank.draws_needed(coarse, law[None], len(known), ALARM, 0.001)
    faulty = law * np.exp(coarse.log_ratio[0])
    counts = source.multinomial(draws, faulty / faulty.sum())
    assert bank.rejects(bank.log_values(counts[None], known), ALARM)
    assert not scan.scan(law, counts, ALARM).rejects


def test_no_draws_are_no_evidence() -> None:
    """Nothing counted, or one cell alone, is an error and not a pass."""
    with pytest.raises(ValueError, match="0 draws over 8 cells"):
        scan.scan(SKEWED, np.zeros(8, dtype=np.int64), ALARM)
    with pytest.raises(ValueError, match="7 draws over 1 cells"):
        scan.scan(np.ones(1), np.array([7]), ALARM)
