"""The conformance suite as an outsider has it: an installed wheel, another folder, workers."""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from .house.test_readme import OWN_SAMPLER, marked_blocks, readme
from .house.tree import ROOT, plant

SOURCES = ("pyproject.toml", "README.md", "LICENSE", "oracle", "impl", "fixtures")
# Which package every module of ours came from, printed from another folder.
WHERE = "import oracle, impl; print(oracle.__file__); print(impl.__file__)"


def run(*command: str | Path, cwd: Path, **changes: str) -> str:
    """The output of a command that must end well, in an environment without our checkout."""
    inherited = dict(os.environ)  # noqa: TID251  (handed on, not read)
    inherited.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=inherited | changes,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment that holds our wheel, and sees this one's packages."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in SOURCES:
        target = ROOT / name
        run("cp", "-r", target, source / name, cwd=folder)
    build = "import setuptools.build_meta as b; print(b.build_wheel('..'))"
    wheel = run(sys.executable, "-c", build, cwd=source).splitlines()[-1]
    venv.create(folder / "env", with_pip=False, symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = Path(
        run(python, "-c", "import site; print(site.getsitepackages()[0])", cwd=folder).strip()
    )
    others = run(
        sys.executable, "-c", "import site; print(*site.getsitepackages(), sep='\\n')", cwd=folder
    )
    plant(site, {"others.pth": others})
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps")
    run(*pip, "--no-index", "--ignore-installed", folder / wheel, cwd=folder)
    return python


THREADS = """
import torch
from oracle.judge.question import Asked
from oracle.judge.suite import Suite

torch.set_num_threads(6)
for workers in (1, 2, 4, 8):
    Suite(Asked("reference", workers=workers))
    print(torch.get_num_threads())
    torch.set_num_threads(6)
"""
COUNTED = """
import torch

def test_threads(draftproof_suite): assert torch.get_num_threads() == {}
"""


def test_workers_share_the_threads(tmp_path: Path) -> None:
    """Each has its part, and one at least."""
    python = Path(sys.executable)
    found = run(python, "-c", THREADS, cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert found.split() == ["6", "3", "1", "1"]


@pytest.mark.slow
def test_xdist_tells_how_many_workers_there_are(tmp_path: Path) -> None:
    """What the plugin hands on to the suite of a worker."""
    python = Path(sys.executable)
    alone = int(run(python, "-c", "import torch; print(torch.get_num_threads())", cwd=tmp_path))
    plant(tmp_path, {"test_counted.py": COUNTED.format(max(alone // 2, 1))})
    words = ("-p", "oracle.plugin", "--draftproof-subject", "reference", "test_counted.py")
    run(python, "-m", "pytest", *words, "-n", "2", cwd=tmp_path, PYTHONPATH=str(ROOT))


@pytest.mark.slow
def test_the_wheel_judges_a_sampler_from_another_folder(installed: Path, tmp_path: Path) -> None:
    """The plugin comes with the wheel; JUnit and report say what was held and what did not apply.

    The same by workers of xdist.
    """
    plant(tmp_path, {"own_sampler.py": marked_blocks(readme(), "example")[OWN_SAMPLER][1]})
    for line in run(installed, "-c", WHERE, cwd=tmp_path).splitlines():
        assert Path(line).is_relative_to(installed.parents[1])
    command = (installed, "-m", "pytest", "--pyargs", "oracle.conformance", "--strict-markers")
    options = ("--draftproof-subject", "own_sampler:factory", "--draftproof-json", "out.json")
    quick = ("-k", "not draft_law and not block_law and not independence")
    found = {}
    for workers in ("0", "2"):
        run(*command, *options, *quick, "-n", workers, "--junitxml=out.xml", cwd=tmp_path)
        report = json.loads((tmp_path / "out.json").read_text())
        suite = ET.parse(tmp_path / "out.xml").getroot().find("testsuite")  # noqa: S314
        assert suite.attrib["failures"] == suite.attrib["errors"] == "0"
        assert int(suite.attrib["skipped"]) == sum(
            case.find("skipped") is not None for case in suite.iter("testcase")
        )
        assert all("not applicable" in skip.attrib["message"] for skip in suite.iter("skipped"))
        assert report["counts"]["holds"] > 10
        found[workers] = [
            (row["check"], case["combination"], case["case"], case["verdict"], case["used"])
            for row in report["checks"]
            for case in row["cases"]
        ]
    assert found["0"] == found["2"]
