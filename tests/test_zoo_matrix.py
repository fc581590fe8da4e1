"""The matrix of the zoo: what a cell says, what a run finds, and how a lost killer shows."""

import json
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import jsonschema
import pytest
import torch
from typer.testing import CliRunner
from typer.testing import Result as Told

from oracle.judge.checks import named
from oracle.judge.history import History
from oracle.judge.trial import COMBINATIONS
from oracle.judge.verdict import Verdict, holds

from .zoo import figure, guide
from .zoo.__main__ import app
from .zoo.controls import SPARED
from .zoo.jobs import judged, shared_out
from .zoo.listing import SCHEMA, Run, document
from .zoo.matrix import (
    CHECKS,
    RECORDED,
    Cell,
    Job,
    Role,
    Seen,
    State,
    absent,
    cell,
    everyone,
    merged,
    planned,
    torchrun,
    totals,
)
from .zoo.ranks import SHARED

COUNTER = ("dspark", "counter")


def invented(role: Role, *outcomes: str, check: str = "coupled", row: str = "hotter") -> Cell:
    """A cell from invented answers of half a second each."""
    seen = [Seen(f"case {n}", outcome, "because", 0.5) for n, outcome in enumerate(outcomes)]
    return cell(Job(row, COUNTER, check, role), seen)


@pytest.mark.parametrize(
    ("role", "outcomes", "state"),
    [
        (Role.KILLER, ("holds", "violated"), State.KILLED),
        (Role.KILLER, ("holds",), State.UNEXPECTED),
        (Role.KILLER, ("not applicable",), State.UNEXPECTED),
        (Role.KILLER, ("violated", "errored"), State.UNEXPECTED),
        (Role.KILLER, ("unknown",), State.UNEXPECTED),
        (Role.BLIND, ("holds", "not applicable"), State.BLIND),
        (Role.BLIND, ("holds", "violated"), State.UNEXPECTED),
        (Role.BLIND, ("not applicable",), State.UNEXPECTED),
        (Role.OTHER, ("holds",), State.SURVIVED),
        (Role.OTHER, ("holds", "errored"), State.ALSO),
        (Role.OTHER, ("raised",), State.UNEXPECTED),
        (Role.OTHER, ("not applicable",), State.OUT),
        (Role.CONTROL, ("holds", "not applicable"), State.PASSED),
        (Role.CONTROL, ("not applicable",), State.OUT),
        (Role.CONTROL, ("holds", "unknown"), State.UNEXPECTED),
        (Role.CONTROL, ("violated",), State.UNEXPECTED),
        (Role.CONTROL, ("errored",), State.UNEXPECTED),
    ],
)
def test_a_cell_says_what_its_answers_mean(
    role: Role, outcomes: tuple[str, ...], state: State
) -> None:
    """Every role with every kind of answer."""
    assert invented(role, *outcomes).state is state


def test_path_kills_by_unknown_and_by_nothing_else() -> None:
    """It never accuses."""
    assert invented(Role.KILLER, "unknown", check="path").state is State.KILLED
    assert invented(Role.KILLER, "violated", check="path").state is State.UNEXPECTED


def test_the_time_to_kill_ends_with_the_first_kill() -> None:
    """Cases after the first that does not hold are not counted; its reason is kept."""
    killed = invented(Role.KILLER, "holds", "violated", "holds", "violated")
    assert killed.seconds == pytest.approx(1.0)
    assert killed.reason == "case 1: because"
    assert invented(Role.OTHER, "holds", "holds", "holds").seconds == pytest.approx(1.5)


def test_totals_count_rows_and_the_worst_combination_speaks() -> None:
    """A control that is flagged in one of two combinations is flagged once."""
    cells = [
        invented(Role.KILLER, "violated"),
        invented(Role.KILLER, "holds", row="dead_id"),
        invented(Role.BLIND, "holds", check="draft_law"),
        invented(Role.OTHER, "violated", check="claim"),
        invented(Role.CONTROL, "holds", row="folded"),
        invented(Role.CONTROL, "violated", row="folded"),
        invented(Role.CONTROL, "holds", row="tiled"),
    ]
    assert vars(totals(cells)) == {
        "specimens": 2,
        "killed": 1,
        "blind_asked": 1,
        "blind": 1,
        "also_killed": 1,
        "controls": 2,
        "flagged": 1,
        "unexpected": 2,
    }
    assert merged(cells)["folded", "coupled"].state is State.UNEXPECTED


@pytest.mark.parametrize(("profile", "away"), [("small", 6), ("smoke", 6), ("ci", 4), ("deep", 4)])
def test_no_specimen_is_left_out_in_silence(profile: str, away: int) -> None:
    """Judged here or listed with its command; controls meet every check, in full every cell."""
    listed = absent(profile)
    jobs = planned(profile, full=False)
    here = {job.row for job in jobs if job.role is not Role.CONTROL}
    assert len(listed) == away
    assert here | set(listed) == {specimen.id for specimen in everyone()}
    assert not here & set(listed)
    assert all("python -m" in why or "torchrun" in why for why in listed.values())
    controls = [job for job in jobs if job.role is Role.CONTROL]
    assert Counter((job.row, job.check) for job in controls) == dict.fromkeys(
        product(SPARED, CHECKS), 1
    )
    for check in CHECKS:
        dealt = {job.combination for job in controls if job.check == check}
        assert set(COMBINATIONS) - dealt <= {("dflash", "none")}
    assert len(jobs) - len(controls) == 2 * len(here)
    whole = planned(profile, full=True)
    assert sum(job.role is Role.CONTROL for job in whole) == 3 * len(CHECKS) * len(SPARED)
    assert sum(job.role is Role.OTHER for job in whole) == (len(CHECKS) - 2) * len(here)


def test_cuda_judges_what_recordings_show_and_lists_the_rest() -> None:
    """Three rooms and a sound sampler under CUDA; every other specimen with the reason."""
    jobs = planned("small", full=False, engine="cuda")
    assert {job.engine for job in jobs} == {"cuda"}
    here, listed = {job.row for job in jobs} - {"folded"}, absent("small", engine="cuda")
    assert here | set(listed) == {specimen.id for specimen in everyone()}
    assert here == {s.id for s in everyone() if s.module in RECORDED}
    assert all("on the emulator, its fault is one of" in why for why in listed.values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible, and nothing is missing")
def test_cuda_without_a_gpu_is_a_usage_error() -> None:
    """Exit code 2, before anything is judged."""
    told = ran("--engine", "cuda")
    assert told.exit_code == 2
    assert "engine cuda needs a GPU" in " ".join(told.output.replace("│", " ").split())


def ran(*options: str) -> Told:
    """Run the command in this process at the sizes of the suite."""
    return CliRunner().invoke(app, ["--profile", "small", "--jobs", "1", *options])


SOME = ("--only", "folds_fp8_head", "--only", "stale_pad_rows", "--only", "without_recording")
QUICK = ("--check", "gates", "--check", "writeset", "--check", "retention")


def test_two_specimens_are_killed_and_a_control_passes(tmp_path: Path) -> None:
    """Exit code 0, the sums, and a matrix that its schema describes."""
    file = tmp_path / "matrix.json"
    told = ran(*SOME, *QUICK, "--full", "--json", str(file))
    assert told.exit_code == 0, told.output
    assert "2 of 2 (100%) specimens killed by the named check" in told.output
    assert "0 of 1 (0%) controls flagged" in told.output
    report = json.loads(file.read_text())
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    assert (report["profile"], report["seed"], report["full"]) == ("small", 0, True)
    assert {"torch", "draftproof", "python"} <= set(report["environment"])
    states = {(c["row"], c["combination"], c["check"]): c["state"] for c in report["cells"]}
    assert len(states) == 2 * 3 + 3 * 3
    assert states["folds_fp8_head", "dflash", "gates"] == "killed"
    assert states["folds_fp8_head", "dflash", "retention"] == "survived"
    assert states["stale_pad_rows", "dspark/counter", "writeset"] == "killed"
    assert states["without_recording", "dspark/counter", "writeset"] == "n/a"
    assert states["without_recording", "dspark/counter", "retention"] == "passed"


def always_holds(history: History, ledger: object) -> Verdict:
    """A check that is turned off."""
    return holds(f"{history.check} is turned off", 1, "nothing", ledger=str(ledger))


def test_a_killer_that_is_turned_off_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its specimen lives: unexpected, with the reason, and exit code 1."""
    monkeypatch.setattr(named("gates"), "check", always_holds)
    told = ran("--only", "folds_fp8_head", "--check", "gates")
    assert told.exit_code == 1
    assert "unexpected folds_fp8_head dflash gates (named killer) answered holds" in told.output
    assert "0 of 1 (0%) specimens killed" in told.output


def test_a_check_that_raises_loses_its_own_cell_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The matrix goes on, and says what was raised."""

    def raises(history: History, ledger: object) -> Verdict:
        raise ArithmeticError(f"{history.check} with {ledger}")

    monkeypatch.setattr(named("gates"), "check", raises)
    told = ran(
        "--only", "folds_fp8_head", "--only", "folded", "--check", "gates", "--check", "path"
    )
    assert told.exit_code == 1
    assert "answered raised: the check itself: ArithmeticError" in told.output
    assert "1 of 1 (100%) controls flagged" in told.output


def test_what_needs_ranks_is_listed_with_its_command() -> None:
    """Nothing is judged, and nothing is unexpected."""
    told = ran("--only", SHARED[0].id)
    assert told.exit_code == 0
    assert torchrun(SHARED[0]) in told.output
    assert "1 specimens, judged under torchrun" in told.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--only", "unicorn"), "specimen or control 'unicorn' is not known"),
        (("--check", "unicorn"), "check 'unicorn' is not known"),
        (("--profile", "unicorn"), "profile 'unicorn' is not known"),
    ],
)
def test_unknown_names_are_a_usage_error(options: tuple[str, str], words: str) -> None:
    """Exit code 2, and what is known."""
    told = ran(*options)
    assert told.exit_code == 2
    assert words in " ".join(told.output.replace("│", " ").split())


@pytest.mark.slow
def test_processes_find_what_one_finds() -> None:
    """Same cells in the same order, apart from the time they took."""
    jobs = planned("small", full=False, only=("folds_fp8_head", "stale_pad_rows"))
    shared = shared_out(jobs, "small", 0, 2, lambda _: None)
    alone = [judged(job, "small", 0) for job in jobs]
    assert [(c.job, c.state, c.outcomes) for c in shared] == [
        (c.job, c.state, c.outcomes) for c in alone
    ]


def cells_of_every_state() -> list[Cell]:
    """One cell in each state."""
    return [
        invented(Role.KILLER, "violated"),
        invented(Role.KILLER, "holds", check="spike", row="dead_id"),
        invented(Role.BLIND, "holds", check="draft_law"),
        invented(Role.OTHER, "violated", check="claim"),
        invented(Role.OTHER, "holds", check="equality"),
        invented(Role.CONTROL, "holds", row="folded"),
        invented(Role.CONTROL, "not applicable", check="path", row="folded"),
    ]


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    """A picture of every state, and of a row that is judged elsewhere."""
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    cells = cells_of_every_state()
    assert {each.state for each in cells} == set(State)
    run = Run("small", 0, full=True, checks=CHECKS, away={SHARED[0].id: "judged under torchrun"})
    assert document(run, cells, totals(cells))["specimens"][-1]["elsewhere"]
    assert figure.rows_of(run, cells) == [
        ("arithmetic", "hotter"),
        ("arithmetic", "dead_id"),
        ("ranks", SHARED[0].id),
        ("controls", "folded"),
    ]
    figure.draw(run, cells, tmp_path / "matrix.png")
    assert (tmp_path / "matrix.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_figure_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A usage error that names the extra, before anything is judged."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    told = ran("--only", "folds_fp8_head", "--figure", str(tmp_path / "matrix.png"))
    assert told.exit_code == 2
    assert "needs matplotlib, not installed" in " ".join(told.output.replace("│", " ").split())


def test_the_guide_is_what_the_specimens_say() -> None:
    """README.md of the zoo equals what is generated, with every specimen and control in it."""
    text = guide.text()
    assert guide.FILE.read_text(encoding="utf-8") == text, "python -m tests.zoo --guide"
    for specimen in everyone():
        assert text.count(f"| `{specimen.id}` |") == 1
    for control in SPARED:
        assert text.count(f"| `{control}` |") == 1
