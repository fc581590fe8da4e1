"""Public assertions on samplers beside ours: what each finds at 95 %.

Every assertion is rebuilt from its published description, in our own words, and judges draws of its
own number from a law of its own vocabulary, softmax of normal logits. A fault is found when 38 of
40 seeded runs are rejected. The two limits on total variation stand for tests of that kind.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from oracle.judge import planning

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Decide = Callable[[Floats, Counts], bool]

RUNS, FOUND = 40, 38
FLOOR = 2.0**-24
STEP = 1.15
LARGEST = {"temperature": 1.0, "median": 0.3, "shared": 1.0}


@dataclass(frozen=True)
class Gate:
    """One assertion: whose it is, vocabulary, draws, and whether counts are rejected."""

    name: str
    source: str
    vocabulary: int
    draws: int
    rejects: Decide


def cosine(law: Floats, counts: Counts) -> bool:
    """Cosine of frequencies and law at most .99."""
    norms = np.linalg.norm(counts) * np.linalg.norm(law)
    return bool(counts @ law / norms <= 0.99)


def variation(limit: float) -> Decide:
    """Total variation of frequencies and law at or above a limit."""

    def rejects(law: Floats, counts: Counts) -> bool:
        return bool(0.5 * np.abs(counts / counts.sum() - law).sum() >= limit)

    return rejects


def ten_sigma(law: Floats, counts: Counts) -> bool:
    """Pearson's statistic over all ids beyond its mean by ten standard deviations."""
    expected = law * counts.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    degrees = len(law) - 1
    return bool(statistic > degrees + 10 * np.sqrt(2 * degrees))


def observed_support(law: Floats, counts: Counts) -> bool:
    """Chi-square at 1e-3 over ids that were drawn, thin ones merged; never drawn ids are left."""
    seen = counts > 0
    share, hits = law[seen] / law[seen].sum(), counts[seen]
    dense = (hits > 5) & (share * hits.sum() > 5)
    if not dense.all():
        hits = np.append(hits[dense], hits[~dense].sum())
        share = np.append(share[dense], share[~dense].sum())
    return bool(stats.chisquare(hits, share * hits.sum())[1] <= 1e-3)


GATES = (
    Gate("cosine > .99", "FlashInfer", 128_256, 5_000_000, cosine),
    Gate("TV < .2", "flashinfer-bench", 32_000, 500_000, variation(0.2)),
    Gate("chi-square, 10 sigma", "vLLM", 200_000, 4_000_000, ten_sigma),
    Gate("TV < .02", "SGLang, chain", 8, 20_000, variation(0.02)),
    Gate("TV < .05", "TensorRT-LLM", 64, 32_768, variation(0.05)),
    Gate("chi-square on drawn ids", "torch", 8, 10_000, observed_support),
)


def normal_law(vocabulary: int) -> Floats:
    """Softmax of normal logits, one fixed draw a vocabulary."""
    logits = np.random.default_rng(vocabulary).standard_normal(vocabulary)
    power = np.exp(logits - logits.max())
    return np.asarray(power / power.sum(), dtype=np.float64)


def median_raised(law: Floats, mass: float) -> Floats:
    """The law with `mass` moved onto the median id, from all others in proportion."""
    middle = int(np.argsort(law, kind="stable")[len(law) // 2])
    other = law * (1 - mass)
    other[middle] += mass
    return np.asarray(other, dtype=np.float64)


def median_dead(law: Floats) -> Floats:
    """The law without its median id."""
    other = law.copy()
    other[np.argsort(law, kind="stable")[len(law) // 2]] = 0.0
    return np.asarray(other / other.sum(), dtype=np.float64)


def floored(law: Floats) -> Floats:
    """The law drawn from uniforms of 24 bits: what is left of ids near or below 2^-24."""
    ratio = FLOOR / law
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        share = ratio * (1.5 * np.exp(-ratio) + np.exp(-2 * ratio) / -np.expm1(-ratio))
    other = law * np.where(ratio < 1e-3, 1.0, np.minimum(share, 1.0))
    return np.asarray(other / other.sum(), dtype=np.float64)


def drawn(law: Floats, draws: int, shared: float, seed: int) -> Counts:
    """Counts of draws of which a share comes in pairs with common noise."""
    source = np.random.default_rng(seed)
    pairs = int(draws * shared / 2)
    counts = source.multinomial(draws - 2 * pairs, law) + 2 * source.multinomial(pairs, law)
    return np.asarray(counts, dtype=np.int64)


def found(gate: Gate, law: Floats, other: Floats, shared: float = 0.0) -> bool:
    """Whether the gate for `law` rejects draws of `other` in 38 of 40 runs."""
    misses = 0
    for seed in range(RUNS):
        misses += not gate.rejects(law, drawn(other, gate.draws, shared, seed))
        if misses > RUNS - FOUND:
            return False
    return True


def smallest(sees: Callable[[float], bool], largest: float) -> float | None:
    """The smallest fault that is seen, to 15 %, by bisection; None when the largest is not."""
    if not sees(largest):
        return None
    low, high = largest / 4096, largest
    while high / low > STEP:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if sees(middle) else (middle, high)
    return high


def row_of(gate: Gate) -> dict[str, float | bool | None]:
    """What one gate finds: smallest temperature error, mass, share; dead id and floor or not."""
    law = normal_law(gate.vocabulary)
    return {
        "false alarms": sum(
            gate.rejects(law, drawn(law, gate.draws, 0.0, 1000 + seed)) for seed in range(RUNS)
        )
        / RUNS,
        "temperature": smallest(
            lambda tilt: found(gate, law, planning.tilted(law, tilt)), LARGEST["temperature"]
        ),
        "median": smallest(
            lambda mass: found(gate, law, median_raised(law, mass)), LARGEST["median"]
        ),
        "dead": found(gate, law, median_dead(law)),
        "shared": smallest(lambda share: found(gate, law, law, share), LARGEST["shared"]),
        "floor": found(gate, law, floored(law)),
    }
