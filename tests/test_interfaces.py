"""The command line: exit codes, JSON, histories, words."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from oracle.commands import app
from oracle.judge.checks import ALL, DECODING

ROOT = Path(__file__).parents[1]
SCHEMA = json.loads((ROOT / "oracle" / "schema" / "report.json").read_text())
QUICK = ["--check", "gates", "--only", "dflash"]
# Words that make a widely used rule rerun a failed test until it is green.
RERUN = re.compile(r"accuracy|\bscore|latency|throughput|timeout|AssertionError", re.IGNORECASE)


def run(*words: str) -> tuple[int, str]:
    """Exit code and output of one command."""
    result = CliRunner().invoke(app, list(words), env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_verify_writes_a_report_that_its_schema_describes(tmp_path: Path) -> None:
    """Exit 0, and the JSON lists check, draws and smallest detectable effect."""
    file = tmp_path / "out.json"
    code, output = run("verify", "--json", str(file), "--check", "retention", *QUICK)
    report = json.loads(file.read_text())
    jsonschema.validate(report, SCHEMA)
    assert (code, report["exit_code"], report["verdict"]) == (0, 0, "holds")
    assert [row["check"] for row in report["checks"]] == ["gates", "retention"]
    for row in report["checks"]:
        assert row["used"] > 0
        assert row["smallest_detectable_effect"]
    assert "holds" in output


def test_what_the_engine_cannot_show_is_printed() -> None:
    """Once a run, whatever the verdict; a sampler that tells nothing has no such line."""
    code, output = run("verify", *QUICK, "--engine", "emulator")
    assert code == 0
    assert output.count("engine emulator cannot show: stream order; asynchronous copies") == 1
    assert "cannot show" not in run("verify", "--subject", "reference", *QUICK)[1]


def test_a_report_that_holds_without_draws_is_no_report(tmp_path: Path) -> None:
    """The schema itself refuses a green verdict that used nothing."""
    file = tmp_path / "out.json"
    run("verify", "--json", str(file), *QUICK)
    report = json.loads(file.read_text())
    report["checks"][0]["cases"][0]["used"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, SCHEMA)


def test_a_violation_exits_1_and_says_how_to_see_it_again() -> None:
    """Observed, required, and one command."""
    code, output = run("verify", "--subject", "tests.zoo.gate:folds_fp8_head", *QUICK)
    assert code == 1
    for words in ("violated", "gates", "observed", "required", "again: draftproof verify"):
        assert words in output
    assert "--check 'gates' --only dflash" in output


def test_a_recording_that_never_runs_exits_3() -> None:
    """Unknown is not a pass."""
    subject = "tests.zoo.capture:never_replays"
    code, output = run("verify", "--subject", subject, "--check", "path", "--only", "dspark/race")
    assert code == 3
    assert "was not seen to run" in output


def test_nothing_that_applies_exits_3() -> None:
    """A run in which everything was declined decided nothing."""
    code, output = run("verify", "--subject", "torch", "--check", "path", "--only", "dflash")
    assert code == 3
    assert "1 not applicable: dflash" in output


def test_a_subject_that_errors_exits_4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own words are printed."""
    source = "def factory(setting):\n    raise OSError('no such device')\n"
    (tmp_path / "breaking_subject.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    code, output = run("verify", "--subject", "breaking_subject:factory", *QUICK)
    assert code == 4
    assert "OSError: no such device" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--subject", "nobody"], "subject 'nobody' is not known"),
        (["--engine", "steam"], "engine is 'steam'"),
        (["--profile", "huge"], "profile is 'huge'"),
        (["--workload", "gold"], "workload is 'gold'"),
        (["--check", "luck"], "no check 'luck'"),
        (["--only", "dspark"], "combination 'dspark' is not known"),
        (["--alpha", "2"], "alpha is 2.0"),
        (["--alpha", "1e-7"], "alpha is 1e-07, required: at least 5e-07"),
    ],
)
def test_usage_errors_exit_2(words: list[str], message: str) -> None:
    """The text names what was given and what is allowed."""
    code, output = run("verify", *words)
    assert code == 2
    assert message in output


def test_stored_histories_are_judged_again(tmp_path: Path) -> None:
    """Same verdict without the subject; an edited one is found."""
    code, _ = run("verify", "--save", str(tmp_path), "--check", "retention", "--only", "dflash")
    assert code == 0
    code, output = run("judge", str(tmp_path))
    assert code == 0
    assert "holds: retention" in output
    assert "1 histories judged" in output
    (file,) = tmp_path.glob("*.json")
    document = json.loads(file.read_text())
    reread = next(event for event in document["events"] if event["verb"] == "reread")
    first, second = [e for e in document["events"] if e["verb"] == "read"][:2]
    reread["outputs"]["tokens"] = second["outputs"]["tokens"]
    assert first["outputs"]["tokens"] != second["outputs"]["tokens"]
    file.write_text(json.dumps(document))
    code, output = run("judge", str(file))
    assert code == 1
    assert "violated: retention" in output


def test_a_statistical_history_is_judged_again(tmp_path: Path) -> None:
    """Counts are taken from the stored tokens."""
    only = ["--check", "draft_law", "--only", "dspark/counter"]
    assert run("verify", "--subject", "torch", "--save", str(tmp_path), *only)[0] == 0
    code, output = run("judge", str(tmp_path))
    assert code == 0
    assert "every step follows its law" in output


def test_judge_needs_a_history_that_exists(tmp_path: Path) -> None:
    """A wrong path is a usage error; an empty folder decided nothing."""
    assert run("judge", str(tmp_path / "none"))[0] == 2
    assert run("judge", str(tmp_path))[0] == 3


def test_list_shows_every_check_and_the_four_promises() -> None:
    """Readers find the words they came for."""
    code, output = run("list")
    assert code == 0
    for words in ("token parity", "chi-square", "stale buffer after replay", "fallback gates"):
        assert words in output
    code, output = run("list", "--json")
    listed = json.loads(output)
    assert [row["check"] for row in listed["checks"]] == [check.NAME for check in (*ALL, *DECODING)]
    assert "folded" in listed["subjects"]
    names = {check.NAME for check in ALL}
    for feature in listed["features"]:
        assert feature["checks"], feature
        assert set(feature["checks"]) <= names
        assert set(feature["abilities"]) <= set(listed["abilities"])
    assert {name for row in listed["features"] for name in row["checks"]} == names


@pytest.mark.parametrize("check", [*ALL, *DECODING], ids=lambda check: check.NAME)
def test_explain_says_claim_and_cost(check: object) -> None:
    """Each check is explained in full."""
    code, output = run("explain", check.NAME)  # type: ignore[attr-defined]
    assert code == 0
    for words in (
        "claims:",
        "how:",
        "formula:",
        "blind to:",
        "on what:",
        "false-alarm probability:",
        "alone:",
    ):
        assert words in output
    assert run("explain", "luck")[0] == 2


def test_no_printed_word_makes_a_foreign_rule_rerun_a_failure() -> None:
    """Texts of the judge are free of the words that such rules look for."""
    for file in sorted((ROOT / "oracle" / "judge").rglob("*.py")):
        text = file.read_text()
        strings = re.findall(r'"([^"\n]*)"', text)
        for string in strings:
            assert not RERUN.search(string), (file.name, string)


@pytest.mark.realmodel
def test_the_folded_sampler_holds_on_real_input(tmp_path: Path) -> None:
    """Hidden states and head of SmolLM2: exit 0, and every check that needs no designed input."""
    file = tmp_path / "out.json"
    code, output = run("verify", "--workload", "smollm2", "--json", str(file))
    assert code == 0, output
    report = json.loads(file.read_text())
    held = {row["check"] for row in report["checks"] if row["verdict"] == "holds"}
    staleness = {"freshness", "writeset", "retention"}
    assert held == {"path", "equality", "coupled", "draft_law", "block_law", "claim"} | staleness
