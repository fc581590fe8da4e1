"""One sequential run over several cases: grown chunk by chunk, resumed, or summed from files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .evidence import Evidence, EvidenceError, add, document, pieces_of, stored
from .sequential import Rule, decide, ended
from .stream import Stream
from .verdict import Outcome, Verdict, unknown

# Two files of one test agree on all of these; seed and shard may differ.
SHARED = ("alpha", "effect", "bound", "cases")


@dataclass
class Night:
    """One sequential run over several cases, each with an equal part of its alarm probability.

    run: as in the schema. pieces: what was seen, by case. verdicts: what is decided, by case.
    """

    run: Mapping[str, Any]
    pieces: dict[str, Evidence]
    verdicts: dict[str, Verdict]

    @property
    def rule(self) -> Rule:
        """The rule of every case."""
        run = self.run
        return Rule(run["alpha"] / len(run["cases"]), run["effect"], run["bound"])

    def look(self, case: str) -> None:
        """Decide a case on what was seen so far."""
        found = decide(self.pieces[case], self.rule) if case in self.pieces else None
        if found is not None:
            self.verdicts[case] = found

    def grow(self, stream: Stream, *, look: bool = True) -> None:
        """Draw the next chunk of this shard that is not counted yet, and look if told to."""
        before = self.pieces.get(stream.case)
        counted = before.seeds if before else frozenset()
        number = self.run["shard"] - 1 + self.run["shards"] * len(counted)
        while stream.seed(number) in counted:
            number += self.run["shards"]
        found = stream.chunk(number)
        if isinstance(found, Verdict):
            self.verdicts[stream.case] = found
            return
        self.pieces[stream.case] = add(before, found) if before else found
        if look:
            self.look(stream.case)

    def over(self) -> bool:
        """Whether nothing is left to draw: all is decided, or one case is violated or errored."""
        final = (Outcome.VIOLATED, Outcome.ERRORED)
        if any(verdict.outcome in final for verdict in self.verdicts.values()):
            return True
        return all(case in self.verdicts for case in self.run["cases"])

    def closed(self, why: str) -> dict[str, Verdict]:
        """The verdict of every case; what is not decided is unknown, because of `why`."""
        cases = self.run["cases"]
        late = ended([self.pieces.get(case) for case in cases], self.rule, why)
        return {
            case: self.verdicts.get(case, verdict)
            for case, verdict in zip(cases, late, strict=True)
        }

    def document(self) -> dict[str, Any]:
        """What is written after every chunk."""
        return document(self.run, [self.pieces[c] for c in self.run["cases"] if c in self.pieces])


def resumed(path: Path | None, run: Mapping[str, Any], found: Sequence[Stream]) -> Night:
    """Go on from a state file, or start; EvidenceError when the file is of another run."""
    night = Night(run, {}, {})
    if path is None or not path.exists():
        return night
    held = stored(path)
    for name, value in run.items():
        if held["run"][name] != value:
            raise EvidenceError(
                f"{path} was written with {name} = {held['run'][name]!r}, required: {value!r}, as "
                f"asked for now; another run takes another file"
            )
    by_case = {stream.case: stream for stream in found}
    for piece in pieces_of(held):
        by_case[piece.case].refuse_foreign(piece)
        night.pieces[piece.case] = piece
        night.look(piece.case)
    return night


def shard_only(case: str, verdict: Verdict, night: Night) -> Verdict:
    """A shard raises no alarm by chance: the budget belongs to the merged evidence."""
    by_chance = case in night.pieces and decide(night.pieces[case], night.rule) == verdict
    if verdict.outcome is not Outcome.VIOLATED or night.run["shards"] == 1 or not by_chance:
        return verdict
    return unknown(f"this shard alone shows: {verdict.reason}; merge the shards to decide")


def together(paths: Sequence[Path]) -> Night:
    """The sum of several state files; EvidenceError when they are not parts of one test."""
    if not paths:
        raise EvidenceError("no file was named, required: one or more")
    return summed([(str(path), stored(path)) for path in paths])


def summed(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> Night:
    """The sum of documents, each with the name that errors give it."""
    first, head = parts[0]
    whole = Night({**head["run"], "shard": 1, "shards": 1}, {}, {})
    origin: dict[str, str] = {}
    for name, held in parts:
        for field in SHARED:
            if held["run"][field] != whole.run[field]:
                raise EvidenceError(
                    f"{first} has {field} = {whole.run[field]!r}, {name} has "
                    f"{held['run'][field]!r}, required: the same"
                )
        whole.run = {**whole.run, "seed": min(whole.run["seed"], held["run"]["seed"])}
        for piece in pieces_of(held):
            before = whole.pieces.get(piece.case)
            try:
                whole.pieces[piece.case] = add(before, piece) if before else piece
            except EvidenceError as error:
                raise EvidenceError(f"{origin[piece.case]} and {name}: {error}") from error
            origin[piece.case] = name
    for case in whole.run["cases"]:
        whole.look(case)
    return whole
