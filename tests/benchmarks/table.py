"""The report as tables, one a section, and the words that belong to it."""

from collections import Counter
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from .rows import Report, Row

COLUMNS = (
    ("V", "right"),
    ("B", "right"),
    ("K", "right"),
    ("D", "right"),
    ("mix", "left"),
    ("implementation", "left"),
    ("cold us", "right"),
    ("x floor", "right"),
    ("hot us", "right"),
    ("/ ours", "right"),
    ("wall us", "right"),
    ("launches", "right"),
    ("busy", "right"),
    ("tokens", "left"),
)
TITLES = {
    "chain": "Chain of K steps, base logits given: microseconds a block",
    "head": "Output head and argmax: microseconds a block of n = B K rows",
    "occupancy": "Head and chain: share of a waiting step inside the graph, and its wall",
    "counting": "Tokens drawn and counted on the device",
    "host": "Without a GPU: processor time",
}


def number(value: float | None, form: str = ".1f") -> str:
    """A figure, or a dash."""
    return "-" if value is None else format(value, form)


def line(row: Row, best: float | None) -> list[str]:
    """The cells of one row; `best` is the time of our fastest folded block in the same case."""
    case = row.case
    size = [f"{size:,}" if size else "-" for size in (case.vocabulary, case.rows, case.drafts)]
    against = row.cold / best if row.cold and best else None
    return [
        *size,
        f"{case.hidden:,}" if case.hidden else "-",
        case.mix,
        row.name,
        number(row.cold),
        number(row.ratio, ".2f"),
        number(row.hot),
        number(against, ".2f"),
        number(row.extra.get("wall"), ".0f"),
        number(row.launches, "d"),
        number(row.busy, ".0%"),
        row.word or row.parity + ("" if row.equal is None else f", {row.equal:.2%} as ours"),
    ]


def best_of(rows: Iterable[Row]) -> dict[object, float]:
    """The cold time of our fastest folded block, by case."""
    found: dict[object, float] = {}
    for row in rows:
        if row.cold and row.name.startswith("ours") and "folded" in row.name:
            found[row.case] = min(row.cold, found.get(row.case, row.cold))
    return found


def timed(section: str, rows: list[Row]) -> Table:
    """The table of a section whose rows have cold and hot times."""
    table = Table(title=TITLES[section])
    for name, side in COLUMNS:
        table.add_column(name, justify="right" if side == "right" else "left")
    best, before = best_of(rows), None
    for row in rows:
        if before not in (None, row.case):
            table.add_section()
        before = row.case
        table.add_row(*line(row, best.get(row.case)))
    return table


def figures(section: str, rows: list[Row]) -> Table:
    """The table of a section whose rows have figures of their own."""
    names = list(dict.fromkeys(name for row in rows for name in row.extra))
    table = Table(title=TITLES[section])
    for name in ("V", "B", "implementation", "us", *names, "tokens"):
        table.add_column(name, justify="left" if name in ("implementation", "tokens") else "right")
    for row in rows:
        kept = [number(row.extra.get(name), ",.3g") for name in names]
        size = [f"{size:,}" if size else "-" for size in (row.case.vocabulary, row.case.rows)]
        table.add_row(*size, row.name, number(row.hot), *kept, row.word or row.parity)
    return table


def show(report: Report, console: Console) -> None:
    """Print every section that has rows, and what was left out, counted by reason."""
    for section in TITLES:
        rows = [row for row in report.rows if row.section == section]
        if rows:
            shape = timed if section in ("chain", "head") else figures
            console.print(shape(section, rows))
    for reason, count in sorted(Counter(row.word for row in report.rows if row.word).items()):
        console.print(f"{count} rows: {reason}")
    for word in report.words:
        console.print(word)
