"""The command `record`: the vectors of fixtures/vectors, written or compared."""

from pathlib import Path
from typing import Annotated

import typer

from .judge.vectors.store import DiffersError, difference, made, write

VECTORS = Path("fixtures") / "vectors"
KNOWN_ANSWERS = Path("fixtures") / "kat" / "philox4x32_10.txt"


def record(
    out: Annotated[Path, typer.Option(help="folder of the vectors")] = VECTORS,
    kat: Annotated[Path, typer.Option(help="published answers of Philox")] = KNOWN_ANSWERS,
    check: Annotated[bool, typer.Option("--check", help="compare, write nothing")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="replace what differs")] = False,
) -> None:
    """Record vectors that any language can run. Exit: 0 done or equal, 1 different, 2 usage."""
    if not kat.is_file():
        raise typer.BadParameter(f"{kat} is missing, required: the published answers of Philox")
    texts = made(kat.read_text())
    if check:
        found = difference(texts, out)
        typer.echo(f"{len(texts)} files equal" if found is None else f"different: {found}")
        raise typer.Exit(0 if found is None else 1)
    try:
        changed = write(texts, out, overwrite=overwrite)
    except DiffersError as error:
        typer.echo(f"not recorded, --overwrite replaces: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{len(changed)} of {len(texts)} files written to {out}")
