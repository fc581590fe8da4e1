"""No rule of a foreign CI reruns what we report until it is green."""

import re

import pytest

from oracle.judge.loading import load_factory
from oracle.judge.verdict import Outcome, Verdict, ViolationRuntimeError

from .sglang_ci import ci_module, needs_wheel
from .test_interfaces import QUICK, RERUN, run
from .test_plugin import FAILING, SUITE, WRONG_GATE

pytest_plugins = ["pytester"]
REFERENCE = load_factory("reference")
# What a public rule reruns before it looks for a code error, then what it takes for one.
INFRASTRUCTURE = re.compile(r"OUT_OF_RESOURCES|out of memory|failed to start within", re.IGNORECASE)
CODE_ERROR = re.compile(r"RuntimeError")


@pytest.fixture
def failures(pytester: pytest.Pytester) -> dict[str, str]:
    """What sessions print that fail: by a violation, an error, a GPU that is not there."""
    pytester.makepyfile(wrong_gate=WRONG_GATE, broken=FAILING)
    printed = {}
    for subject in ("wrong_gate:factory", "broken:factory"):
        words = ("--draftproof-subject", subject, "-k", "gates and dflash")
        found = pytester.runpytest_inprocess(*SUITE, *words)
        assert found.ret == pytest.ExitCode.TESTS_FAILED
        printed[subject] = found.stdout.str() + found.stderr.str()
    found = pytester.runpytest_inprocess("-p", "oracle.plugin", "--draftproof-require-gpu")
    printed["no GPU"] = found.stdout.str() + found.stderr.str()
    return printed


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU."""
    monkeypatch.setattr("oracle.plugin.gpus", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
def test_what_a_failed_session_prints_is_a_code_error(failures: dict[str, str]) -> None:
    """A code error is named, and between banner and summary stands no word that reruns."""
    for name, text in failures.items():
        assert CODE_ERROR.search(text), name
        assert not INFRASTRUCTURE.search(text), name
        told = text.partition("= FAILURES =")[2]
        assert not RERUN.search(told), (name, RERUN.search(told))


@pytest.mark.usefixtures("no_gpu")
@needs_wheel
def test_sglang_does_not_rerun_a_failed_session(
    failures: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own rule reads our output, header of a plugin for time limits included."""
    rule = ci_module(monkeypatch, "ci_utils").is_retriable_failure
    for name, text in failures.items():
        assert rule(text)[0] is False, name
        again, why = rule(f"plugins: timeout-2.4.0\n{text}")
        assert (again, "RuntimeError" in why) == (False, True), name
    # The same verdict as a plain assertion would be drawn again until it is green.
    plain = failures["wrong_gate:factory"].replace("ViolationRuntimeError", "AssertionError")
    assert rule(plain)[0] is True
    code, printed = run("verify", "--subject", "tests.zoo.gate:folds_fp8_head", *QUICK)
    assert code == 1
    assert rule(printed)[0] is False


@pytest.mark.parametrize("outcome", [o for o in Outcome if o is not Outcome.HOLDS])
def test_every_answer_that_is_not_green_raises_a_runtime_error(outcome: Outcome) -> None:
    """The class is a RuntimeError, and so says its printed name."""
    with pytest.raises(RuntimeError, match="observed 1, required 2") as found:
        Verdict(outcome, "observed 1, required 2").raise_if_violated()
    assert found.type is ViolationRuntimeError
    assert CODE_ERROR.search(found.type.__name__)
