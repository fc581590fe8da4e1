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
    mixes = list(dict.fromkeys(mix for _, mix in panels))
    wides = list(dict.fromkeys(wide for wide, _ in panels))
    names = list(dict.fromkeys(row.name for row in chain))
    batches = sorted({row.case.rows for row in chain})
    figure, axes = plt.subplots(
        len(wides),
        len(mixes),
        figsize=(4 * len(mixes), 3 * len(wides)),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for wide, mix in panels:
        axis = axes[wides.index(wide)][mixes.index(mix)]
        held = [row for row in chain if (row.case.vocabulary, row.case.mix) == (wide, mix)]
        for nth, name in enumerate(names):
            mine = sorted((row.case.rows, row.ratio) for row in held if row.name == name)
            xs, ys = [point[0] for point in mine], [point[1] for point in mine]
            axis.plot(xs, ys, marker="o", label=name, color=f"C{nth}")
        axis.axhline(1, color="0.6", linewidth=0.8)
        axis.set(title=f"V = {wide:,}, {mix}", xscale="log", yscale="log")
        axis.set_xticks(batches, labels=[str(rows) for rows in batches])
        axis.minorticks_off()
        axis.yaxis.set_major_formatter("{x:g}")
    for axis in axes[-1]:
        axis.set_xlabel("rows")
    figure.supylabel("time over floor")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path)
    plt.close(figure)
    return f"plot: {path}"
