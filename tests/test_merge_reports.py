"""merge on reports of verify: the shards of a run are one run, and what is none is refused."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch

from oracle.judge import report as reports
from oracle.judge.budget import Ledger
from oracle.judge.checks import named
from oracle.judge.context import PROFILES
from oracle.judge.shards import Whole, decided
from oracle.judge.sums import read
from oracle.judge.verdict import Outcome
from oracle.subjects.reference import Reference

from .judging import SMALL
from .nights import ONLY, run

TINY = replace(SMALL, tilt=0.1, rows_max=512)
CHECKS = ("--check", "gates", "--check", "draft_law")
SHARDS = 4


class Heated(Reference):
    """Tokens are drawn at a temperature 4 % above the one that was asked for."""

    def load(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Load what makes the draws hotter."""
        super().load({**inputs, "temperature": inputs["temperature"] * 1.04})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profile smoke at the fewest draws."""
    monkeypatch.setitem(PROFILES, "smoke", TINY)


def verified(
    folder: Path, subject: str = "reference", shards: int = SHARDS, checks: tuple[str, ...] = CHECKS
) -> list[Path]:
    """The reports of all shards; a shard that counts does not decide."""
    paths = [folder / f"{number}.json" for number in range(1, shards + 1)]
    for number, path in enumerate(paths, 1):
        part = ("--num-shards", str(shards), "--shard-id", str(number))
        code, output = run(
            "verify", "--subject", subject, *ONLY, *checks, *part, "--json", str(path)
        )
        assert code == 3, output
    return paths


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Four reports of a correct sampler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, "smoke", TINY)
        paths = verified(tmp_path_factory.mktemp("healthy"))
    return [json.loads(path.read_text()) for path in paths]


def written(folder: Path, found: list[dict[str, Any]]) -> list[str]:
    """Reports as files, named by their place."""
    paths = [folder / f"{number}.json" for number in range(1, len(found) + 1)]
    for path, report in zip(paths, found, strict=True):
        path.write_text(json.dumps(report))
    return [str(path) for path in paths]


def case_of(report: Mapping[str, Any], check: str) -> dict[str, Any]:
    """The first case of a check."""
    row = next(row for row in report["checks"] if row["check"] == check)
    found: dict[str, Any] = row["cases"][0]
    return found


def test_a_sharded_healthy_subject_holds(healthy: list[dict], tmp_path: Path) -> None:
    """One verdict in any order, the draws that the profile promises, every case once."""
    out = tmp_path / "sum.json"
    code, output = run("merge", *written(tmp_path, healthy)[::-1], "--json", str(out))
    assert code == 0, output
    found = json.loads(out.read_text())
    jsonschema.validate(found, json.loads(reports.SCHEMA.read_text()))
    assert found["verdict"] == "holds"
    assert (found["run"]["shard"], found["run"]["shards"]) == (0, SHARDS)
    assert found["counts"]["holds"] == 2
    law = case_of(found, "draft_law")
    assert law["used"] >= 3 * 2**14
    assert len(set(law["seeds"])) == SHARDS
    parts = [read(case_of(report, "draft_law")["sums"]["1"]) for report in healthy]
    total = read(law["sums"]["1"])
    for step, one in enumerate(total):
        assert np.array_equal(np.sum([part[step].counts for part in parts], axis=0), one.counts)
    assert law["used"] == sum(int(one.counts.sum()) for one in total)
    assert 0 < sum(found["alarm_spent"].values()) <= found["alpha"]
    assert sum(sum(report["alarm_spent"].values()) for report in healthy) == 0


def test_a_whole_run_is_judged_again_identically(tmp_path: Path) -> None:
    """A report without shards is its own sum."""
    whole, again = tmp_path / "whole.json", tmp_path / "again.json"
    assert run("verify", "--subject", "reference", *ONLY, *CHECKS, "--json", str(whole))[0] == 0
    assert run("merge", str(whole), "--json", str(again))[0] == 0
    first, second = (json.loads(path.read_text()) for path in (whole, again))
    for check in ("gates", "draft_law"):
        one, other = case_of(first, check), case_of(second, check)
        assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert first["alarm_spent"] == second["alarm_spent"]


VIEWS = """
format = "draftproof-expectations-1"
[[expected]]
subject = "tests.zoo.memory:results_are_views"
check = "{}"
says = "a view, not a copy"
why = "This specimen reads views on purpose."
reference = "https://example.org/views"
"""


def test_known_deviations_are_given_to_the_sum(tmp_path: Path) -> None:
    """The shard that meets it is violated, the sum is expected; an idle entry is an error."""
    words = ("--subject", "tests.zoo.memory:results_are_views", "--only", "dflash")
    checks = ("--check", "retention", "--check", "gates")
    paths = [str(tmp_path / name) for name in ("1.json", "2.json", "sum.json")]
    codes = set()
    for number, path in enumerate(paths[:2], 1):
        part = ("--num-shards", "2", "--shard-id", str(number), "--json", path)
        codes.add(run("verify", *words, *checks, *part)[0])
    assert 1 in codes
    assert run("merge", *paths[:2])[0] == 1
    known, idle = tmp_path / "known.toml", tmp_path / "idle.toml"
    known.write_text(VIEWS.format("retention"))
    idle.write_text(VIEWS.format("gates"))
    code, output = run("merge", *paths[:2], "--json", paths[2], "--expectations", str(known))
    assert (code, json.loads(Path(paths[2]).read_text())["verdict"]) == (0, "expected")
    assert "This specimen reads views on purpose." in output
    code, output = run("merge", *paths[:2], "--expectations", str(idle))
    assert (code, "expected, and not found" in output) == (2, True)


def test_a_fault_too_small_for_one_shard_is_found_by_four(tmp_path: Path) -> None:
    """Each quarter, judged as if it were all there is, is silent; their sum is violated."""
    checks = ("--check", "draft_law")
    paths = verified(tmp_path, "tests.test_merge_reports:Heated", checks=checks)
    whole = Whole.of(paths)
    context = whole.context("dspark/counter")
    (plan,) = named("draft_law").plans(context)
    for report in whole.reports:
        sums = {n: read(one) for n, one in case_of(report, "draft_law")["sums"].items()}
        alone = decided(named("draft_law"), plan, context, sums, Ledger())
        assert alone.outcome is Outcome.HOLDS, alone.reason
    code, output = run("merge", *map(str, paths))
    assert code == 1, output
    assert "do not follow the law" in output


def edited(change: Callable[[list[dict[str, Any]]], None], healthy: list[dict]) -> list[dict]:
    """Copies of the reports, changed."""
    found: list[dict] = json.loads(json.dumps(healthy))
    change(found)
    return found


def set_run(**values: Any) -> Callable[[list[dict]], None]:
    """Change the run of the second report."""
    return lambda found: found[1]["run"].update(values)


def set_case(check: str, number: int = 1, **values: Any) -> Callable[[list[dict]], None]:
    """Change the first case of a check in one report."""
    return lambda found: case_of(found[number], check).update(values)


def drop_gates(found: list[dict]) -> None:
    """Take the case that one shard played out of its report."""
    for report in found:
        report["checks"] = [row for row in report["checks"] if row["check"] != "gates"]


def foreign_law(found: list[dict]) -> None:
    """One shard has counted under another law."""
    case_of(found[1], "draft_law")["sums"]["1"][0]["digest"] = "0" * 64


def twice(found: list[dict]) -> None:
    """The draws of the first shard come back under the number of the second."""
    case_of(found[1], "draft_law").update(case_of(found[0], "draft_law"))


REFUSED: dict[str, tuple[Callable[[list[dict]], Any], str]] = {
    "missing": (lambda found: found.pop(2), "shards [3] of 4 are missing"),
    "duplicate": (lambda found: found.append(found[0]), "are both shard 1 of 4"),
    "same draws": (twice, "seeds of draft_law, dspark/counter, V = 16, T = 1, drawn and required,"),
    "run seed": (set_run(seed=5), "seed of "),
    "subject": (set_run(subject="torch"), "subject of "),
    "build": (set_run(source="other"), "source of "),
    "profile": (set_run(profile="ci"), "profile of "),
    "shards": (set_run(shards=5), "shards of "),
    "version": (lambda found: found[1]["environment"].update(torch="0"), "versions of torch of "),
    "alpha": (lambda found: found[1].update(alpha=1e-3), "alpha of "),
    "law": (foreign_law, "shard 2: digest of 'step 0' differ"),
    "sum": (lambda found: found[1]["run"].update(shard=0), "is a sum already"),
    "lost case": (drop_gates, "gates, dspark/counter: cases [0] of 1 are in no report"),
    "no report": (lambda found: found[1].pop("counts"), "is no report: 'counts' is a required"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_shard_of_the_run_is_refused(
    name: str, healthy: list[dict], tmp_path: Path
) -> None:
    """Exit 2, and what does not fit is named."""
    change, words = REFUSED[name]
    code, output = run("merge", *written(tmp_path, edited(change, healthy)))
    assert code == 2, output
    plain = " ".join(output.replace("│", " ").split())
    assert words in plain, plain


def test_states_of_deep_are_not_mixed_with_reports(healthy: list[dict], tmp_path: Path) -> None:
    """Both kinds merge, but not together; a file of neither kind is named."""
    (report,) = written(tmp_path, healthy[:1])
    other = tmp_path / "state.json"
    for text, words in (
        ('{"format": "draftproof-evidence-1"}', "required: files of one kind"),
        ("[]", "required: files of one kind"),
        ("{", "cannot be read"),
    ):
        other.write_text(text)
        code, output = run("merge", report, str(other))
        assert code == 2
        assert words in " ".join(output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (set_case("draft_law", verdict="violated", reason="an id outside"), 1, "an id outside"),
        (set_case("draft_law", verdict="errored", reason="it raised"), 4, "it raised"),
        (set_case("draft_law", sums={}, seeds=[], reason="saw none"), 3, "saw none"),
    ],
)
def test_what_one_shard_saw_for_certain_stands(
    change: Callable[[list[dict]], None],
    code: int,
    words: str,
    healthy: list[dict],
    tmp_path: Path,
) -> None:
    """The worst answer of a shard that needs no chance is the answer of the sum."""
    found, output = run("merge", *written(tmp_path, edited(change, healthy)))
    assert found == code
    assert words in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--num-shards", "4"), "shard-id is 0 of 4, required: 1 to 4"),
        (("--num-shards", "4", "--shard-id", "5"), "shard-id is 5 of 4, required: 1 to 4"),
        (("--num-shards", "0"), "shard-id is 0 of 0"),
        (("--num-shards", "2", "--shard-id", "1", "--alpha", "1e-7"), "required: at least 5e-07"),
    ],
)
def test_shards_that_cannot_be_are_usage_errors(words: tuple[str, ...], message: str) -> None:
    """Exit 2; a shard is no reason for a smaller alpha."""
    code, output = run("verify", *words)
    assert code == 2
    assert message in " ".join(output.replace("│", " ").split())


@pytest.mark.slow
def test_every_check_is_sharded_and_merged(tmp_path: Path) -> None:
    """All checks of a healthy sampler, two shards: the sum holds, and lacks no case."""
    paths = verified(tmp_path, "folded", shards=2, checks=("--jobs", "1"))
    out = tmp_path / "sum.json"
    code, output = run("merge", *map(str, paths), "--json", str(out))
    assert code == 0, output
    whole = tmp_path / "whole.json"
    words = ("--subject", "folded", *ONLY, "--jobs", "1", "--json", str(whole))
    assert run("verify", *words)[0] == 0
    cases = [
        [(row["check"], len(row["cases"])) for row in json.loads(path.read_text())["checks"]]
        for path in (out, whole)
    ]
    assert cases[0] == cases[1]
