"""`python -m tests.benchmarks`: our block beside its peers, as a table, a JSON file and a plot."""

import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console

from . import figure, suite, table
from .bench import Bench, DeadDeviceError
from .clock import clock_for
from .rows import Report

WIDTH = 190
# Seconds, full and quick.
LIMITS = (7200.0, 270.0)


def run(
    *,
    quick: Annotated[
        bool, typer.Option(help="Two vocabularies, K = 7; under five minutes.")
    ] = False,
    json: Annotated[Path, typer.Option(help="Where rows are written as they come.")] = Path(
        "benchmarks.json"
    ),
    plot: Annotated[Path | None, typer.Option(help="Where the plot goes.")] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds after which no case is begun; quick: 270.")
    ] = None,
    section: Annotated[list[str] | None, typer.Option(help="One of the sections; repeat.")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "",
) -> None:
    """Measure, print and write. Status 3: the device broke on the way, and the rest is missing."""
    unknown = set(section or ()) - set(suite.SECTIONS)
    if unknown:
        raise typer.BadParameter(f"{sorted(unknown)}; there are {', '.join(suite.SECTIONS)}")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    console = Console(width=WIDTH, highlight=False)
    report = Report(json, suite.facts(where))
    bench = Bench(
        where, clock_for(where), report, time.monotonic() + (limit or LIMITS[quick]), console.print
    )
    broken = False
    try:
        with torch.no_grad():
            suite.everything(bench, quick=quick, sections=tuple(section or suite.SECTIONS))
    except DeadDeviceError as error:
        broken = True
        report.say(f"the device broke: {error}")
    except KeyboardInterrupt:
        report.say("interrupted")
    table.show(report, console)
    if plot is not None:
        console.print(figure.draw(report.rows, plot))
    if broken:
        raise typer.Exit(3)


if __name__ == "__main__":
    typer.run(run)
