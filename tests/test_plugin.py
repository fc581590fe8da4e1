"""The pytest plugin: options, header, fixtures, answers, and what must not pass for a GPU job."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import Phase, find, settings

from oracle import plugin, strategies
from oracle.judge.context import Context
from oracle.judge.loading import load_factory
from oracle.judge.question import Asked
from oracle.judge.suite import Suite, kept
from oracle.judge.verdict import ViolationRuntimeError, violated

from .house.imports import probe
from .house.test_readme import marked_blocks, readme
from .house.tree import ROOT

pytest_plugins = ["pytester"]
SCHEMA = json.loads((ROOT / "oracle" / "schema" / "report.json").read_text())
# Sessions inside this one forget what they import; what is loaded here stays.
REFERENCE = load_factory("reference")
SUITE = ("--pyargs", "oracle.conformance", "-p", "oracle.plugin", "-p", "no:cacheprovider")
WRONG_GATE = """
from oracle.judge.loading import load_factory

def factory(setting):
    subject = load_factory("reference")(setting)
    right = subject.gate
    subject.gate = lambda facts: {**right(facts), "fold": "greedy"}
    return subject
"""
FAILING = "def factory(setting):\n    raise OSError('no such device')\n"


def session(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """One session with the plugin, on the tests of the folder."""
    return pytester.runpytest_inprocess("-p", "oracle.plugin", "-p", "no:cacheprovider", *words)


def conformance(pytester: pytest.Pytester, subject: str, *words: str) -> pytest.RunResult:
    """One session of the conformance suite."""
    return pytester.runpytest_inprocess(*SUITE, "--draftproof-subject", subject, *words)


def test_the_plugin_is_light() -> None:
    """It is loaded with every pytest, so it loads pytest and the standard library alone."""
    heavy = ["torch", "numpy", "scipy", "rich", "typer", "jsonschema", "hypothesis"]
    assert probe(ROOT, ["oracle.plugin"], heavy) == []


def test_every_option_has_the_prefix_and_every_fixture_too() -> None:
    """Two plugins that declare one option stop pytest."""
    parser = pytest.Parser(_ispytest=True)
    plugin.pytest_addoption(parser)
    names = [name for one in parser.getgroup("draftproof").options for name in one.names()]
    assert len(names) == len(plugin.OPTIONS)
    assert all(name.startswith("--draftproof-") for name in names)
    fixtures = [
        name for name in vars(plugin) if type(vars(plugin)[name]).__name__.startswith("Fixture")
    ]
    assert len(fixtures) > 5
    assert all(name.startswith("draftproof_") for name in fixtures)


def test_without_a_subject_the_plugin_keeps_quiet(pytester: pytest.Pytester) -> None:
    """No header, no skip of a test that another suite marked; conformance needs a subject."""
    pytester.makepyfile("import pytest\n@pytest.mark.gpu\ndef test_x(): pass\n")
    found = session(pytester, "--strict-markers")
    found.assert_outcomes(passed=1)
    found.stdout.no_fnmatch_line("draftproof:*")
    found = pytester.runpytest_inprocess(*SUITE, "-k", "gates and dflash")
    found.assert_outcomes(errors=1)
    found.stdout.fnmatch_lines(["*no sampler is under test, required: --draftproof-subject*"])


def test_markers_are_declared_once(pytester: pytest.Pytester) -> None:
    """A marker that a suite has declared keeps its words."""
    pytester.makeini("[pytest]\nmarkers =\n    gpu(kind): mine\n")
    lines = session(pytester, "--markers").outlines
    for name in plugin.MARKERS:
        assert sum(bool(re.match(rf"@pytest.mark.{name}\b", line)) for line in lines) == 1
    assert "@pytest.mark.gpu(kind): mine" in lines


def test_conformance_holds_and_reports(pytester: pytest.Pytester) -> None:
    """One test a check and combination; the report is that of verify; JUnit has the verdicts."""
    words = ("-k", "gates or retention or writeset", "--draftproof-json", "out.json", "-rs")
    found = conformance(pytester, "reference", *words)
    found.assert_outcomes(passed=6, skipped=3)
    found.stdout.fnmatch_lines(
        ["draftproof: reference, engine * on *seed 0*", "draftproof: *torch *"]
    )
    found.stdout.fnmatch_lines(["SKIPPED*not applicable: the subject does not claim BUFFERS"])
    report = json.loads((pytester.path / "out.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["counts"] == {
        "holds": 6,
        "expected": 0,
        "violated": 0,
        "unknown": 0,
        "not applicable": 3,
        "errored": 0,
    }
    assert set(report["served"]) == {"dflash", "dspark/race", "dspark/counter"}


def test_a_violation_tells_seed_and_commands(pytester: pytest.Pytester) -> None:
    """Observed, required, and two commands that show it again."""
    pytester.makepyfile(wrong_gate=WRONG_GATE)
    words = ("-k", "gates and dflash", "--draftproof-seed", "7")
    found = conformance(pytester, "wrong_gate:factory", *words)
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(
        [
            "*ViolationRuntimeError: violated: gates, dflash",
            "*observed*required*",
            "seed 7",
            "again: draftproof verify --subject wrong_gate:factory*--check gates --only dflash",
            "again: python -m pytest --pyargs oracle.conformance*-k gates-dflash",
        ]
    )
    again = next(line for line in found.outlines if "again: python -m pytest" in line)
    same = again.partition("oracle.conformance ")[2].replace("'", "").split()
    pytester.runpytest_inprocess(*SUITE, *same).assert_outcomes(failed=1)


def test_a_subject_that_errors_fails(pytester: pytest.Pytester) -> None:
    """Errored is no skip."""
    pytester.makepyfile(failing=FAILING)
    found = conformance(pytester, "failing:factory", "-k", "bounds and dflash")
    found.assert_outcomes(failed=1)
    found.stdout.fnmatch_lines(["*ViolationRuntimeError: errored: bounds, dflash"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--draftproof-subject", "nobody"], "subject 'nobody' is not known"),
        (["--draftproof-profile", "huge"], "profile is 'huge', required: one of smoke, ci, deep"),
        (["--draftproof-engine", "steam"], "engine is 'steam', required: one of"),
        (["--draftproof-device", "tpu"], "device is 'tpu', required: cpu or cuda"),
        (["--draftproof-engine", "eager", "--draftproof-device", "cuda"], "engine eager runs on"),
        (["--draftproof-alpha", "1e-9"], "alpha is 1e-09, required: from 5e-07"),
        (["--draftproof-workload", "gold"], "workload is 'gold'"),
        (["--draftproof-expectations", "none.toml"], "expectations none.toml"),
        (
            ["--draftproof-require-gpu", "--draftproof-engine", "emulator"],
            "--draftproof-require-gpu, and engine emulator",
        ),
    ],
)
def test_usage_errors_stop_the_session(
    pytester: pytest.Pytester, words: list[str], message: str
) -> None:
    """The text names what was given and what is allowed; nothing is run."""
    given = ["--draftproof-subject", "reference", *words]
    found = session(pytester, *given)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    assert message in found.stderr.str() + found.stdout.str()


def test_the_environment_names_a_subject(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRAFTPROOF_SUBJECT stands for the option, and the header shows it."""
    monkeypatch.setenv("DRAFTPROOF_SUBJECT", "reference")
    found = pytester.runpytest_inprocess(*SUITE, "-k", "gates and dflash")
    found.assert_outcomes(passed=1)
    found.stdout.fnmatch_lines(["draftproof: *DRAFTPROOF_SUBJECT=reference*"])


def test_a_budget_is_spent_once() -> None:
    """A check that is asked thirty times alarms thirty times as often: an error."""
    suite = Suite(Asked("reference"))
    answer = suite.answer("claim", ("dspark", "counter"))
    report, complaints = suite.report([answer.carried] * 30)
    assert report["verdict"] == "holds"
    assert complaints
    assert "line 'claimed law' would spend" in complaints[0]
    assert suite.report([answer.carried])[1] == []


def test_the_example_of_the_readme_runs(pytester: pytest.Pytester) -> None:
    """Fixtures and strategies, as they are documented."""
    _, content = marked_blocks(readme(), "example")["in-pytest"]
    pytester.makepyfile(test_example=content)
    found = session(pytester, "--draftproof-subject", "reference", "test_example.py")
    found.assert_outcomes(passed=content.count("\ndef test_"))


def test_what_a_script_shows_is_stored(tmp_path: Path) -> None:
    """A plan that fails on a subject leaves a history that fails again without it."""
    suite = Suite(Asked("reference"))
    context = suite.probed(("dspark", "counter"))
    assert isinstance(context, Context)
    few = settings(max_examples=1, phases=[Phase.generate], derandomize=True, database=None)
    plan = find(strategies.scripts(context), lambda _: True, settings=few)
    history, _ = suite.played(plan, context)
    error = kept(history, violated("observed", 1), tmp_path / "played")
    assert isinstance(error, ViolationRuntimeError)
    assert f"again: draftproof judge {tmp_path / 'played'}.json" in str(error)
    assert (tmp_path / "played.json").is_file()
