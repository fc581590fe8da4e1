"""Rows of the report, and the file they are written to as they come."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .problem import Case


@dataclass
class Row:
    """One implementation in one case; None where it was not measured.

    section    chain, head, occupancy, counting, host
    cold, hot  microseconds a block; floor likewise, ratio = cold / floor
    parity     'yes', or what is wrong with the tokens
    equal      share of tokens equal to those of our folded torch block, under equal noise
    launches   device events a block; busy the share of its span that they fill
    extra      figures of one section alone
    word       why the row is empty or odd
    """

    section: str
    name: str
    case: Case
    cold: float | None = None
    hot: float | None = None
    floor: float | None = None
    parity: str = ""
    equal: float | None = None
    launches: int | None = None
    busy: float | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    word: str = ""

    @property
    def ratio(self) -> float | None:
        """Cold time as a multiple of the floor."""
        return self.cold / self.floor if self.cold and self.floor else None


class Report:
    """All rows of a run; every change is written at once, so that a lost run leaves its rows.

    path   a JSON file, or None
    facts  of the run: device, versions, ceilings
    """

    def __init__(self, path: Path | None, facts: dict[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.rows: list[Row] = []
        self.words: list[str] = []
        self.flush()

    def add(self, *rows: Row) -> None:
        """Keep rows and write."""
        self.rows += rows
        self.flush()

    def say(self, word: str) -> None:
        """Keep a word about the run, once, and write."""
        if word not in self.words:
            self.words.append(word)
            self.flush()

    def flush(self) -> None:
        """Write the file whole, beside the old one first."""
        if self.path is None:
            return
        rows = [{**asdict(row), "ratio": row.ratio} for row in self.rows]
        text = json.dumps({**self.facts, "words": self.words, "rows": rows}, indent=1)
        beside = self.path.with_suffix(".part")
        beside.write_text(text)
        beside.replace(self.path)
