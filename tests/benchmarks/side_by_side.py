"""`python -m tests.benchmarks.side_by_side`: public assertions and ours on the same kinds of fault.

Prints one table, and with `--json` writes it. Ours stand at the draws of profile smoke.
"""

import argparse
import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.progress import track
from rich.table import Table

from oracle.judge import goodness, lattice, planning, significance
from oracle.judge.budget import ALPHA, SHARES
from oracle.judge.checks import draft_law, independence, noise_law
from oracle.judge.context import PROFILES

from .gates import (
    GATES,
    LARGEST,
    RUNS,
    Counts,
    Floats,
    Gate,
    floored,
    median_dead,
    median_raised,
    normal_law,
    row_of,
    smallest,
)

Row = dict[str, Any]
MISS = 0.05
COLUMNS = ("temperature", "median", "dead", "shared", "floor")
HEADS = (
    "assertion",
    "V",
    "draws",
    "T off by",
    "mass on median id",
    "median id never drawn",
    "pairs with common noise",
    "uniforms of 24 bits",
)
SMOKE = PROFILES["smoke"]
VOCABULARY = 128


def exact(law: Floats, counts: Counts) -> bool:
    """Bank and scan at the alarm probability of one table."""
    table = goodness.Table(law[None], counts[None])
    return bool(goodness.exact(table, np.log(law)[None], SHARES["exact law"] * ALPHA / 8).complaint)


def marginal() -> Row:
    """Bank and scan on as many draws as profile smoke counts."""
    alarm = SHARES["exact law"] * ALPHA / draft_law.TABLES_MAX
    draws = goodness.draws_for([normal_law(VOCABULARY)[None]], SMOKE.tilt, alarm)
    gate = Gate("bank and scan", "draftproof draft_law", VOCABULARY, draws, exact)
    return {**described(gate), **row_of(gate)}


def coupled() -> Row:
    """The coupled oracle: one race that is decided otherwise, among as many as smoke plays."""
    law, draws = normal_law(VOCABULARY), SMOKE.coupled_draws

    def sees(other: Floats) -> bool:
        return planning.coupled_draws(law, other, MISS) <= draws

    gate = Gate("coupled races", "draftproof coupled", VOCABULARY, draws, exact)
    return {
        **described(gate),
        "false alarms": 0.0,
        "temperature": smallest(lambda tilt: sees(planning.tilted(law, tilt)), 1.0),
        "median": smallest(lambda mass: sees(median_raised(law, mass)), LARGEST["median"]),
        "dead": sees(median_dead(law)),
        "shared": None,
        "floor": sees(floored(law)),
    }


def described(gate: Gate) -> Row:
    """Name, source, vocabulary and draws of a gate."""
    names = ("name", "source", "vocabulary", "draws")
    return {name: getattr(gate, name) for name in names}


def certain() -> Row:
    """The spike sweep makes every id the winner; independence counts equal pairs."""
    law = normal_law(VOCABULARY)
    gate = Gate("spike sweep", "draftproof spike", VOCABULARY, VOCABULARY, exact)
    empty = dict.fromkeys(("temperature", "median", "shared"), None)
    return {**described(gate), "false alarms": 0.0, **empty, "dead": len(law) > 0, "floor": False}


def pairs() -> Row:
    """Equal pairs on uniform logits, at the share that profile smoke has to see."""
    alarm = SHARES["independence"] * ALPHA / independence.TESTS_MAX
    needed = planning.pair_draws(1 / independence.MANY, SMOKE.share, alarm, MISS)
    gate = Gate("equal pairs", "draftproof independence", independence.MANY, 2 * needed, exact)
    seen = significance.pairs_seen(needed, 1 / independence.MANY, alarm, MISS)
    empty = dict.fromkeys(("temperature", "median"), None)
    return {
        **described(gate),
        "false alarms": 0.0,
        **empty,
        "dead": False,
        "shared": seen,
        "floor": False,
    }


def noise_itself() -> Row:
    """The coarsest grid on as many noise values as profile smoke reads, and their repeats."""
    alarm = SHARES["noise law"] * ALPHA / noise_law.TESTS_MAX
    finest = lattice.finest_grid(SMOKE.noise_values, alarm)
    repeated = lattice.smallest_repeat(SMOKE.noise_values, lattice.COUNTER, alarm)
    gate = Gate("grid and repeats", "draftproof noise_law", 1, SMOKE.noise_values, exact)
    empty = dict.fromkeys(("temperature", "median"), None)
    return {
        **described(gate),
        "false alarms": 0.0,
        **empty,
        "dead": False,
        "shared": repeated,
        "floor": finest >= 24,
    }


def shown(rows: list[Row]) -> Table:
    """The table for people."""
    table = Table(title=f"smallest fault found in 95 % of runs ({RUNS} seeded runs a point)")
    for head in HEADS:
        table.add_column(head, justify="left" if head == "assertion" else "right")
    for row in rows:
        cells = [f"{row['source']}: {row['name']}", f"{row['vocabulary']:,}", f"{row['draws']:,}"]
        table.add_row(*cells, *(worded(row[column]) for column in COLUMNS))
    return table


def markdown(report: Mapping[str, Any]) -> str:
    """The table as it stands in the README, with its date and seeds."""
    lines = ["| " + " | ".join(HEADS) + " |", "|---|" + "---:|" * (len(HEADS) - 1)]
    for row in report["rows"]:
        wide = f"{row['vocabulary']:,}" if row["vocabulary"] > 1 else "-"
        cells = [f"{row['source']}: {row['name']}", wide, f"{row['draws']:,}"]
        cells += [worded(row[column]) for column in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Measured {report['date']}, seeds {report['seeds']}, {RUNS} runs a point."]
    return "\n".join(lines) + "\n"


def worded(value: Any) -> str:
    """A share in percent, or whether a fault is found at all."""
    if value is None or value is False:
        return "-"
    if value is True:
        return "found"
    return f"{100 * value:.2g} %"


def main() -> None:
    """Measure every row and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    console = Console(width=130)
    rows = [
        {**described(gate), **row_of(gate)}
        for gate in track(GATES, "public assertions", console=console, transient=True)
    ]
    rows += [marginal(), coupled(), certain(), pairs(), noise_itself()]
    console.print(shown(rows))
    if options.json:
        report = {
            "date": dt.datetime.now(dt.UTC).date().isoformat(),
            "seeds": f"0 to {RUNS - 1}",
            "versions": {"numpy": np.__version__, "scipy": scipy.__version__},
            "rows": rows,
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
