"""A report for other tools: JUnit, markdown, curves of power, and what can be drawn of it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import pytest

from oracle.judge import drawn, power
from oracle.judge.exports import junit, markdown
from oracle.judge.sums import CELLS_MAX, Sum, documents, read, table

from .test_interfaces import SCHEMA, run

CHECKS = ("claim", "draft_law", "freshness", "noise_law")
WRONG = ("--subject", "tests.zoo.gate:folds_fp8_head", "--check", "gates", "--only", "dflash")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of the reference, as verify writes it."""
    file = tmp_path_factory.mktemp("report") / "out.json"
    chosen = [word for check in CHECKS for word in ("--check", check)]
    only = ("--only", "dspark/counter")
    assert run("verify", "--subject", "reference", "--json", str(file), *chosen, *only)[0] == 0
    return file


@pytest.fixture
def report(stored: Path) -> dict[str, Any]:
    """A report of one's own, to change."""
    found: dict[str, Any] = json.loads(stored.read_text())
    return found


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A report with a violation."""
    file = tmp_path_factory.mktemp("wrong") / "out.json"
    assert run("verify", *WRONG, "--json", str(file))[0] == 1
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def sum_of(report: dict[str, Any], check: str, law: str) -> dict[str, Any]:
    """One stored sum."""
    for case in drawn.cases(report, check):
        for one in case["sums"].get("1", ()):
            if one["law"] == law:
                found: dict[str, Any] = one
                return found
    raise KeyError(law)


def recount(one: dict[str, Any], change: Callable[[np.ndarray], np.ndarray]) -> None:
    """Change the counts of a stored sum in place."""
    (whole,) = read([one])
    changed = Sum(whole.law, whole.what, whole.digest, change(whole.counts))
    one["counts"] = documents((changed,))[0]["counts"]


def test_probabilities_travel_with_their_counts() -> None:
    """Bit for bit; a law that is too large is known by its digest alone."""
    law = np.random.default_rng(1).dirichlet(np.ones(6)).reshape(2, 3)
    counts = np.arange(6).reshape(2, 3)
    (back,) = read(json.loads(json.dumps(documents((table("x", "[a, b]", law, counts),)))))
    assert np.array_equal(back.probabilities, law)
    assert np.array_equal(back.counts, counts)
    many = np.full(CELLS_MAX + 1, 1 / (CELLS_MAX + 1))
    large = table("x", "[a]", many, np.ones(CELLS_MAX + 1, dtype=np.int64))
    assert large.probabilities is None
    assert "probabilities" not in documents((large,))[0]


def test_junit_says_what_the_report_says(report: dict[str, Any], wrong: dict[str, Any]) -> None:
    """Counts, cases and reasons; a failure carries the command that shows it again."""
    for found in (report, wrong):
        root = ET.fromstring(junit(found))  # noqa: S314  (our own text)
        counts = found["counts"]
        assert int(root.attrib["tests"]) == len(list(root.iter("testcase"))) == sum(counts.values())
        assert int(root.attrib["failures"]) == len(list(root.iter("failure")))
        assert int(root.attrib["failures"]) == counts["violated"] + counts["unknown"]
        suites = root.findall("testsuite")
        assert sum(int(suite.attrib["tests"]) for suite in suites) == int(root.attrib["tests"])
    (failure,) = root.iter("failure")
    (case,) = (c for c in drawn.cases(wrong, "gates") if c["verdict"] == "violated")
    assert failure.attrib["message"] == case["reason"]
    assert "RuntimeError" in failure.attrib["type"]
    assert "again: draftproof verify" in failure.text
    assert "--check 'gates' --only dflash" in failure.text


@pytest.mark.parametrize(
    ("outcome", "tag"),
    [("errored", "error"), ("unknown", "failure"), ("not applicable", "skipped"), ("holds", "")],
)
def test_junit_keeps_answers_apart(report: dict[str, Any], outcome: str, tag: str) -> None:
    """Five answers have four tags; control characters of a reason do no harm."""
    report["checks"] = report["checks"][:1]
    case = report["checks"][0]["cases"][0]
    report["checks"][0]["cases"] = [case]
    report["counts"] = dict.fromkeys(report["counts"], 0) | {outcome: 1}
    case |= {"verdict": outcome, "reason": "a \x00 < & \ud800 b"}
    root = ET.fromstring(junit(report))  # noqa: S314
    found = [e for e in root.iter() if e.tag in ("error", "failure", "skipped")]
    assert [e.tag for e in found] == ([tag] if tag else [])
    for element in found:
        assert element.attrib["message"] == "a \ufffd < & \ufffd b"


def test_a_summary_has_a_row_a_check_and_every_finding(
    report: dict[str, Any], wrong: dict[str, Any]
) -> None:
    """Cells stay cells, whatever they hold; what fails stands below with its command."""
    report["checks"][0]["smallest_detectable_effect"] = "a | b\n<script>"
    lines = markdown(report).splitlines()
    rows = [line for line in lines if re.match(r"\| \S+ \| `", line)]
    assert len(rows) == len(report["checks"])
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 6 for row in rows)
    assert "<script>" not in markdown(report)
    assert "Again:" not in markdown(report)
    text = markdown(wrong)
    assert "#### violated: gates, dflash" in text
    assert "Again: `draftproof verify --subject tests.zoo.gate:folds_fp8_head" in text


def test_what_is_expected_says_why_and_where_to_read_it(wrong: dict[str, Any]) -> None:
    """In JUnit, where it is skipped, and in the summary, with a mark of its own."""
    report = json.loads(json.dumps(wrong))
    (row,) = report["checks"]
    (case,) = (c for c in row["cases"] if c["verdict"] == "violated")
    report["verdict"] = row["verdict"] = case["verdict"] = "expected"
    case["evidence"] |= {"expected": "a bug | of old", "reference": "https://example.org/old"}
    (skipped,) = ET.fromstring(junit(report)).iter("skipped")  # noqa: S314
    assert skipped.attrib["message"] == case["reason"]
    assert skipped.text == "expected: a bug | of old\nhttps://example.org/old"
    text = markdown(report)
    assert "### draftproof: 🔵 expected" in text
    assert "| 🔵 | `gates` | expected |" in text
    assert "Expected: a bug \\| of old https://example.org/old" in text
    assert "Expected:" not in markdown(wrong)


def test_files_are_written_by_verify_and_by_page(stored: Path, tmp_path: Path) -> None:
    """The same JUnit from both; a summary is appended to what an earlier step wrote."""
    names = [tmp_path / name for name in ("a.xml", "b.xml", "summary.md", "again.json")]
    words = ("--check", "gates", "--only", "dflash", "--subject", "reference")
    names[2].write_text("before\n")
    files = ("--junit", str(names[0]), "--summary", str(names[2]), "--json", str(names[3]))
    assert run("verify", *words, *files)[0] == 0
    assert run("page", str(names[3]), "--junit", str(names[1]))[0] == 0
    assert names[0].read_text() == names[1].read_text()
    assert names[2].read_text().startswith("before\n### draftproof: ")
    code, output = run("page", str(stored))
    assert (code, "nothing to write" in output) == (2, True)
    code, output = run("page", str(names[0]), "--junit", str(names[1]))
    assert (code, "cannot be read" in output) == (2, True)


def test_a_page_needs_the_library_that_draws_it(
    stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra is named before anything is judged."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    for words in (["page", str(stored)], ["verify", "--check", "gates"]):
        code, output = run(*words, "--html", str(tmp_path / "x.html"))
        assert code == 2
        assert "draftproof[report]" in output


def test_cells_of_a_correct_sampler_lie_in_their_band(report: dict[str, Any]) -> None:
    """And a hundredth of the draws of one cell moved to another does not."""
    found = {cells.check: cells for cells in drawn.cells(report)}
    assert set(found) == {"claim", "draft_law"}
    for cells in found.values():
        low, high = cells.band
        assert ((low <= cells.hits) & (cells.hits <= high)).all()
        assert np.abs(cells.residuals).max() < cells.limit
    recount(
        sum_of(report, "draft_law", "step 1"),
        lambda counts: np.where(counts == counts.max(), counts + counts.max() // 20, counts),
    )
    (cells,) = (one for one in drawn.cells(report) if one.check == "draft_law")
    assert np.abs(cells.residuals).max() > cells.limit
    assert (cells.hits > cells.band[1]).sum() == 1


def test_quantiles_of_noise_lie_in_their_band(report: dict[str, Any]) -> None:
    """Those of noise that is a tenth too small do not."""
    (seen,) = drawn.quantiles(report)
    assert len(seen.observed) > 15
    assert ((seen.low <= seen.required) & (seen.required <= seen.high)).all()
    recount(
        sum_of(report, "noise_law", "words foretold: octaves"),
        lambda counts: counts + np.roll(counts, 1) // 10 - counts // 10,
    )
    (seen,) = drawn.quantiles(report)
    assert ((seen.required < seen.low) | (seen.required > seen.high)).any()


def test_ages_are_told_by_replay(report: dict[str, Any]) -> None:
    """A run without a stale value says how many replays it had."""
    (line,) = drawn.ages(report)
    assert (line.stale, line.replays) == ({}, 11)
    jsonschema.validate(report, SCHEMA)


def test_power_is_the_stated_effect_at_the_stated_probability(report: dict[str, Any]) -> None:
    """Curves rise, and pass through what the check itself says it would have seen."""
    curves = {curve.check: curve for curve in power.curves(report)}
    assert set(curves) == {"claim", "draft_law", "noise_law"}
    for curve in curves.values():
        assert list(curve.sizes) == sorted(curve.sizes)
        assert list(curve.powers) == sorted(curve.powers)
    for check, pattern in (("draft_law", r"T off by (\S+) %"), ("claim", r"(\S+) % of draws")):
        (row,) = (row for row in report["checks"] if row["check"] == check)
        stated = float(re.search(pattern, row["smallest_detectable_effect"])[1]) / 100
        found = curves[check].sizes[curves[check].powers.index(0.975)]
        # The curve of claim takes the second, stricter stage for both.
        assert found == pytest.approx(stated, rel=0.25), check
