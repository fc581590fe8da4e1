"""Mutate modules of the reference and the judge, and compare who survives with the list.

Exit codes: 0 the survivors are those of the list, 1 they are not, 2 usage.
"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from .guards import GUARDS
from .listing import FILE, differences, read
from .mutants import run

app = typer.Typer(add_completion=False, help=__doc__)


@app.command()
def mutation(
    module: Annotated[list[str] | None, typer.Option(help="only this module; repeatable")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = 1,
) -> None:
    """Let the guards of each module run against its mutants."""
    for name in module or []:
        if name not in GUARDS:
            raise typer.BadParameter(f"{name!r} is not known, required: {', '.join(GUARDS)}")
    listed, failed = read(), False
    for name in module or GUARDS:
        with tempfile.TemporaryDirectory() as folder:
            outcome = run(name, Path(folder), jobs)
        complaints = differences(outcome.survivors, listed.get(name, []))
        failed = failed or bool(complaints)
        typer.echo(
            f"{name}: {outcome.total} mutants, {outcome.killed} killed, {outcome.timeouts} ended "
            f"by the clock, {len(outcome.survivors)} survive"
        )
        for complaint in complaints:
            typer.echo(f"  {complaint}")
    if failed:
        typer.echo(f"kill them with a test, or explain them in tests/mutation/{FILE.name}")
        raise typer.Exit(1)


if __name__ == "__main__":
    app(prog_name="python -m tests.mutation")
