"""The files that a report is written to, and the command `page`, which writes them from one."""

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from .judge.evidence import EvidenceError
from .judge.exports import junit as as_junit
from .judge.exports import markdown
from .judge.shards import stored
from .options import usage

Html = Annotated[Path | None, typer.Option("--html", help="write one page of figures")]
Junit = Annotated[Path | None, typer.Option("--junit", help="write JUnit XML")]
Summary = Annotated[Path | None, typer.Option("--summary", help="append markdown, for a CI job")]


@dataclass(frozen=True)
class Files:
    """Where a report goes; None: nowhere. A page without the library that draws it is refused."""

    json: Path | None = None
    html: Path | None = None
    junit: Path | None = None
    summary: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a page before anything is judged."""
        if self.html is not None and importlib.util.find_spec("matplotlib") is None:
            raise usage("--html needs matplotlib, required: pip install 'draftproof[report]'")

    def write(self, report: Mapping[str, Any]) -> None:
        """Write all that was asked for; a summary is appended to what earlier steps wrote."""
        if self.json is not None:
            self.json.write_text(json.dumps(report, indent=1) + "\n")
        if self.junit is not None:
            self.junit.write_text(as_junit(report), encoding="utf-8")
        if self.summary is not None:
            with self.summary.open("a", encoding="utf-8") as file:
                file.write(markdown(report))
        if self.html is not None:
            from .judge.page import page as as_page

            self.html.write_text(as_page(report), encoding="utf-8")


def page(
    report: Annotated[Path, typer.Argument(help="a report of verify, merge or pytest")],
    html: Html = None,
    junit: Junit = None,
    summary: Summary = None,
) -> None:
    """Write a stored report as a page, as JUnit XML, or as markdown."""
    if not any((html, junit, summary)):
        raise usage("nothing to write, required: --html, --junit or --summary")
    files = Files(html=html, junit=junit, summary=summary)
    try:
        found = stored(report)
    except EvidenceError as error:
        raise usage(str(error)) from error
    files.write(found)
