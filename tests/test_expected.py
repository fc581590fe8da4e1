"""Known deviations: what an entry describes, what it leaves alone, and entries that are wrong."""

import json
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from oracle.commands import app
from oracle.judge import archive, expected
from oracle.judge.checks import named
from oracle.judge.loading import NAMED
from oracle.judge.trial import Result
from oracle.judge.verdict import Outcome, errored, exit_code, holds, not_applicable, violated, worst

ROOT = Path(__file__).parents[1]
ENTRY = """
format = "draftproof-expectations-1"
[[expected]]
subject = "tests.zoo.memory:* folded:*"
check = "retention"
says = "a view, not a copy"
why = "This specimen reads views on purpose."
reference = "https://example.org/views"
"""
WHERE: dict[str, Any] = {"subject": "tests.zoo.memory:results_are_views", "device": "cpu"}
WHERE |= {"profile": "smoke", "seed": 0}
SEEN = violated("tokens: a view, not a copy", 1)
FOUND = Result("retention", "dflash", "three blocks", SEEN, 0.0)
HELD = Result("bounds", "dflash", "ids", holds("all", 1, "one"), 0.0)
VIEWS = ("--check", "retention", "--only", "dflash", "--subject", WHERE["subject"])


def written(folder: Path, text: str = ENTRY) -> Path:
    """A file of expectations."""
    file = folder / "known.toml"
    file.write_text(text)
    return file


def verify(*words: str) -> tuple[int, str]:
    """Exit code and output of one run."""
    result = CliRunner().invoke(app, ["verify", *words], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_an_entry_turns_what_it_describes_and_nothing_else(tmp_path: Path) -> None:
    """The finding is expected, its reason stays, and the run is neither green nor red."""
    entries = expected.read(written(tmp_path))
    results, complaint = expected.applied(entries, WHERE, [HELD, FOUND])
    assert complaint == ""
    assert [r.verdict.outcome for r in results] == [Outcome.HOLDS, Outcome.EXPECTED]
    assert results[0] == HELD
    assert results[1].verdict.reason == FOUND.verdict.reason
    assert results[1].verdict.evidence["reference"] == "https://example.org/views"
    outcomes = [r.verdict.outcome for r in results]
    assert (worst(outcomes), exit_code(outcomes)) == (Outcome.EXPECTED, 0)
    assert exit_code([*outcomes, Outcome.UNKNOWN]) == 3
    assert exit_code([*outcomes, Outcome.VIOLATED]) == 1
    assert exit_code([*outcomes, Outcome.ERRORED]) == 4


@pytest.mark.parametrize(
    "change",
    [
        {"reason": "tokens: something else"},
        {"outcome": Outcome.ERRORED},
        {"outcome": Outcome.HOLDS},
        {"outcome": Outcome.UNKNOWN},
    ],
)
def test_an_entry_that_meets_nothing_is_an_error(tmp_path: Path, change: dict) -> None:
    """Another reason, or another answer, is not what was announced."""
    other = replace(FOUND, verdict=replace(FOUND.verdict, **change))
    results, told = expected.applied(expected.read(written(tmp_path)), WHERE, [HELD, other])
    assert results == [HELD, other]
    assert told.startswith("expected, and not found: tests.zoo.memory:* folded:*: retention, *")


@pytest.mark.parametrize(
    ("line", "where", "results"),
    [
        ("", {"subject": "folded"}, [HELD, FOUND]),
        ('device = "cuda"', {}, [HELD, FOUND]),
        ('profile = "deep"', {}, [HELD, FOUND]),
        ('seed = "7"', {}, [HELD, FOUND]),
        ('combination = "dspark/*"', {}, [HELD, FOUND]),
        ("", {}, [HELD]),
        ("", {}, [HELD, replace(FOUND, verdict=not_applicable("it cannot"))]),
    ],
)
def test_an_entry_out_of_reach_says_nothing(
    tmp_path: Path, line: str, where: dict, results: list[Result]
) -> None:
    """Of another sampler, device, profile, combination, or of a check that was not run."""
    entries = expected.read(written(tmp_path, ENTRY + line))
    assert expected.applied(entries, WHERE | where, results) == (results, "")


def test_cases_are_told_apart_and_errors_may_be_announced(tmp_path: Path) -> None:
    """A pattern of cases spares the others; with verdict errored it speaks of an exception."""
    entries = expected.read(written(tmp_path, ENTRY + 'case = "three*"'))
    twice = [FOUND, replace(FOUND, case="two blocks")]
    seen = [r.verdict.outcome for r in expected.applied(entries, WHERE, twice)[0]]
    assert seen == [Outcome.EXPECTED, Outcome.VIOLATED]
    entries = expected.read(written(tmp_path, ENTRY + 'verdict = "errored"'))
    broken = replace(FOUND, verdict=errored("Error: a view, not a copy"))
    assert expected.applied(entries, WHERE, [broken])[0][0].verdict.outcome is Outcome.EXPECTED


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = ", "are no TOML"),
        (ENTRY.replace("expectations-1", "expectations-2"), "format"),
        (ENTRY.replace("why =", "because ="), "because"),
        (ENTRY.replace("https:", "see:"), "reference"),
        (ENTRY + 'verdict = "unknown"', "unknown"),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path: Path, text: str, says: str) -> None:
    """Not TOML, another format, another field, no address, a verdict that cannot be announced."""
    with pytest.raises(ValueError, match=says):
        expected.read(written(tmp_path, text))
    code, output = verify("--expectations", str(tmp_path / "known.toml"), *VIEWS)
    assert (code, "known.toml" in output) == (2, True)


def test_the_command_counts_what_was_expected(tmp_path: Path) -> None:
    """Exit 0 with the reason and its address; without the file exit 1."""
    file = tmp_path / "out.json"
    known = ("--expectations", str(written(tmp_path)))
    code, output = verify(*VIEWS, *known, "--json", str(file))
    report = json.loads(file.read_text())
    assert (code, report["verdict"], report["counts"]["expected"]) == (0, "expected", 1)
    for words in ("This specimen reads views on purpose.", "https://example.org/views", "expected"):
        assert words in output
    assert verify(*VIEWS)[0] == 1
    assert verify(*VIEWS, *known, "--num-shards", "2", "--shard-id", "1")[0] == 2
    code, output = verify("--check", "retention", "--only", "dflash", "--subject", "folded", *known)
    assert (code, "not found" in output) == (0, False)


def test_an_announced_bug_that_is_gone_exits_2(tmp_path: Path) -> None:
    """The sampler holds, its report is written, and the entry that says otherwise is told."""
    known = written(tmp_path, ENTRY.replace("tests.zoo.memory:* folded:*", "fold*"))
    words = ("--check", "retention", "--only", "dflash", "--expectations", str(known))
    file = tmp_path / "out.json"
    code, output = verify(*words, "--json", str(file))
    assert json.loads(file.read_text())["verdict"] == "holds"
    assert (code, "expected, and not found: fold*: retention" in output) == (2, True)


def test_what_is_shipped_is_about_samplers_that_are_known() -> None:
    """Each entry names a check, and a subject that --subject knows."""
    entries = expected.named("shipped")
    assert entries
    for entry in entries:
        assert entry.check == named(entry.check).NAME
        known = [fnmatchcase(name, one) for one in entry.subject.split() for name in NAMED]
        assert sum(known) >= len(entry.subject.split()), entry


def test_no_file_is_read_outside_its_schema() -> None:
    """The schema is itself one."""
    jsonschema.Draft202012Validator.check_schema(json.loads(expected.SCHEMA.read_text()))


def test_what_was_found_is_stored_and_judged_again() -> None:
    """Each history gives its verdict without the sampler, and a shipped entry announces it."""
    files = archive.find(ROOT / "fixtures" / "findings")
    assert len(files) == 7
    entries = expected.named("shipped")
    for file in files:
        again = archive.judged_again(file)
        assert again.same
        assert again.now.outcome is Outcome.VIOLATED
        found = Result(again.check, "dspark/counter", again.case, again.now, 0.0)
        assert any(entry.meets(found) for entry in entries), file


@pytest.mark.parametrize(("device", "outcome"), [("cuda", "expected"), ("cpu", "violated")])
def test_a_row_of_nan_is_expected_of_vllm_on_a_gpu_alone(device: str, outcome: str) -> None:
    """As the check said it on a GPU; in the interpreter, where ids stay inside, nothing is."""
    said = "row 0, step 0, block 0 of case 'all NaN': observed 50, required an id in [0, 50)"
    found = Result("bounds", "dspark/counter", "all NaN", violated(f"token of {said}", 504), 0.0)
    healthy = Result("bounds", "dspark/counter", "one NaN", holds("as told", 1, "one id"), 0.0)
    where = {"subject": "vllm", "device": device, "profile": "smoke", "seed": 0}
    told, complaint = expected.applied(expected.named("shipped"), where, [found, healthy])
    assert [each.verdict.outcome.value for each in told] == [outcome, "holds"]
    assert not complaint
    _, complaint = expected.applied(expected.named("shipped"), where, [healthy])
    assert bool(complaint) is (device == "cuda")
