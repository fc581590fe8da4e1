"""`draftproof verify` under torchrun: the ranks are judged as one sampler."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.ranks import SHARED
from tests.zoo.specimen import Specimen

from .launch import ROOT, torchrun

PATIENCE = 300


def verify(folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Run the command on two ranks; exit code 0 or not, the report, and what was printed."""
    report = folder / "report.json"
    command = ("-m", "oracle", "verify", "--json", str(report), *options)
    run: subprocess.CompletedProcess[str] = torchrun(*command, patience=PATIENCE)
    assert report.exists(), run.stderr[-4000:]
    return run.returncode, json.loads(report.read_text()), run.stdout


def test_two_ranks_are_one_sampler(tmp_path: Path) -> None:
    """Shards of every kind, ties over the edge, and unequal memory; stored and judged again."""
    code, report, _ = verify(tmp_path, "--check", "ranks", "--save", str(tmp_path / "seen"))
    assert code == 0
    (ranks,) = report["checks"]
    cases = [case["case"] for case in ranks["cases"] if case["verdict"] == "holds"]
    assert sum("empty split" in case for case in cases) == 4
    assert sum(case.startswith("ties") for case in cases) == 4
    assert cases.count("unequal free memory") == 2
    judged = subprocess.run(
        [sys.executable, "-m", "oracle", "judge", str(tmp_path / "seen")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout
    assert f"{len(cases)} histories judged, {len(cases)} as stored" in judged.stdout


Answers = dict[str, dict[str, list[list[str]]]]


@pytest.fixture(
    scope="module",
    params=["emulator", pytest.param("cuda", marks=pytest.mark.multi_gpu)],
)
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What both ranks answered about every fault, from one run of torchrun."""
    path = tmp_path_factory.mktemp("faults") / "answers.json"
    command = ("-m", "tests.distributed.zoo_worker", str(path), request.param)
    run = torchrun(*command, patience=PATIENCE)
    assert run.returncode == 0, run.stderr[-4000:]
    found: Answers = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("specimen", SHARED, ids=lambda specimen: specimen.id)
def test_a_fault_of_ranks_is_killed(specimen: Specimen, answers: Answers) -> None:
    """The check of ranks is violated and says on which rank; its blind check holds."""
    seen = answers[specimen.id]
    killed = [reason for verdict, reason in seen[specimen.killed_by] if verdict == "violated"]
    assert killed
    assert all("rank" in reason for reason in killed)
    blind = {verdict for verdict, _ in seen[specimen.blind_to]}
    assert "holds" in blind <= {"holds", "not applicable"}


@pytest.mark.slow
def test_no_other_check_sees_it(tmp_path: Path) -> None:
    """All checks, shared out over two processes: only the one of ranks is violated."""
    specimen = SHARED[0]
    code, report, shown = verify(tmp_path, "--subject", specimen.subject)
    assert code != 0
    bad = [row["check"] for row in report["checks"] if row["verdict"] != "holds"]
    assert bad == [specimen.killed_by], shown
    assert report["counts"]["holds"] > 80
