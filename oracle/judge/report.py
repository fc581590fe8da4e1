"""Verdicts for people (rich) and for machines (JSON that the schema in oracle/schema describes)."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from .budget import Ledger
from .checks import ALL
from .trial import Result
from .verdict import Outcome, exit_code, worst

FORMAT = "draftproof-report-2"
SCHEMA = Path(__file__).parents[1] / "schema" / "report.json"
COLOURS = {
    Outcome.HOLDS: "green",
    Outcome.VIOLATED: "bold red",
    Outcome.UNKNOWN: "yellow",
    Outcome.EXPECTED: "magenta",
    Outcome.NOT_APPLICABLE: "dim",
    Outcome.ERRORED: "bold magenta",
}
SHORT = {Outcome.NOT_APPLICABLE: "n/a"}


@dataclass(frozen=True)
class Run:
    """What was run, as printed and stored: plain values.

    shard 0 is all of them: a whole run, or the sum of its shards. checks: those asked for. source:
    digests of the sampler's and the judge's files.
    """

    subject: str
    workload: str
    profile: str
    engine: str
    device: str
    seed: int
    reproduce: str
    source: str = ""
    checks: Sequence[str] = ()
    shard: int = 0
    shards: int = 1


def plain(value: Any) -> Any:
    """Values that JSON can hold: infinities and NaN become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def case_document(result: Result) -> dict[str, Any]:
    """One case as JSON."""
    verdict = result.verdict
    return {
        "combination": result.combination,
        "case": result.case,
        "verdict": verdict.outcome.value,
        "reason": verdict.reason,
        "used": verdict.used,
        "unit": verdict.unit,
        "smallest_detectable_effect": verdict.effect,
        "seconds": round(result.seconds, 4),
        "evidence": plain(verdict.evidence),
        "place": list(result.place),
        "seeds": list(result.seeds),
        "sums": dict(result.sums),
    }


def summary(check: Any, results: Sequence[Result]) -> dict[str, Any]:
    """One check over all its cases: the worst verdict, the sum of draws, the weakest effect."""
    held = [r for r in results if r.verdict.outcome is Outcome.HOLDS]
    weakest = min(held, key=lambda r: r.verdict.used).verdict.effect if held else ""
    units = {r.verdict.unit for r in held} or {r.verdict.unit for r in results}
    return {
        "check": check.NAME,
        "title": check.TITLE,
        "claim": check.CLAIM,
        "verdict": worst(r.verdict.outcome for r in results).value,
        "used": sum(r.verdict.used for r in results),
        "unit": min(units) if units else "cases",
        "smallest_detectable_effect": weakest,
        "seconds": round(sum(r.seconds for r in results), 4),
        "cases": [case_document(r) for r in results],
    }


def served(results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """What the subject can do in each combination of which a case was played."""
    return {
        context.label: {
            "family": context.family,
            "dialect": context.dialect,
            "abilities": list(context.abilities),
            "buffers": dict(context.buffers),
            "blind": list(context.blind),
        }
        for context in (result.context for result in results)
        if context is not None
    }


def document(
    run: Run,
    results: Sequence[Result],
    ledger: Ledger,
    environment: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole report as JSON, validated against its schema."""
    outcomes = [r.verdict.outcome for r in results]
    by_check = [
        summary(check, [r for r in results if r.check == check.NAME])
        for check in ALL
        if any(r.check == check.NAME for r in results)
    ]
    report = {
        "format": FORMAT,
        "run": {**vars(run), "checks": list(run.checks)},
        "verdict": worst(outcomes).value,
        "exit_code": exit_code(outcomes),
        "alpha": ledger.alpha,
        "alarm_spent": dict(ledger.spent),
        "environment": plain(environment),
        "served": served(results),
        "counts": {outcome.value: outcomes.count(outcome) for outcome in Outcome},
        "checks": by_check,
    }
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    return report


def table(report: Mapping[str, Any]) -> Table:
    """One row a check: its claim, below it the smallest fault it would have seen."""
    shown = Table(header_style="bold", expand=True)
    shown.add_column("check", no_wrap=True)
    shown.add_column("verdict", no_wrap=True)
    shown.add_column("claim, and the smallest fault it would have seen", ratio=1)
    shown.add_column("used", justify="right", no_wrap=True)
    shown.add_column("s", justify="right", no_wrap=True)
    for row in report["checks"]:
        outcome = Outcome(row["verdict"])
        text = escape(row["claim"])
        if row["smallest_detectable_effect"]:
            text += f"\n[cyan]sees: {escape(row['smallest_detectable_effect'])}[/]"
        shown.add_row(
            row["check"],
            f"[{COLOURS[outcome]}]{SHORT.get(outcome, outcome.value)}[/]",
            text,
            f"{row['used']:,} {row['unit']}" if row["used"] else "-",
            f"{row['seconds']:.1f}",
        )
    return shown


def failure(group: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]], run: Run) -> Panel:
    """What was observed, what is required, and the command that shows it again.

    group: (check, case) pairs that gave the same reason; the first speaks for all.
    """
    row, case = group[0]
    lines = [escape(case["reason"])]
    lines += [f"  {escape(text)}" for text in case["evidence"].get("mismatches", [])[1:3]]
    if len(group) > 1:
        others = ", ".join(f"{r['check']} {c['combination']} {c['case']}" for r, c in group[1:4])
        more = f" and {len(group) - 4} more" if len(group) > 4 else ""
        lines += ["", escape(f"the same in: {others}{more}")]
    if known := announced(case):
        lines += ["", f"[bold]expected:[/] {escape(known[0])}", escape(known[1])]
    again = f"{run.reproduce} --check '{row['check']}' --only {case['combination']}"
    lines += ["", f"[bold]again:[/] {escape(again)}"]
    border = "magenta" if known else "red"
    title = f"{case['verdict']}: {row['check']}, {case['combination']}, {case['case']}"
    return Panel("\n".join(lines), title=escape(title), title_align="left", border_style=border)


def announced(case: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why a finding is expected, and where to read it; None where it is not."""
    if case["verdict"] != Outcome.EXPECTED.value:
        return None
    return case["evidence"]["expected"], case["evidence"]["reference"]


def failures(
    report: Mapping[str, Any],
) -> Iterable[list[tuple[Mapping[str, Any], Mapping[str, Any]]]]:
    """Cases that do not hold, those with one reason together, in the order of the checks."""
    groups: dict[str, list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for row in report["checks"]:
        for case in row["cases"]:
            if case["verdict"] not in (Outcome.HOLDS.value, Outcome.NOT_APPLICABLE.value):
                key = f"{case['verdict']} {case['reason']}"
                groups.setdefault(key, []).append((row, case))
    return groups.values()


def not_run(report: Mapping[str, Any]) -> Iterable[str]:
    """Every reason for which something did not apply, with how often it was given."""
    reasons: dict[str, int] = {}
    for row in report["checks"]:
        for case in row["cases"]:
            if case["verdict"] == Outcome.NOT_APPLICABLE.value:
                key = f"{case['combination']}: {case['reason']}"
                reasons[key] = reasons.get(key, 0) + 1
    for reason, count in reasons.items():
        yield f"{count} not applicable: {reason}"


def unseen(report: Mapping[str, Any], run: Run) -> Iterable[str]:
    """What no verdict of this run speaks of, by the subject's own account."""
    told = [tuple(found.get("blind", ())) for found in report["served"].values()]
    for things in dict.fromkeys(filter(None, told)):
        yield f"engine {run.engine} cannot show: {'; '.join(things)}"


def memory(report: Mapping[str, Any]) -> str:
    """How much GPU memory the processes of a run held at most, as the end of a sentence."""
    peaks = report["environment"].get("gpu_peak_bytes", ())
    if not peaks:
        return ""
    over = f" over {len(peaks)} processes" if len(peaks) > 1 else ""
    return f"; peak GPU memory {sum(peaks) / 1e9:.2f} GB{over}"


def render(report: Mapping[str, Any], run: Run, console: Console) -> None:
    """Print header, table, failures, what did not run, and the sum."""
    where = report["environment"].get("gpu", report["environment"]["machine"])
    part = f", shard {run.shard} of {run.shards}" if run.shard else ""
    done = "merge" if run.shards > 1 and not run.shard else "verify"
    console.print(
        f"[bold]draftproof {done}[/] {escape(run.subject)} on {run.device} ({where}), engine "
        f"{run.engine}, workload {run.workload}, profile {run.profile}, seed {run.seed}{part}, "
        f"torch {report['environment']['torch']}"
    )
    console.print(table(report))
    for group in failures(report):
        console.print(failure(group, run))
    for line in (*not_run(report), *unseen(report, run)):
        console.print(f"[dim]{escape(line)}[/]")
    counts = ", ".join(f"{n} {name}" for name, n in report["counts"].items() if n)
    spent = sum(report["alarm_spent"].values())
    colour = COLOURS[Outcome(report["verdict"])]
    console.print(
        f"[{colour}]{report['verdict']}[/]: {counts}; false-alarm probability spent "
        f"{spent:.1e} of {report['alpha']:.0e}{memory(report)}; exit code {report['exit_code']}"
    )
