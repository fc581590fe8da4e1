"""A test session chooses its Hypothesis profile, counts its skips and leaves out what is long."""

from pathlib import Path

import pytest

from .tree import ROOT, plant, run_python

SHOW_PROFILE = """
import conftest
from hypothesis import settings
print(settings().max_examples, settings().derandomize)
"""

# The planted module says how many GPUs there are before the collected tests are looked at.
TESTS = """
import conftest
import pytest

conftest.visible_gpus = lambda: 1

def test_engine(engine_name): assert engine_name in ("emulator", "cuda")

@pytest.mark.multi_gpu
def test_two(): raise AssertionError

@pytest.mark.skip(reason="the moon is full")
def test_moon(): raise AssertionError

@pytest.mark.skip(reason="the moon is full")
def test_tide(): raise AssertionError

@pytest.mark.slow
def test_slow(): pass

@pytest.mark.realmodel
def test_real(): pass
"""


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A folder with our settings, our tests/conftest.py and six small tests."""
    files = {
        "pyproject.toml": (ROOT / "pyproject.toml").read_text("utf-8"),
        "conftest.py": (ROOT / "tests" / "conftest.py").read_text("utf-8"),
        "test_planted.py": TESTS,
    }
    return plant(tmp_path, files)


def run_pytest(folder: Path, *arguments: str) -> list[str]:
    """Run pytest on the planted tests and return the lines it prints."""
    command = ["-m", "pytest", "-p", "oracle.plugin", "-p", "no:cacheprovider", *arguments]
    done = run_python(*command, "test_planted.py", cwd=folder, path=ROOT)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("ci", "profile", "expected"),
    [
        ("", "dev", "20 False"),
        ("true", "ci", "50 True"),
        ("true", "nightly", "1000 False"),
    ],
)
def test_profile_by_name(ci: str, profile: str, expected: str) -> None:
    """HYPOTHESIS_PROFILE decides, whatever CI says."""
    done = run_python("-c", SHOW_PROFILE, cwd=ROOT, CI=ci, HYPOTHESIS_PROFILE=profile)
    assert done.stdout.strip() == expected, done.stderr


@pytest.mark.parametrize(("ci", "expected"), [("true", "50 True"), ("", "20 False")])
def test_profile_without_a_name(ci: str, expected: str) -> None:
    """CI=true selects ci, anything else dev."""
    shown = f"import os; os.environ.pop('HYPOTHESIS_PROFILE', None){SHOW_PROFILE}"
    done = run_python("-c", shown, cwd=ROOT, CI=ci)
    assert done.stdout.strip() == expected, done.stderr


def test_unknown_profile_is_an_error() -> None:
    """A misspelt profile stops the session."""
    done = run_python("-c", SHOW_PROFILE, cwd=ROOT, HYPOTHESIS_PROFILE="nightli")
    assert "nightli" in done.stderr
    assert done.returncode != 0


def test_skips_are_counted_by_reason(session: Path) -> None:
    """Every reason to skip has a line with the number of tests it hid."""
    lines = run_pytest(session)
    assert "skipped 2: the moon is full" in lines
    assert "skipped 1: 1 CUDA devices are visible, the test needs 2" in lines
    assert lines[-1].strip("= ").startswith("2 passed, 3 skipped, 2 deselected")


@pytest.mark.parametrize("marker", ["slow", "realmodel"])
def test_long_tests_run_by_name(session: Path, marker: str) -> None:
    """What the default run leaves out is reached with -m."""
    lines = run_pytest(session, "-m", marker)
    assert lines[-1].strip("= ").startswith("1 passed, 6 deselected")


def test_unknown_marker_is_an_error(session: Path) -> None:
    """A marker that is not declared stops the collection."""
    plant(session, {"test_planted.py": "import pytest\n@pytest.mark.slwo\ndef test_x(): pass\n"})
    assert any("'slwo' not found" in line for line in run_pytest(session))
