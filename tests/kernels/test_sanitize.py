"""A sanitizer's answer is read rightly, every kernel runs for it, and it sees a planted one."""

from pathlib import Path
from shutil import which

import pytest

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from . import launches
from .sanitize import FAIL, PASS, UNKNOWN, answer, sanitized

CLEAN = "========= COMPUTE-SANITIZER\nlaunched: a_kernel b_kernel\n"
NO_ERROR, TWO = "========= ERROR SUMMARY: 0 errors\n", "========= ERROR SUMMARY: 2 errors\n"
RACES = "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n"
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
there = pytest.mark.skipif(
    which("compute-sanitizer") is None, reason="compute-sanitizer is not installed"
)
REFUSAL = "========= Error: Device not supported. Please refer to the documentation.\n"


@pytest.mark.parametrize(
    ("text", "status", "wanted"),
    [
        (CLEAN + NO_ERROR, 0, PASS),
        (CLEAN + NO_RACE, 0, PASS),
        (CLEAN + TWO, 0, FAIL),
        (CLEAN + RACES, 0, FAIL),
        (CLEAN + NO_ERROR, 1, FAIL),
        (CLEAN, 0, UNKNOWN),
        (NO_ERROR, 0, UNKNOWN),
        ("launched:\n" + NO_ERROR, 0, UNKNOWN),
        (REFUSAL, 1, UNKNOWN),
        (REFUSAL + NO_ERROR, 0, UNKNOWN),
        (REFUSAL + TWO, 0, UNKNOWN),
        (TWO, 1, FAIL),
        ("", 0, UNKNOWN),
    ],
)
def test_only_kernels_that_ran_without_an_error_pass(text: str, status: int, wanted: int) -> None:
    """Without a summary, or without a kernel, there is no answer."""
    assert answer(text, status).status == wanted


def test_a_sanitizer_that_is_not_there_is_no_pass(tmp_path: Path) -> None:
    """And one that prints nothing is none either."""
    assert sanitized("memcheck", str(tmp_path / "none")).status == UNKNOWN
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    assert sanitized("memcheck", str(silent)).status == UNKNOWN


def test_every_kernel_is_launched() -> None:
    """Those of today by name, and whatever is added."""
    ran = launches.everything()
    assert {"step_kernel", "finish_kernel", "output_kernel", "draw_kernel"} <= set(ran)
    assert ran == sorted(launches.kernels())


def test_a_kernel_that_does_not_run_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its name."""
    monkeypatch.setattr(launches, "accepted", lambda: None)
    monkeypatch.setattr(launches, "drafted", lambda: None)
    with pytest.raises(RuntimeError, match=r"'step_kernel'.* did not run"):
        launches.everything()


@pytest.mark.gpu
@pytest.mark.slow
@there
@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck"])
def test_kernels_are_clean(tool: str) -> None:
    """No error; a run without an answer says so, and is no pass."""
    found = sanitized(tool)
    assert found.status == PASS, found.why


@pytest.mark.gpu
@pytest.mark.slow
@there
def test_a_write_behind_a_tensor_is_seen() -> None:
    """Or the sanitizer watches something else."""
    found = sanitized("memcheck", more=["--beyond"])
    assert found.status == FAIL, found.why
    assert "beyond_kernel" in found.why
