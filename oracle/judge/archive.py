"""Verdicts on file: the history behind each, or why there is none; judged again from there.

What a check answers follows from its history alone, so a stored one gives the same verdict on any
machine, without the sampler. Three things cannot be stored: a sampler that could not be built has
no history, one above SIZE_LIMIT is too large, and a file holds plain values and tensors alone. For
these a note takes its place, and judging the note again answers unknown: it needs the sampler.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from . import history as histories
from .answer import judge_again
from .budget import Ledger
from .history import FORMAT, History
from .redraw import drawable
from .trial import Result
from .verdict import Verdict, unknown

UNSTORED = "draftproof-unstored-1"
SCHEMA = Path(__file__).parents[1] / "schema" / "unstored.json"
NEVER_RAN = "it has no history: no block was run"


@dataclass(frozen=True)
class Again:
    """A verdict, stored and judged again.

    outcome, reason: as stored, empty where a history holds none. why: it could not be stored, or
    what differs can be due to; again: the command that puts the sampler itself under test.
    """

    path: Path
    check: str
    case: str
    outcome: str
    reason: str
    now: Verdict
    why: str = ""
    again: str = ""

    @property
    def same(self) -> bool:
        """Whether the verdict is the stored one, its reason included."""
        stored = (self.outcome, self.reason)
        return not self.outcome or stored == (self.now.outcome.value, self.now.reason)


def store(result: Result, stem: Path, again: str, environment: dict[str, Any]) -> str:
    """Write the history of a result to `stem`, or a note; returns why there is no history, or ''.

    again: the command that repeats the run.
    """
    why = NEVER_RAN
    if result.history is not None:
        try:
            histories.save(result.history, stem)
        except (TypeError, ValueError) as error:
            why = str(error)
        else:
            return ""
    note = {
        "format": UNSTORED,
        "check": result.check,
        "case": result.case,
        "outcome": result.verdict.outcome.value,
        "reason": result.verdict.reason,
        "why": why,
        "again": again,
        "environment": environment,
    }
    jsonschema.validate(note, json.loads(SCHEMA.read_text()))
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_name(stem.name + ".json").write_text(json.dumps(note, indent=1) + "\n")
    return why


def find(path: Path) -> list[Path]:
    """All stored verdicts at a path: the file itself, or every one below a folder."""
    if not path.is_dir():
        return [path]
    return [file for file in sorted(path.rglob("*.json")) if format_of(file) in (FORMAT, UNSTORED)]


def format_of(file: Path) -> str:
    """The format that a JSON file says it has, or ''."""
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return ""
    return str(found.get("format", "")) if isinstance(found, dict) else ""


def undrawable(history: History) -> str:
    """What of a history this machine cannot draw again, or ''."""
    race = history.setting.get("dialect") == "race"
    if race and not drawable(history.setting["device"]):
        return "race noise that was drawn on a GPU can be drawn again on a GPU only"
    return ""


def judged_again(path: Path) -> Again:
    """Judge one stored verdict, with a budget as its run had it; a note stays undecided."""
    if format_of(path) == UNSTORED:
        note = json.loads(path.read_text())
        jsonschema.validate(note, json.loads(SCHEMA.read_text()))
        now = unknown(f"it cannot be judged again without the sampler: {note['why']}")
        told = (note["outcome"], note["reason"], now, note["why"], note["again"])
        return Again(path, note["check"], note["case"], *told)
    history = histories.load(path)
    now = judge_again(history, Ledger(history.alpha))
    outcome, reason = (history.verdict.get(name, "") for name in ("outcome", "reason"))
    known = (undrawable(history), history.reproduce)
    return Again(path, history.check, history.case, outcome, reason, now, *known)
