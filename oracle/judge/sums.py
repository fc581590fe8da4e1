"""What one case has counted, law by law: integers and log e-values, which add over shards.

A statistical check decides on these sums alone, so draws that were made in several places are
judged by the very rule that judges those of one place.
"""

import base64
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .bank import Member, log_values
from .evidence import GRID, EvidenceError, digest_of, same
from .significance import Counts, Floats

# Counts are stored in the narrowest of these that holds them.
WIDTHS = ("<i1", "<i2", "<i4", "<i8")
# The probabilities of a law of so many cells are stored beside its counts.
CELLS_MAX = 1024
# JSON has no infinity. What lies below does not count in any mean.
LOG_LEAST = -1e9


@dataclass(frozen=True, eq=False)
class Sum:
    """Draws under one law.

    law     names it within its case
    what    the axes of the counts, in words
    digest  sha256 of its probabilities, '' where there are none to compare
    counts  int64 of any shape: cells, or hits and trials
    log_e   log e-value of each member of the bank, on the grid; empty where no bank is read
    probabilities  of the law, float64 of any shape; None where there are more than CELLS_MAX
    """

    law: str
    what: str
    digest: str
    counts: Counts
    log_e: Mapping[str, float] = field(default_factory=dict)
    probabilities: Floats | None = None


Sums = tuple[Sum, ...]


def table(name: str, what: str, law: Floats, counts: Counts, bank: Sequence[Member] = ()) -> Sum:
    """A sum under a law of any shape, given by its probabilities; bank: read on `counts`."""
    log_e = valued(bank, log_values(counts, bank)) if bank else {}
    kept = np.asarray(law, dtype=np.float64) if law.size <= CELLS_MAX else None
    return Sum(name, what, digest(law), counts.astype(np.int64), log_e, kept)


def digest(law: Floats) -> str:
    """What identifies probabilities of any shape."""
    with np.errstate(divide="ignore"):
        return digest_of(np.log(np.asarray(law, dtype=np.float64)))


def valued(bank: Sequence[Member | str], values: Floats) -> dict[str, float]:
    """Log e-values by the names of their members, brought to the grid."""
    names = [one if isinstance(one, str) else one.name for one in bank]
    if np.isnan(values).any() or np.isposinf(values).any():
        raise EvidenceError(f"log e-values are {values.tolist()}, required: below infinity")
    whole = np.floor(np.maximum(values, LOG_LEAST) / GRID) * GRID
    return dict(zip(names, whole.tolist(), strict=True))


def named(sums: Sums) -> dict[str, Sum]:
    """The sums of a case by the names of their laws."""
    return {one.law: one for one in sums}


def added(left: Sums, right: Sums) -> Sums:
    """Both together, law by law; EvidenceError when they are not of the same laws."""
    same("laws", [one.law for one in left], [one.law for one in right])
    return tuple(_one_added(a, b) for a, b in zip(left, right, strict=True))


def _one_added(left: Sum, right: Sum) -> Sum:
    """Two sums of one law."""
    for what in ("what", "digest"):
        same(f"{what} of {left.law!r}", getattr(left, what), getattr(right, what))
    same(f"shapes of {left.law!r}", left.counts.shape, right.counts.shape)
    same(f"banks of {left.law!r}", list(left.log_e), list(right.log_e))
    log_e = {name: value + right.log_e[name] for name, value in left.log_e.items()}
    return replace(left, counts=left.counts + right.counts, log_e=log_e)


def packed(counts: Counts) -> dict[str, Any]:
    """Counts as JSON: shape, width, and base64 of the deflated little-endian integers."""
    low, high = (int(counts.min()), int(counts.max())) if counts.size else (0, 0)
    for width in WIDTHS:
        limits = np.iinfo(width)
        if limits.min <= low and high <= limits.max:
            break
    return _deflated(counts, width)


def _deflated(values: Counts | Floats, width: str) -> dict[str, Any]:
    content = zlib.compress(np.ascontiguousarray(values, dtype=width).tobytes(), 1)
    text = base64.b64encode(content).decode()
    return {"shape": list(values.shape), "width": width, "deflated": text}


def unpacked(found: Mapping[str, Any]) -> Counts:
    """The counts of `packed`; EvidenceError for content that is not of the stated shape."""
    counts: Counts = _inflated(found).astype(np.int64)
    return counts


def _inflated(found: Mapping[str, Any]) -> Any:
    try:
        content = zlib.decompress(base64.b64decode(found["deflated"], validate=True))
        return np.frombuffer(content, dtype=found["width"]).reshape(found["shape"])
    except (ValueError, zlib.error) as error:
        raise EvidenceError(f"counts of shape {found['shape']} cannot be read: {error}") from error


def documents(sums: Sums) -> list[dict[str, Any]]:
    """Sums as JSON."""
    return [
        {
            "law": one.law,
            "what": one.what,
            "digest": one.digest,
            "counts": packed(one.counts),
            "log_e": dict(one.log_e),
        }
        | ({} if (kept := one.probabilities) is None else {"probabilities": _deflated(kept, "<f8")})
        for one in sums
    ]


def read(found: Sequence[Mapping[str, Any]]) -> Sums:
    """The sums of `documents`."""
    return tuple(
        Sum(
            one["law"],
            one["what"],
            one["digest"],
            unpacked(one["counts"]),
            one["log_e"],
            _inflated(one["probabilities"]) if "probabilities" in one else None,
        )
        for one in found
    )
