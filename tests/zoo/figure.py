"""The matrix as a heat map; the only file that draws, with the extra `report`."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .controls import SPARED
from .listing import Run
from .matrix import Cell, State, everyone, merged, rooms

COLOURS = {
    State.UNEXPECTED: "#c1121f",
    State.KILLED: "#1b7837",
    State.ALSO: "#a6dba0",
    State.BLIND: "#fdd27a",
    State.SURVIVED: "#f2e6d9",
    State.PASSED: "#c6dbef",
    State.OUT: "#d9d9d9",
}
AWAY, UNASKED = "#8073ac", "#ffffff"
PALE_TEXT = (State.UNEXPECTED, State.KILLED)
CELL_WIDTH, CELL_HEIGHT, MARGINS = 0.42, 0.25, (5.2, 2.6)


def missing() -> str:
    """What is missing to draw; empty when nothing is."""
    if find_spec("matplotlib") is None:
        return "--figure needs matplotlib, not installed: pip install draftproof[report]"
    return ""


def rows_of(run: Run, cells: Sequence[Cell]) -> list[tuple[str, str]]:
    """(room, row) from top to bottom: specimens by module, those judged elsewhere too, controls."""
    present = {cell.job.row for cell in cells} | set(run.away)
    listed = [
        (module.rpartition(".")[2], specimen.id)
        for module, specimens in rooms().items()
        for specimen in specimens
    ]
    listed += [("controls", control) for control in SPARED]
    return [(room, row) for room, row in listed if row in present]


def paint(axes: Any, run: Run, cells: Sequence[Cell], rows: Sequence[tuple[str, str]]) -> None:
    """One rectangle a cell; a killed one carries its seconds, an unexpected one a mark too."""
    from matplotlib.patches import Rectangle

    stated = {s.id: (s.killed_by, s.blind_to) for s in everyone()}
    places = merged(cells)
    for y, (_, row) in enumerate(rows):
        for x, check in enumerate(run.checks):
            cell = places.get((row, check))
            away = row in run.away and check in stated[row]
            colour = COLOURS[cell.state] if cell else AWAY if away else UNASKED
            axes.add_patch(Rectangle((x, y), 1, 1, facecolor=colour, edgecolor="#bbbbbb", lw=0.5))
            if cell is not None and cell.state in (State.UNEXPECTED, State.KILLED, State.ALSO):
                ink = "white" if cell.state in PALE_TEXT else "black"
                mark = "! " if cell.state is State.UNEXPECTED else ""
                text = f"{mark}{cell.seconds:.1f}"
                axes.text(x + 0.5, y + 0.52, text, ha="center", va="center", size=7, color=ink)


def label(axes: Any, run: Run, rows: Sequence[tuple[str, str]]) -> None:
    """Names of checks above, of rows at the left, and of rooms at the right with a rule between."""
    axes.set_xlim(0, len(run.checks))
    axes.set_ylim(len(rows), 0)
    axes.xaxis.tick_top()
    axes.set_xticks([x + 0.5 for x in range(len(run.checks))])
    axes.set_xticklabels(run.checks, rotation=60, ha="left", rotation_mode="anchor", size=9)
    axes.set_yticks([y + 0.5 for y in range(len(rows))])
    axes.set_yticklabels([row for _, row in rows], size=9)
    axes.tick_params(length=0)
    for room in dict.fromkeys(room for room, _ in rows):
        places = [y for y, (where, _) in enumerate(rows) if where == room]
        axes.axhline(places[0], color="black", lw=1.2)
        middle = (places[0] + places[-1] + 1) / 2
        axes.text(len(run.checks) + 0.2, middle, room, va="center", size=9, style="italic")


def draw(run: Run, cells: Sequence[Cell], file: Path) -> None:
    """Write the heat map; the format follows from the name of the file."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = rows_of(run, cells)
    size = (
        CELL_WIDTH * len(run.checks) + MARGINS[0],
        CELL_HEIGHT * len(rows) + MARGINS[1],
    )
    figure = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    paint(axes, run, cells, rows)
    label(axes, run, rows)
    kinds = [Patch(facecolor=c, edgecolor="#bbbbbb", label=s.value) for s, c in COLOURS.items()]
    kinds.append(Patch(facecolor=AWAY, edgecolor="#bbbbbb", label="judged elsewhere"))
    kinds.append(Patch(facecolor=UNASKED, edgecolor="#bbbbbb", label="not run"))
    figure.legend(handles=kinds, loc="outside lower center", ncols=5, frameon=False, fontsize=9)
    figure.suptitle(
        f"Specimens and controls by check, profile {run.profile}, seed {run.seed}; "
        "figures: seconds to the kill",
        size=11,
    )
    figure.savefig(file, dpi=150)
