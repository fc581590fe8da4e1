"""Figures of a report as inline SVG, in colours of the page, so that both themes read well."""

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .drawn import Ages, Cells, Quantiles
from .power import Curve

# What matplotlib draws in, and the variable of the page that takes its place.
INK, RULE, FIRST = "#010203", "#020304", "#030405"
SECOND, BAD, OK, PAPER = "#040506", "#050607", "#060708", "#070809"
VARIABLES = {
    PAPER: "paper",
    INK: "ink",
    RULE: "rule",
    FIRST: "one",
    SECOND: "two",
    BAD: "bad",
    OK: "ok",
}
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "draftproof",
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "figure.constrained_layout.use": True,
}
SIZE = (3.5, 2.7)
# A ratio above this is drawn as an arrow; a range of sizes below WIDE needs no logarithm.
CUT, WIDE = 5.0, 20.0
# A figure of a page that is 390 pixels wide holds a label for about so many replays.
LABELS = 12


@dataclass(frozen=True)
class Drawing:
    """One figure: its caption, what it shows in words, and its SVG."""

    caption: str
    alt: str
    svg: str


def drawn(
    paint: Callable[[Any], None], caption: str, alt: str, number: int, height: float = SIZE[1]
) -> Drawing:
    """Let `paint` draw on axes of the page's style; number: of the figure on its page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE[0], height))
        axes = figure.add_subplot()
        paint(axes)
        buffer = io.StringIO()
        plain = {"Date": None, "Creator": None, "Format": None, "Type": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=plain)
    return Drawing(caption, alt, inline(buffer.getvalue(), alt, number))


def inline(text: str, alt: str, number: int) -> str:
    """The SVG element alone, with the page's colours, names of its own, and its words."""
    text = text[text.index("<svg") :]
    for colour, name in VARIABLES.items():
        text = text.replace(colour, f"var(--{name})")
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for before in (' id="', 'href="#', "url(#"):
        text = text.replace(before, f"{before}f{number}-")
    head = re.match(r"<svg[^>]*>", text)
    box = re.search(r'viewBox="[^"]*"', text)
    if head is None or box is None:
        raise ValueError("matplotlib wrote an SVG without a view box, required: one")
    words = alt.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    names = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
    opening = f'<svg {box[0]} role="img" aria-label="{words}" {names}>'
    return opening + text[head.end() :]


def expected(found: Cells, number: int) -> Drawing:
    """Observed over expected probability of every cell, with its band."""
    low, high = found.band
    rate = found.draws * found.probability
    order = np.argsort(rate, kind="stable")
    low, high, rate, hits = low[order], high[order], rate[order], found.hits[order]
    ratio, outside = hits / rate, (hits < low) | (hits > high)
    # Where all cells are alike, their number tells them apart.
    alike = bool(rate[0] == rate[-1])
    x = np.arange(len(rate)) if alike else rate
    top = min(max(float(ratio.max()), float((high / rate)[-1])) * 1.1, CUT)

    def paint(axes: Any) -> None:
        axes.fill_between(x, low / rate, high / rate, color=FIRST, alpha=0.2, linewidth=0)
        axes.axhline(1, color=INK, linewidth=0.8)
        for chosen, mark, colour in ((~outside, ".", FIRST), (outside, "x", BAD)):
            shown, cut = chosen & (ratio <= top), chosen & (ratio > top)
            axes.plot(x[shown], ratio[shown], mark, color=colour, markersize=4)
            # What lies above the figure is told by an arrow at its edge.
            axes.plot(x[cut], np.full(cut.sum(), top), "^", color=colour, clip_on=False)
        axes.set(ylabel="observed / expected", ylim=(0 if ratio.min() < 0.5 else 0.5, top))
        axes.set_xscale("linear" if alike else "log")
        axes.set_xlabel("cell" if alike else "draws expected of a cell")

    name = f"{found.check}, {found.combination}"
    count = int(outside.sum())
    return drawn(
        paint,
        f"{name}: observed against expected",
        f"{len(rate)} cells of {name}: observed over expected probability; "
        f"{count} outside the band that a correct sampler leaves once in 1,000 reports.",
        number,
    )


def residuals(found: Cells, number: int) -> Drawing:
    """Residuals in standard deviations, by the rank of the cell's probability."""
    values, limit = found.residuals, found.limit
    far = np.abs(values) > limit

    def paint(axes: Any) -> None:
        rank = np.arange(len(values))
        axes.axhspan(-limit, limit, color=FIRST, alpha=0.12, linewidth=0)
        axes.axhline(0, color=INK, linewidth=0.8)
        axes.plot(rank[~far], values[~far], ".", color=FIRST, markersize=3)
        axes.plot(rank[far], values[far], "x", color=BAD, markersize=5)
        axes.set(xlabel="cells, rarest first", ylabel="standard deviations")
        edge = max(limit * 1.2, float(np.abs(values).max(initial=0.0)) * 1.1)
        axes.set_ylim(-edge, edge)

    name = f"{found.check}, {found.combination}"
    return drawn(
        paint,
        f"{name}: residuals",
        f"Residuals of {len(values)} cells of {name}: the largest is "
        f"{np.abs(values).max():.1f} standard deviations, the band ends at {limit:.1f}.",
        number,
    )


def noise(found: Sequence[Quantiles], number: int) -> Drawing:
    """Quantiles of -log E against those of the Gumbel law; sources of one combination."""
    marks = (("o", FIRST), ("x", SECOND), ("+", INK))

    def paint(axes: Any) -> None:
        wide = max(found, key=lambda one: len(one.observed))
        axes.fill_betweenx(wide.observed, wide.low, wide.high, color=FIRST, alpha=0.25, linewidth=0)
        ends = [float(wide.observed.min()), float(wide.observed.max())]
        axes.plot(ends, ends, color=INK, linewidth=0.8)
        for (mark, colour), one in zip(marks, found, strict=False):
            axes.plot(
                one.required,
                one.observed,
                mark,
                color=colour,
                markersize=4,
                fillstyle="none",
                label=one.source,
            )
        axes.set(xlabel="quantile of the Gumbel law", ylabel="quantile of -log E")
        axes.legend(frameon=False, fontsize=8, loc="upper left")

    where = found[0].combination
    out = sum(int(((q.required < q.low) | (q.required > q.high)).sum()) for q in found)
    sources = ", ".join(one.source for one in found)
    return drawn(
        paint,
        f"noise, {where}: Gumbel quantiles",
        f"Quantiles of Gumbel noise of {where} ({sources}) against the law: {out} of "
        f"{sum(len(one.observed) for one in found)} outside the band.",
        number,
    )


def replays(found: Ages, number: int) -> Drawing:
    """A strip a field: green where a replay used what was loaded, else the age of the value."""
    fields = sorted(found.stale) or ["every field"]

    def paint(axes: Any) -> None:
        for row, name in enumerate(fields):
            late: Mapping[int, int] = found.stale.get(name, {})
            for replay in range(found.replays):
                age = late.get(replay)
                colour = OK if age is None else BAD
                axes.barh(row, 0.9, left=replay - 0.45, height=0.7, color=colour, linewidth=0)
                if age is not None:
                    axes.text(replay, row, str(age), color=PAPER, ha="center", va="center")
        axes.set_yticks(range(len(fields)), fields)
        axes.set_xticks(range(0, found.replays, -(-found.replays // LABELS)))
        axes.set(xlabel="replay (in it: age of the value)", ylim=(-0.6, len(fields) - 0.4))
        axes.invert_yaxis()
        axes.tick_params(length=0)
        axes.spines[["left", "bottom"]].set_visible(False)

    told = "; ".join(
        f"{name} stale in replays {', '.join(map(str, sorted(late)))}"
        for name, late in found.stale.items()
    )
    return drawn(
        paint,
        f"replay timeline, {found.combination}",
        f"{found.replays} replays of {found.combination}: {told or 'nothing stale'}.",
        number,
        0.9 + 0.35 * len(fields),
    )


def power(found: Curve, number: int) -> Drawing:
    """The probability of finding a fault, by its size."""

    def paint(axes: Any) -> None:
        axes.plot(found.sizes, found.powers, color=FIRST, linewidth=1.6)
        axes.axhline(0.95, color=INK, linewidth=0.8, linestyle="--", alpha=0.6)
        axes.set(xlabel=found.what, ylabel="found with probability", ylim=(0, 1.02))
        if max(found.sizes) > WIDE * min(found.sizes):
            axes.set_xscale("log")
        else:
            axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter("{x:.2g}")

    half = float(np.interp(0.5, found.powers, found.sizes))
    most = float(np.interp(0.95, found.powers, found.sizes))
    return drawn(
        paint,
        f"{found.check}: power",
        f"Power of {found.check}, {found.what}: {half:.2g} is found half of the time, {most:.2g} "
        f"in 95 % of runs.",
        number,
    )
