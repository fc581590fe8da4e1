"""The chain as a picture: cold time over the floor, a panel a vocabulary and mix."""

from collections.abc import Iterable
from pathlib import Path

from .rows import Row


def draw(rows: Iterable[Row], path: Path) -> str:
    """Draw into a file. Returns what was done, or why nothing was."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        return "no plot: matplotlib is not installed"
    chain = [row for row in rows if row.section == "chain" and row.ratio and row.case.drafts == 7]
    panels = list(dict.fromkeys((row.case.vocabulary, row.case.mix) for row in chain))
    if not panels:
        return "no plot: no chain was measured"
    figure, axes = plt.subplots(
        1, len(panels), figsize=(4 * len(panels), 4), sharey=True, squeeze=False
    )
    for axis, (wide, mix) in zip(axes[0], panels, strict=True):
        held = [row for row in chain if (row.case.vocabulary, row.case.mix) == (wide, mix)]
        for name in dict.fromkeys(row.name for row in held):
            mine = sorted((row.case.rows, row.ratio) for row in held if row.name == name)
            axis.plot(*zip(*mine, strict=True), marker="o", label=name)
        axis.set_title(f"V = {wide:,}, {mix}")
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        axis.set_xlabel("rows")
    axes[0][0].set_ylabel("time over floor")
    axes[0][-1].legend(fontsize="x-small")
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
    return f"plot: {path}"
