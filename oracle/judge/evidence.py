"""What draws have shown so far, in a form that adds: counts and log e-values, on file or in memory.

Evidence of one law adds counts, evidence of several laws adds the log e-value of each member, and
the mean over members is taken last. Every log e-value lies on a grid, so that sums are exact and
no order of adding differs from another.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jsonschema import Draft202012Validator, ValidationError

from .significance import Counts, Floats

FORMAT = "draftproof-evidence-1"
SCHEMA = Path(__file__).parents[1] / "schema" / "evidence.json"
GRID = 2.0**-32
# An e-value below 1e-300 counts as that bound: a logarithm in JSON has to be finite.
LOG_BOUND = math.log(1e-300)
# Logs of a law are compared to this many decimals: machines round the last bits differently.
DECIMALS = 9


class EvidenceError(ValueError):
    """Two pieces of evidence that do not belong together, or draws that would count twice."""


@dataclass(frozen=True, eq=False)
class Law:
    """Counts under one law: `run` is the run whose case has it, `digest` names it.

    counts [contexts, V] int64.
    """

    run: int
    digest: str
    counts: Counts


@dataclass(frozen=True, eq=False)
class Evidence:
    """All that was seen of one case.

    case, subject  what was drawn from which sampler
    versions       of everything that a draw or a value depends on
    members        names of the bank, in order; log_e [members] their log e-values, on the grid
    laws           counts, one entry a run
    seeds          of the draws that are counted, each once
    """

    case: str
    subject: str
    versions: Mapping[str, str]
    members: tuple[str, ...]
    log_e: Floats
    laws: tuple[Law, ...]
    seeds: frozenset[int]

    @property
    def draws(self) -> int:
        """How many draws are counted, over all laws."""
        return sum(int(law.counts.sum()) for law in self.laws)


def digest_of(log_law: Floats) -> str:
    """Sha256 of a law [contexts, V] given by its logarithm: of its shape and rounded values."""
    rounded = np.ascontiguousarray(np.round(log_law, DECIMALS) + 0.0, dtype="<f8")
    head = json.dumps(list(rounded.shape)).encode()
    return hashlib.sha256(head + rounded.tobytes()).hexdigest()


def on_grid(log_e: Floats) -> Floats:
    """Log e-values rounded down to the grid, none below LOG_BOUND; EvidenceError for +inf, NaN."""
    if np.isnan(log_e).any() or np.isposinf(log_e).any():
        raise EvidenceError(f"log e-values are {log_e.tolist()}, required: below infinity")
    return np.floor(np.maximum(log_e, LOG_BOUND) / GRID) * GRID


@cache
def validator() -> Draft202012Validator:
    """The schema, read and compiled once: a state is written after every chunk."""
    return Draft202012Validator(json.loads(SCHEMA.read_text()))


def same(what: str, left: Any, right: Any) -> None:
    """Refuse to add what differs, naming both sides."""
    if left != right:
        raise EvidenceError(f"{what} differ: {left!r} and {right!r}, required: the same")


def added_laws(left: Sequence[Law], right: Sequence[Law]) -> tuple[Law, ...]:
    """Counts run by run; one run has one law, so another digest or shape there is foreign."""
    merged = {law.run: law for law in left}
    for law in right:
        other = merged.get(law.run)
        if other is None:
            merged[law.run] = law
            continue
        same(f"digests of the law of run {law.run}", other.digest, law.digest)
        same(f"shapes of the counts of run {law.run}", other.counts.shape, law.counts.shape)
        merged[law.run] = Law(law.run, law.digest, other.counts + law.counts)
    return tuple(merged[run] for run in sorted(merged))


def add(left: Evidence, right: Evidence) -> Evidence:
    """Both together; EvidenceError when they are not of one case, subject, build or bank.

    Draws that both count, known by their seeds, are refused: they would count twice.
    """
    same("cases", left.case, right.case)
    same("subjects", left.subject, right.subject)
    same("versions", dict(left.versions), dict(right.versions))
    same("banks", left.members, right.members)
    common = sorted(left.seeds & right.seeds)
    if common:
        raise EvidenceError(
            f"{len(common)} seeds of {left.case!r} are counted on both sides, {common[0]} among "
            f"{len(left.seeds)} and {len(right.seeds)}, required: none"
        )
    return Evidence(
        left.case,
        left.subject,
        left.versions,
        left.members,
        left.log_e + right.log_e,
        added_laws(left.laws, right.laws),
        left.seeds | right.seeds,
    )


def document(run: Mapping[str, Any], pieces: Sequence[Evidence]) -> dict[str, Any]:
    """A run and its evidence as JSON, checked against the schema."""
    found = {
        "format": FORMAT,
        "run": dict(run),
        "evidence": [
            {
                "case": piece.case,
                "subject": piece.subject,
                "versions": dict(piece.versions),
                "members": list(piece.members),
                "log_e": piece.log_e.tolist(),
                "draws": piece.draws,
                "laws": [{**vars(law), "counts": law.counts.tolist()} for law in piece.laws],
                "seeds": sorted(piece.seeds),
            }
            for piece in pieces
        ],
    }
    validator().validate(found)
    return found


def pieces_of(found: Mapping[str, Any]) -> list[Evidence]:
    """The evidence in a document; EvidenceError when it contradicts itself."""
    validator().validate(found)
    pieces = []
    for entry in found["evidence"]:
        laws = tuple(
            Law(law["run"], law["digest"], np.array(law["counts"], dtype=np.int64))
            for law in entry["laws"]
        )
        piece = Evidence(
            entry["case"],
            entry["subject"],
            entry["versions"],
            tuple(entry["members"]),
            np.array(entry["log_e"], dtype=np.float64),
            laws,
            frozenset(entry["seeds"]),
        )
        cases = found["run"]["cases"]
        if piece.case not in cases:
            raise EvidenceError(f"evidence of {piece.case!r}, required: of one of {cases}")
        same(f"draws of {piece.case!r}, stated and counted,", entry["draws"], piece.draws)
        same(f"members of {piece.case!r}, named and valued,", len(piece.members), len(piece.log_e))
        pieces.append(piece)
    return pieces


def store(path: Path, found: Mapping[str, Any]) -> None:
    """Write a document so that a reader, or a later run, finds the old file or the new one."""
    text = json.dumps(found, allow_nan=False)
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    with beside.open("w") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def stored(path: Path) -> dict[str, Any]:
    """Read a document; EvidenceError names a file that is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        validator().validate(found)
    except (OSError, json.JSONDecodeError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise EvidenceError(f"{path} is no evidence: {error.message}") from error
    return found
