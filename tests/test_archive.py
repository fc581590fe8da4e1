"""A kill is stored, and judged again elsewhere: same outcome, reason and check, no sampler."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oracle.commands import app
from oracle.judge import archive
from oracle.judge import history as histories
from oracle.judge.trial import Result
from oracle.judge.verdict import errored

from .zoo.__main__ import app as zoo
from .zoo.jobs import judged
from .zoo.matrix import CHECKS, Job, Role, State, elsewhere, everyone

ROOT = Path(__file__).parents[1]
SOME = (
    "folds_fp8_head",
    "oldest_temperature",
    "stale_pad_rows",
    "bent_temperature",
)
# A process in which neither the folded sampler nor a specimen can be imported.
ALONE = (
    "import sys; sys.modules.update(impl=None, tests=None); "
    "from oracle.__main__ import main; main()"
)


def killed(name: str, folder: Path) -> None:
    """Meet a specimen with its named killer, and see that a history of it was stored."""
    (specimen,) = (one for one in everyone() if one.id == name)
    job = Job(name, specimen.combination, specimen.killed_by, Role.KILLER)
    assert judged(job, "small", 0, folder).state is State.KILLED
    files = [path for path in archive.find(folder) if path.name.startswith(f"{name}-")]
    assert files
    for path in files:
        document = json.loads(path.read_text())
        assert document["format"] == histories.FORMAT, document.get("why")
        assert document["environment"]["torch"]
        assert f"--only {name}" in document["reproduce"]


def judged_alone(folder: Path, report: Path) -> list[dict[str, Any]]:
    """What `draftproof judge` says of a folder in a fresh process without any sampler."""
    words = [sys.executable, "-c", ALONE, "judge", str(folder), "--json", str(report)]
    done = subprocess.run(
        words,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert report.exists(), done.stderr
    found: list[dict[str, Any]] = json.loads(report.read_text())
    return found


def test_kills_of_several_checks_are_judged_again(tmp_path: Path) -> None:
    """Certain checks, a stale buffer, and a statistical one with both its stages."""
    folder = tmp_path / "kills"
    for name in SOME:
        killed(name, folder)
    found = judged_alone(folder, tmp_path / "report.json")
    assert {row["check"] for row in found} == {
        one.killed_by for one in everyone() if one.id in SOME
    }
    for row in found:
        assert row["same"], row
        assert row["outcome"] == row["stored"]["outcome"] == "violated"
        assert row["reason"] == row["stored"]["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("check", [name for name in CHECKS if name != "ranks"])
def test_every_kill_is_judged_again(check: str, tmp_path: Path) -> None:
    """All specimens of each check, at the sizes of the suite."""
    folder = tmp_path / "kills"
    names = [s.id for s in everyone() if s.killed_by == check and not elsewhere(s, "small")]
    assert names
    for name in names:
        killed(name, folder)
    found = judged_alone(folder, tmp_path / "report.json")
    assert len(found) >= len(names)
    for row in found:
        assert row["same"], row
        assert row["check"] == check


def told(path: Path) -> tuple[int, str]:
    """Exit code and words of the command on a path."""
    done = CliRunner().invoke(app, ["judge", str(path)], env={"COLUMNS": "200"})
    return done.exit_code, " ".join(done.output.split())


def test_what_cannot_be_stored_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history above the limit, and a sampler that was never built: a note, and no verdict."""
    monkeypatch.setattr(histories, "SIZE_LIMIT", 10)
    (specimen,) = (one for one in everyone() if one.id == "folds_fp8_head")
    job = Job(specimen.id, specimen.combination, specimen.killed_by, Role.KILLER)
    judged(job, "small", 0, tmp_path)
    never = Result("path", "dflash", "-", errored("building it raised OSError"), 0.0)
    archive.store(never, tmp_path / "never", "draftproof verify --subject mine", {})
    code, output = told(tmp_path)
    assert code == 3
    assert "cannot be judged again without the sampler: the history holds" in output
    assert "required: at most 10; stored: violated: " in output
    assert "the sampler again: python -m tests.zoo --profile small --seed 0" in output
    assert "without the sampler: it has no history: no block was run" in output
    assert "2 histories judged, 0 as stored" in output


def test_another_verdict_than_the_stored_one_is_told(tmp_path: Path) -> None:
    """A file that promises what its history does not give is not green."""
    one = ["--profile", "small", "--jobs", "1", "--only", "folds_fp8_head", "--check", "gates"]
    done = CliRunner().invoke(zoo, [*one, "--save", str(tmp_path)])
    assert done.exit_code == 0
    assert "kills stored: 1; draftproof judge" in done.output
    (path,) = archive.find(tmp_path)
    document = json.loads(path.read_text())
    document["verdict"]["reason"] = "something else"
    path.write_text(json.dumps(document))
    code, output = told(tmp_path)
    assert code == 1
    assert "stored: violated: something else" in output
    assert "1 histories judged, 0 as stored" in output
    document["events"] = [
        {**event, "answer": document["events"][0]["answer"]} for event in document["events"][:1]
    ]
    path.write_text(json.dumps(document))
    code, output = told(tmp_path)
    assert (code, output.split(":")[0]) == (3, "holds")
