"""The command `judge`: stored verdicts, judged again without the sampler."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .judge.archive import Again, find, judged_again
from .judge.verdict import Outcome, exit_code
from .options import usage


def told(each: Again) -> str:
    """One verdict, with the stored one where that is another."""
    text = f"{each.now.outcome.value}: {each.check}, {each.case}: {each.now.reason}"
    if each.same:
        return text
    text += f"; stored: {each.outcome}: {each.reason}"
    if each.why and each.now.outcome is not Outcome.UNKNOWN:
        text += f" ({each.why})"
    return f"{text}; the sampler again: {each.again}" if each.again else text


def judge(
    history: Annotated[Path, typer.Argument(help="a stored .json, or a folder")],
    json_file: Annotated[Path | None, typer.Option("--json", help="for machines")] = None,
) -> None:
    """Judge stored histories again, without the sampler.

    Exit codes as for verify; 3 also when a verdict that holds is not the stored one.
    """
    console = Console()
    if not history.exists():
        raise usage(f"{history} does not exist")
    outcomes, rows = [], []
    for path in find(history):
        each = judged_again(path)
        outcomes.append(each.now.outcome if each.same else other(each))
        console.print(told(each), markup=False, highlight=False)
        rows.append(
            {
                "file": str(path),
                "check": each.check,
                "case": each.case,
                "outcome": each.now.outcome.value,
                "reason": each.now.reason,
                "stored": {"outcome": each.outcome, "reason": each.reason},
                "same": each.same,
            }
        )
    same = sum(bool(row["same"]) for row in rows)
    console.print(f"{len(rows)} histories judged, {same} as stored")
    if json_file is not None:
        json_file.write_text(json.dumps(rows, indent=1) + "\n")
    raise typer.Exit(exit_code(outcomes))


def other(each: Again) -> Outcome:
    """What a verdict that is not the stored one counts as: nothing better than unknown."""
    fine = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
    return Outcome.UNKNOWN if each.now.outcome in fine else each.now.outcome
