"""Run the zoo: every specimen by the checks that are named for it, every control by all.

Exit codes: 0 all is as stated, 1 a cell is unexpected, 2 usage.
"""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from oracle.judge import archive
from oracle.judge.jobs import jobs_for
from oracle.options import engine_and_device

from . import figure as heat_map
from . import guide as guides
from .controls import SPARED
from .jobs import SIZES, shared_out
from .listing import Run, document, render
from .matrix import CHECKS, Cell, Job, absent, everyone, planned, totals

app = typer.Typer(add_completion=False, help=__doc__)
WIDTH = 120


def refuse_unknown(what: str, names: list[str], known: tuple[str, ...]) -> None:
    """A usage error for the first name that is not known."""
    for name in names:
        if name not in known:
            raise typer.BadParameter(f"{what} {name!r} is not known, required: {', '.join(known)}")


def behind_a_bar(
    jobs: list[Job],
    profile: str,
    seed: int,
    processes: int,
    console: Console,
    folder: Path | None,
) -> list[Cell]:
    """Judge all cells behind a progress bar; the histories of kills go to a folder."""
    text = TextColumn("{task.description}")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text)
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=len(jobs))

        def done(job: Job) -> None:
            progress.update(task, advance=1, description=f"{job.row} {job.label}: {job.check}")

        return shared_out(jobs, profile, seed, processes, done, folder)


def stored(folder: Path) -> str:
    """How many kills a folder holds, and which of them cannot be judged again from there."""
    files = archive.find(folder) if folder.exists() else []
    notes = [file.stem for file in files if archive.format_of(file) == archive.UNSTORED]
    untold = f"; without a history: {', '.join(notes)}" if notes else ""
    return f"kills stored: {len(files)}; draftproof judge {folder} judges them again{untold}"


@app.command()
def zoo(
    profile: Annotated[str, typer.Option(help=", ".join(SIZES))] = "smoke",
    seed: Annotated[int, typer.Option(help="seed of inputs and noise")] = 0,
    full: Annotated[
        bool, typer.Option("--full", help="every check on everything, in every combination")
    ] = False,
    only: Annotated[list[str] | None, typer.Option(help="only this specimen or control")] = None,
    check: Annotated[list[str] | None, typer.Option(help="only this check; repeatable")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one a core, 4 at most")] = 0,
    engine: Annotated[str, typer.Option(help="emulator, or cuda for faults of recordings")] = (
        "emulator"
    ),
    json_file: Annotated[Path | None, typer.Option("--json", help="write the matrix")] = None,
    save: Annotated[Path | None, typer.Option(help="folder for the histories of kills")] = None,
    figure: Annotated[Path | None, typer.Option(help="draw the matrix; needs matplotlib")] = None,
    guide: Annotated[bool, typer.Option("--guide", help="write README.md, judge nothing")] = False,
) -> None:
    """Judge specimens and controls, and say which cells are not as stated."""
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, WIDTH)
    if guide:
        guides.FILE.write_text(guides.text(), encoding="utf-8")
        return
    only, check = only or [], check or []
    refuse_unknown("profile", [profile], tuple(SIZES))
    refuse_unknown("check", check, CHECKS)
    refuse_unknown("engine", [engine], ("emulator", "cuda"))
    engine, device = engine_and_device(engine)
    refuse_unknown("specimen or control", only, (*(s.id for s in everyone()), *SPARED))
    if figure is not None and (missing := heat_map.missing()):
        raise typer.BadParameter(missing)
    checks = tuple(name for name in CHECKS if not check or name in check)
    work = planned(profile, full=full, only=only, checks=checks, engine=engine)
    cells = behind_a_bar(work, profile, seed, jobs_for(device, jobs), console, save)
    run = Run(profile, seed, full, checks, absent(profile, only, engine), engine)
    sums = totals(cells)
    if json_file is not None:
        report = document(run, cells, sums)
        json_file.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if figure is not None:
        heat_map.draw(run, cells, figure)
    render(run, cells, sums, console)
    if save is not None:
        console.print(stored(save))
    raise typer.Exit(1 if sums.unexpected else 0)


if __name__ == "__main__":
    app(prog_name="python -m tests.zoo")
