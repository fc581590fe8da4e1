"""A report for other tools: JUnit XML, and markdown for the summary of a job."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from .report import announced, failures, not_run
from .verdict import Outcome

# Attribute of a suite -> tag of the cases that it counts.
TAGS = {"failures": "failure", "errors": "error", "skipped": "skipped"}
# What XML 1.0 cannot hold.
UNPRINTABLE = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MARKS = {"holds": "🟢", "violated": "🔴", "unknown": "🟡", "errored": "🟣", "expected": "🔵"}


def printable(text: str) -> str:
    """A text without what XML cannot hold."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def again_of(report: Mapping[str, Any], check: str, combination: str) -> str:
    """The command that shows one check of a report again."""
    return f"{report['run']['reproduce']} --check '{check}' --only {combination}"


def tag_of(verdict: str) -> str:
    """The tag that a verdict has in JUnit: none for what holds, skipped for what is neither."""
    failed = (Outcome.VIOLATED.value, Outcome.UNKNOWN.value)
    tags = dict.fromkeys(failed, "failure") | {Outcome.ERRORED.value: "error"}
    return "" if verdict == Outcome.HOLDS.value else tags.get(verdict, "skipped")


def junit(report: Mapping[str, Any]) -> str:
    """JUnit XML: a suite a check, a test a case; numbers stand in properties.

    Violated and unknown are failures, errored is an error; what neither fails nor holds is skipped.
    """
    run = report["run"]
    sums = dict.fromkeys(("tests", *TAGS), 0)
    root = Element("testsuites", name="draftproof")
    for row in report["checks"]:
        tags = [tag_of(case["verdict"]) for case in row["cases"]]
        numbers = {"tests": len(tags)} | {name: tags.count(tag) for name, tag in TAGS.items()}
        sums = {name: sums[name] + count for name, count in numbers.items()}
        given_numbers = {name: str(count) for name, count in numbers.items()}
        suite = SubElement(
            root,
            "testsuite",
            name=f"draftproof.{row['check']}",
            time=str(row["seconds"]),
            attrib=given_numbers,
        )
        properties = {"seed": run["seed"], "subject": run["subject"], "claim": row["claim"]}
        given(suite, properties)
        for case in row["cases"]:
            one_case(suite, report, row, case)
    for name, count in sums.items():
        root.set(name, str(count))
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def given(parent: Element, values: Mapping[str, Any]) -> None:
    """Add properties to a suite or a case."""
    holder = SubElement(parent, "properties")
    for name, value in values.items():
        SubElement(holder, "property", name=name, value=printable(str(value)))


def one_case(
    suite: Element, report: Mapping[str, Any], row: Mapping[str, Any], case: Mapping[str, Any]
) -> None:
    """Add one case to the suite of its check."""
    check, label = row["check"], case["combination"]
    name = f"{label}: {case['case']}"
    found = SubElement(
        suite, "testcase", classname=f"draftproof.{check}", name=name, time=str(case["seconds"])
    )
    numbers = {
        "verdict": case["verdict"],
        "used": case["used"],
        "unit": case["unit"],
        "smallest_detectable_effect": case["smallest_detectable_effect"],
    }
    known = announced(case)
    if known:
        numbers |= {"expected": known[0], "reference": known[1]}
    given(found, numbers)
    reason = printable(case["reason"])
    if kind := tag_of(case["verdict"]):
        told = SubElement(found, kind, message=reason)
        if kind != "skipped":
            told.set("type", f"oracle.judge.verdict.ViolationRuntimeError.{case['verdict']}")
            told.text = f"{reason}\nagain: {again_of(report, check, label)}"
        elif known:
            told.text = printable(f"expected: {known[0]}\n{known[1]}")


def cell(text: str) -> str:
    """A text inside a cell of a markdown table."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def markdown(report: Mapping[str, Any]) -> str:
    """A summary of a job: verdict, one row a check, what failed and how to see it again."""
    return "\n".join(lines(report)) + "\n"


def lines(report: Mapping[str, Any]) -> Iterable[str]:
    """The lines of `markdown`."""
    run, found = report["run"], report["environment"]
    spent = sum(report["alarm_spent"].values())
    counts = ", ".join(f"{n} {name}" for name, n in report["counts"].items() if n)
    part = f", shard {run['shard']} of {run['shards']}" if run["shard"] else ""
    yield f"### draftproof: {MARKS.get(report['verdict'], '')} {report['verdict']}"
    yield ""
    yield (
        f"`{run['subject']}` on {found.get('gpu', found['machine'])}, engine {run['engine']}, "
        f"workload {run['workload']}, profile {run['profile']}, seed {run['seed']}{part}, torch "
        f"{found['torch']}. {counts}; false-alarm probability spent {spent:.1e} of "
        f"{report['alpha']:.0e}; exit code {report['exit_code']}."
    )
    yield ""
    yield "| | check | verdict | smallest fault it would have seen | used |"
    yield "|---|---|---|---|---:|"
    for row in report["checks"]:
        used = f"{row['used']:,} {row['unit']}" if row["used"] else "-"
        effect = cell(row["smallest_detectable_effect"]) or "-"
        mark = MARKS.get(row["verdict"], "⚪")
        yield f"| {mark} | `{row['check']}` | {row['verdict']} | {effect} | {used} |"
    for group in failures(report):
        row, case = group[0]
        title = f"{case['verdict']}: {row['check']}, {case['combination']}, {case['case']}"
        yield ""
        yield f"#### {cell(title)}"
        yield ""
        # A fence that the reason itself cannot close.
        yield "````text"
        yield case["reason"].replace("````", "'''")
        yield "````"
        if len(group) > 1:
            yield f"The same in {len(group) - 1} more."
        yield ""
        if known := announced(case):
            yield f"Expected: {cell(known[0])} {cell(known[1])}"
            yield ""
        yield f"Again: `{again_of(report, row['check'], case['combination'])}`"
    reasons = list(not_run(report))
    if reasons:
        yield ""
        yield "<details><summary>Not applicable</summary>"
        yield ""
        yield from (f"- {cell(reason)}" for reason in reasons)
        yield ""
        yield "</details>"
