"""`draftproof plan` says how many draws an effect needs, and refuses what it cannot plan."""

import json

import pytest
from typer.testing import CliRunner

from oracle.commands import app

WIDE = {"COLUMNS": "200"}


def planned(*options: str) -> dict[str, int]:
    """Draws by check."""
    result = CliRunner().invoke(app, ["plan", "--json", *options], env=WIDE)
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert all(row["seconds"] > 0 for row in found)
    return {row["check"]: row["draws"] for row in found}


def test_the_coupled_oracle_needs_hundreds_of_times_fewer_draws() -> None:
    """A temperature error of 1 % at V = 32: two orders of magnitude lie between the two tests."""
    found = planned("--effect", "temperature=0.01", "--vocab", "32")
    assert found["draft_law"] > 100 * found["coupled"]
    smaller = planned("--effect", "temperature=0.005", "--vocab", "32")
    assert 1.8 < smaller["coupled"] / found["coupled"] < 2.2
    assert 3.5 < smaller["draft_law"] / found["draft_law"] < 4.5


def test_a_lost_id_is_certain_after_v_draws() -> None:
    """The spike sweep needs one draw an id."""
    assert planned("--effect", "lost=0.001", "--vocab", "61")["spike"] == 61


def test_shared_noise_is_planned_in_draws_of_pairs() -> None:
    """More power or a smaller share needs more."""
    options = ("--effect", "shared=0.01", "--vocab", "64", "--power")
    assert planned(*options, "0.999")["independence"] > planned(*options, "0.9")["independence"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--effect", "noise=1"), "effect is 'noise=1', required: one of temperature=SIZE"),
        (("--effect", "temperature=hot"), "required: a number as SIZE"),
        (("--effect", "token=-0.1"), "size is -0.1, required: above 0 and below 1"),
        (("--effect", "lost=0.1", "--power", "1"), "power is 1.0, required: from 0.5"),
        (("--effect", "lost=0.1", "--vocab", "1"), "vocab is 1, required: at least 2"),
    ],
)
def test_bad_requests_are_refused_by_name(options: tuple[str, ...], words: str) -> None:
    """Exit code 2, observed and required."""
    result = CliRunner().invoke(app, ["plan", *options], env=WIDE)
    assert result.exit_code == 2
    assert words in " ".join(result.output.replace("│", " ").split())


def test_the_table_names_law_and_speed() -> None:
    """A person reads draws, seconds and the spread of the planned law."""
    result = CliRunner().invoke(app, ["plan", "--effect", "token=0.01", "--vocab", "16"], env=WIDE)
    assert result.exit_code == 0
    assert "Var(log p)" in result.output
    assert "one race lost by more than rounding" in result.output
