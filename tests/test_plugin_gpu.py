"""The plugin in a GPU job: what must not be missing, and what may be skipped."""

import pytest

from oracle import plugin
from oracle.judge import suite

from .test_plugin import WRONG_GATE, conformance, session
from .test_plugin_expectations import KNOWN

pytest_plugins = ["pytester"]


def test_no_gpu_stops_a_session_that_requires_one(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is collected."""
    monkeypatch.setattr(plugin, "gpus", lambda: 0)
    found = session(pytester, "--draftproof-require-gpu")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert "torch sees no CUDA device" in found.stderr.str()


SKIPS = """
import pytest

@pytest.mark.gpu
@pytest.mark.skipif({condition}, reason="the moon is full")
def test_moon(draftproof_factory): pass

@pytest.mark.skip(reason="another matter")
def test_other(): pass

def test_unclaimed(draftproof_judge): draftproof_judge("writeset")

def test_declined(draftproof_judge): draftproof_judge("gates", ("dspark", "race"))
"""
COUNTER = """
from oracle.judge.loading import load_factory

def factory(setting):
    if setting["dialect"] == "race" and {where}:
        raise NotImplementedError("counter noise alone")
    return load_factory("reference")(setting)
"""
RANKS = """
from oracle.judge.loading import load_factory

def factory(setting):
    subject = load_factory("reference")(setting)
    told = subject.describe()
    subject.describe = lambda: {**told, "abilities": (*told["abilities"], "RANKS")}
    return subject
"""
ALONE = """
def test_alone(draftproof_judge): draftproof_judge("ranks", ("dspark", "counter"))

def test_gates(draftproof_judge): draftproof_judge("gates")
"""


def test_a_skip_cannot_pass_a_gpu_job(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A skipped test of the subject fails the session; what is not claimed or served does not."""
    monkeypatch.setattr(plugin, "gpus", lambda: 1)
    words = ("--draftproof-require-gpu", "--draftproof-subject", "counter:factory")
    pytester.makepyfile(counter=COUNTER.format(where="True"))
    pytester.makepyfile(SKIPS.format(condition=False))
    found = session(pytester, *words)
    found.assert_outcomes(passed=1, skipped=3)
    assert found.ret == pytest.ExitCode.OK
    pytester.makepyfile(SKIPS.format(condition=True))
    found = session(pytester, *words)
    found.assert_outcomes(skipped=4)
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    text = found.stdout.str()
    assert "--draftproof-require-gpu, and skipped: test_a_skip" in text
    assert "::test_moon: the moon is full" in text
    assert "no test of a sampler ran" in text
    assert "another matter" not in text.partition("RuntimeError")[2]


def test_what_only_the_device_declines_fails(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator would have served it: that is unknown, and a failure."""
    monkeypatch.setattr(plugin, "gpus", lambda: 1)
    monkeypatch.setattr(suite, "placed_on", lambda *_: ("eager", "cpu"))
    where = 'setting["engine"] == "eager"'
    pytester.makepyfile(counter=COUNTER.format(where=where))
    pytester.makepyfile(SKIPS.format(condition=False))
    found = session(pytester, "--draftproof-require-gpu", "--draftproof-subject", "counter:factory")
    found.assert_outcomes(passed=1, skipped=2, failed=1)
    found.stdout.fnmatch_lines(["*unknown: gates, dspark/race", "*not on a CPU: counter noise*"])


def test_what_the_session_lacks_is_a_hole(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sampler that claims ranks, and one process."""
    monkeypatch.setattr(plugin, "gpus", lambda: 1)
    pytester.makepyfile(ALONE)
    pytester.makepyfile(ranks=RANKS)
    words = ("--draftproof-subject", "ranks:factory", "--draftproof-require-gpu")
    found = session(pytester, *words)
    found.assert_outcomes(passed=1, skipped=1)
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    assert "and skipped: test_what_the_session_lacks" in found.stdout.str()
    assert session(pytester, *words, "-k", "not alone").ret == pytest.ExitCode.OK


def test_too_few_gpus_are_a_reason_to_skip(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a subject is named, a test says how many it lacks."""
    monkeypatch.setattr(plugin, "gpus", lambda: 2)
    pytester.makepyfile(
        "import pytest\n"
        "@pytest.mark.multi_gpu(4)\ndef test_four(): pass\n"
        "@pytest.mark.multi_gpu\ndef test_two(): pass\n"
    )
    found = session(pytester, "-rs", "--draftproof-subject", "reference")
    found.assert_outcomes(passed=1, skipped=1)
    found.stdout.fnmatch_lines(["SKIPPED*2 CUDA devices are visible, the test needs 4"])


@pytest.mark.parametrize("chosen", ["gates and dflash", "nothing of the kind"])
def test_what_is_expected_has_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, chosen: str
) -> None:
    """A GPU job whose one finding was announced has tested something; one of no test has not."""
    monkeypatch.setattr(plugin, "gpus", lambda: 1)
    pytester.makepyfile(wrong_gate=WRONG_GATE)
    known = pytester.makefile(".toml", known=KNOWN.format("observed"))
    words = ("-k", chosen, "--draftproof-require-gpu", "--draftproof-expectations", str(known))
    seen = conformance(pytester, "wrong_gate:factory", *words)
    tested = chosen == "gates and dflash"
    assert (seen.ret == pytest.ExitCode.OK) is tested
    assert ("no test of a sampler ran" in seen.stdout.str()) is not tested
