"""The matrix for people (rich) and for machines (JSON that matrix.schema.json describes)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jsonschema
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oracle.judge.environment import environment

from .controls import SPARED
from .matrix import LARGE, Cell, Role, State, Totals, everyone, merged

FORMAT = "draftproof-zoo-1"
SCHEMA = Path(__file__).with_name("matrix.schema.json")
SYMBOLS = {
    State.UNEXPECTED: ("!", "bold white on red"),
    State.KILLED: ("K", "bold green"),
    State.ALSO: ("k", "cyan"),
    State.BLIND: ("b", "yellow"),
    State.SURVIVED: (".", "dim"),
    State.PASSED: ("+", "green"),
    State.OUT: ("-", "dim"),
}


@dataclass(frozen=True)
class Run:
    """What was run: plain values. away: specimens judged elsewhere, with the reason."""

    profile: str
    seed: int
    full: bool
    checks: tuple[str, ...]
    away: Mapping[str, str]
    engine: str = "emulator"


def document(run: Run, cells: Sequence[Cell], sums: Totals) -> dict[str, Any]:
    """The whole matrix as JSON, validated against its schema."""
    rows = {cell.job.row for cell in cells} | set(run.away)
    report = {
        "format": FORMAT,
        "profile": run.profile,
        "seed": run.seed,
        "full": run.full,
        "engine": run.engine,
        "environment": environment("cuda" if run.engine == "cuda" else "cpu"),
        "checks": list(run.checks),
        "specimens": [
            {
                "id": specimen.id,
                "module": specimen.module,
                "combination": list(specimen.combination),
                "killed_by": specimen.killed_by,
                "blind_to": specimen.blind_to,
                "elsewhere": run.away.get(specimen.id, ""),
            }
            for specimen in everyone()
            if specimen.id in rows
        ],
        "controls": [control for control in SPARED if control in rows],
        "cells": [
            {
                "row": cell.job.row,
                "combination": cell.job.label,
                "check": cell.job.check,
                "role": cell.job.role.value,
                "state": cell.state.value,
                "outcomes": list(cell.outcomes),
                "seconds": round(cell.seconds, 4),
                "reason": cell.reason,
            }
            for cell in cells
        ],
        "totals": asdict(sums),
    }
    jsonschema.validate(report, json.loads(SCHEMA.read_text()))
    return report


def coloured(state: State) -> str:
    """The symbol of a state."""
    symbol, style = SYMBOLS[state]
    return f"[{style}]{symbol}[/]"


def grid(cells: Sequence[Cell], checks: Sequence[str]) -> Table:
    """One row a specimen or control, one narrow column a check, its name read downwards."""
    shown = Table(header_style="bold", padding=(0, 0), collapse_padding=True)
    shown.add_column("specimen", vertical="bottom", no_wrap=True)
    for check in checks:
        shown.add_column("\n".join(check), vertical="bottom", width=1)
    shown.add_column(" killed by", vertical="bottom", no_wrap=True)
    shown.add_column(" s", vertical="bottom", justify="right", no_wrap=True)
    places = merged(cells)
    named = {cell.job.row: cell for cell in cells if cell.job.role is Role.KILLER}
    controls = {cell.job.row for cell in cells if cell.job.role is Role.CONTROL}
    rows = list(dict.fromkeys(cell.job.row for cell in cells))
    for number, row in enumerate(rows):
        last = number + 1 < len(rows) and (row in controls) != (rows[number + 1] in controls)
        here = [places.get((row, check)) for check in checks]
        killer = named.get(row)
        dead = killer is not None and killer.state is State.KILLED
        shown.add_row(
            f"[italic]{row}[/]" if row in controls else row,
            *(" " if cell is None else coloured(cell.state) for cell in here),
            f" {killer.job.check}" if dead else "",
            f" {killer.seconds:.2f}" if dead else "",
            end_section=last,
        )
    return shown


def share(part: int, whole: int) -> str:
    """A count of a count."""
    return f"{part} of {whole}" + (f" ({part / whole:.0%})" if whole else "")


def render(run: Run, cells: Sequence[Cell], sums: Totals, console: Console) -> None:
    """Print the grid, its legend, what was unexpected, what is judged elsewhere, and the sums."""
    console.print(grid(cells, run.checks))
    legend = ", ".join(f"{coloured(state)} {state.value}" for state in State)
    console.print(f"{legend}; an empty cell was not run. Controls are in italics.")
    for cell in cells:
        if cell.state is State.UNEXPECTED:
            job = cell.job
            answers = ", ".join(dict.fromkeys(cell.outcomes))
            console.print(
                f"[bold red]unexpected[/] {job.row} {job.label} {job.check} ({job.role.value}) "
                f"answered {escape(answers)}: {escape(cell.reason)}"
            )
    for row, why in run.away.items():
        console.print(f"[dim]{row}: {escape(why)}[/]", soft_wrap=True)
    console.print(
        f"detection: {share(sums.killed, sums.specimens)} specimens killed by the named check; "
        f"blind as stated: {share(sums.blind, sums.blind_asked)}; "
        f"also killed: {sums.also_killed} cells"
    )
    console.print(
        f"false alarms: {share(sums.flagged, sums.controls)} controls flagged; "
        f"unexpected cells: {sums.unexpected}"
    )
    if not run.full:
        sizes = "; they and the blind checks at the sizes of smoke" if run.profile in LARGE else ""
        console.print(f"controls: each check in one combination{sizes}; --full: everything")
    for what, count in Counter(why.partition(":")[0] for why in run.away.values()).items():
        console.print(f"not in these figures: {count} specimens, {what}")
