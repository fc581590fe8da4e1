"""What a report holds that can be drawn: cells beside their law, quantiles of noise, ages."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from .lattice import OCTAVES, TOP
from .significance import Counts, Floats
from .sums import Sum, read

# Over all points of one figure together, the probability that a correct sampler leaves its band.
OUTSIDE = 1e-3
# Checks whose counts have the shape of their law.
FITTED = ("draft_law", "lossless", "claim")


@dataclass(frozen=True)
class Cells:
    """Cells of one check and combination: probability, hits and draws of each, flat arrays."""

    check: str
    combination: str
    probability: Floats
    hits: Counts
    draws: Counts

    @property
    def band(self) -> tuple[Floats, Floats]:
        """Hits between which all cells of a correct sampler lie, but for OUTSIDE."""
        each = OUTSIDE / 2 / len(self.hits)
        low = stats.binom.ppf(each, self.draws, self.probability)
        return low, stats.binom.isf(each, self.draws, self.probability)

    @property
    def residuals(self) -> Floats:
        """How far hits lie from what is expected, in standard deviations."""
        p = self.probability
        return np.asarray((self.hits - self.draws * p) / np.sqrt(self.draws * p * (1 - p)))

    @property
    def limit(self) -> float:
        """How far the farthest residual of a correct sampler lies, but for OUTSIDE."""
        return float(stats.norm.isf(OUTSIDE / 2 / len(self.hits)))


@dataclass(frozen=True)
class Quantiles:
    """Quantiles of one source of Gumbel noise g = -log E: observed, and those of the law.

    low, high: of the law, between which a correct source lies, but for OUTSIDE.
    """

    combination: str
    source: str
    observed: Floats
    required: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Ages:
    """Replays of a chain of loads, and what was stale in them: field -> replay -> age in replays.

    An age of 0 is a value from before the first load.
    """

    combination: str
    replays: int
    stale: Mapping[str, Mapping[int, int]]


def cases(report: Mapping[str, Any], check: str) -> Iterator[Mapping[str, Any]]:
    """The cases of one check."""
    for row in report["checks"]:
        if row["check"] == check:
            yield from row["cases"]


def first_sums(case: Mapping[str, Any]) -> Sequence[Sum]:
    """What was counted at stage one, which is planned before anything is drawn."""
    return read(case["sums"]["1"]) if "1" in case["sums"] else ()


def cells(report: Mapping[str, Any]) -> list[Cells]:
    """Every check whose counts stand beside probabilities of their own, by combination."""
    found: dict[tuple[str, str], list[tuple[Floats, Counts]]] = {}
    for check in FITTED:
        for case in cases(report, check):
            for one in first_sums(case):
                if one.probabilities is not None and one.probabilities.shape == one.counts.shape:
                    both = one.probabilities.ravel(), one.counts.ravel()
                    found.setdefault((check, case["combination"]), []).append(both)
    return [joined(*key, parts) for key, parts in found.items()]


def joined(check: str, combination: str, parts: Sequence[tuple[Floats, Counts]]) -> Cells:
    """The possible cells of several laws, rarest first."""
    p = np.concatenate([law for law, _ in parts])
    hits = np.concatenate([counts for _, counts in parts])
    draws = np.concatenate([np.full(len(counts), counts.sum()) for _, counts in parts])
    order = np.argsort(p, kind="stable")
    order = order[(p[order] > 0) & (p[order] < 1)]
    return Cells(check, combination, p[order], hits[order], draws[order])


def gumbel(share: Floats) -> Floats:
    """The quantile of the standard Gumbel law below which a share of it lies."""
    return np.asarray(-np.log(-np.log(share)))


def quantiles(report: Mapping[str, Any]) -> list[Quantiles]:
    """The noise of every source whose octaves were counted, at the edges of the octaves."""
    found = []
    edges = np.sqrt(0.5) * np.exp2(TOP - np.arange(OCTAVES - 1, dtype=np.float64))
    for case in cases(report, "noise_law"):
        for one in first_sums(case):
            if not one.law.endswith(": octaves"):
                continue
            total, below = int(one.counts.sum()), one.counts.cumsum()[:-1]
            at = -np.log(edges)
            seen = (below > 0) & (below < total)
            law = np.exp(-np.exp(-at[seen]))
            each = OUTSIDE / 2 / max(int(seen.sum()), 1)
            low = stats.binom.ppf(each, total, law).clip(0.5, total - 0.5)
            high = stats.binom.isf(each, total, law).clip(0.5, total - 0.5)
            found.append(
                Quantiles(
                    case["combination"],
                    one.law.removesuffix(": octaves"),
                    at[seen],
                    gumbel(below[seen] / total),
                    gumbel(low / total),
                    gumbel(high / total),
                )
            )
    return found


def ages(report: Mapping[str, Any]) -> list[Ages]:
    """Every chain of loads that all differ."""
    found = []
    for case in cases(report, "freshness"):
        if line := case["evidence"].get("timeline"):
            stale = {name: dict(pairs) for name, pairs in line["stale"].items()}
            found.append(Ages(case["combination"], line["replays"], stale))
    return found
