"""The table of public assertions: recorded, reproducible, and the one in the README."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.judge.context import PROFILES

from .benchmarks.gates import GATES, Gate, row_of
from .benchmarks.side_by_side import COLUMNS, coupled, markdown, noise_itself, pairs

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
REPORT = json.loads((ROOT / "fixtures" / "side_by_side.json").read_text())
ROWS = {row["name"]: row for row in REPORT["rows"]}
QUICK = [gate for gate in GATES if gate.vocabulary < 100]


def test_the_readme_shows_the_recorded_table() -> None:
    """Word for word, with date and seeds."""
    text = (ROOT / "README.md").read_text()
    _, mark, after = text.partition("<!-- table: side-by-side -->\n")
    assert mark
    assert after.startswith(markdown(REPORT))


def agree(found: Row, recorded: Row, relative: float) -> bool:
    """Whether two rows tell the same, shares within a relative tolerance."""
    for column in COLUMNS:
        one, two = found[column], recorded[column]
        if one is None or two is None or isinstance(two, bool):
            if bool(one) != bool(two):
                return False
        elif abs(one - two) > relative * two:
            return False
    return True


@pytest.mark.parametrize("gate", QUICK, ids=lambda gate: gate.source)
def test_a_public_assertion_finds_what_was_recorded(gate: Gate) -> None:
    """Same seeds, same figures: numpy's streams are those of the recorded version."""
    found, recorded = row_of(gate), ROWS[gate.name]
    assert agree(found, recorded, 0.16)
    assert found["false alarms"] == 0


@pytest.mark.parametrize("measure", [coupled, pairs, noise_itself])
def test_our_rows_are_recomputed(measure: Callable[[], Row]) -> None:
    """What is planned today is what was recorded."""
    found = measure()
    recorded = ROWS[found["name"]]
    assert found["draws"] == recorded["draws"]
    assert agree(found, recorded, 1e-6)


def test_the_readme_tells_the_profiles_as_they_are() -> None:
    """The table of profiles repeats the numbers of the code."""
    text = (ROOT / "README.md").read_text()
    for name, profile in PROFILES.items():
        line = (
            f"| {name} | {100 * profile.tilt:g} % | {profile.wrong:.2g}".replace("e-0", "e-")
            + f" | {100 * profile.share:g} % |"
        )
        assert line in text.replace("2.5e-4", "0.00025"), line
