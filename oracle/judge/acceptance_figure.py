"""Acceptance by position as a picture: what was observed beside the overlap of p and q.

An SVG, written as text: bars are the share of drafts that were accepted among those that were
reached, with a 95 % interval; the line is what sum min(p, q) says of the same places.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from torch import Tensor

from .checks.decode_drafts import observed

WIDE, HIGH, LEFT, TOP, FLOOR = 460, 260, 50, 40, 210
SPACE = "http://www.w3.org/2000/svg"
FONT = 'font-family="sans-serif" font-size="12"'
INK, BAR, LINE = "#333333", "#9ecae1", "#b30000"


@dataclass(frozen=True)
class Share:
    """One position: drafts reached, the share accepted, half its 95 % interval, and expected."""

    reached: int
    accepted: float
    half: float
    expected: float


def shares(places: Mapping[str, Tensor]) -> list[Share]:
    """Every position of the sampled places of a decoded run."""
    position, overlap, kept = observed(dict(places))
    found = []
    for place in range(int(position.max()) + 1 if len(position) else 0):
        own = position == place
        count = int(own.sum())
        accepted = float(kept[own].double().mean())
        chance = overlap[own]
        half = 1.96 * float((chance * (1 - chance)).sum().sqrt()) / count
        found.append(Share(count, accepted, half, float(chance.mean())))
    return found


def height(share: float) -> float:
    """Where a share lies on the page."""
    return FLOOR - (FLOOR - TOP) * share


def drawn(found: list[Share], title: str) -> str:
    """The picture as text."""
    step = (WIDE - LEFT - 20) / max(len(found), 1)
    parts = [
        f'<svg xmlns="{SPACE}" viewBox="0 0 {WIDE} {HIGH}" {FONT}>',
        f'<rect width="{WIDE}" height="{HIGH}" fill="white"/>',
        f'<text x="{LEFT}" y="22" fill="{INK}">{escape(title)}</text>',
    ]
    for tick in range(0, 11, 2):
        y = height(tick / 10)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDE - 20}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{tick / 10:g}</text>')
    corners = []
    for place, one in enumerate(found):
        x = LEFT + step * (place + 0.5)
        y = height(one.accepted)
        parts.append(
            f'<rect x="{x - step / 4:.1f}" y="{y:.1f}" width="{step / 2:.1f}" '
            f'height="{FLOOR - y:.1f}" fill="{BAR}"/>'
        )
        low, high = (height(min(max(one.accepted + sign * one.half, 0), 1)) for sign in (-1, 1))
        parts.append(f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="{INK}"/>')
        label = f"draft {place + 1}, n = {one.reached:,}"
        parts.append(f'<text x="{x:.1f}" y="{FLOOR + 18}" text-anchor="middle">{label}</text>')
        corners.append(f"{x:.1f} {height(one.expected):.1f}")
    parts.append(f'<path d="M{"L".join(corners)}" fill="none" stroke="{LINE}" stroke-width="2"/>')
    parts += [
        f'<circle cx="{corner.split()[0]}" cy="{corner.split()[1]}" r="4" fill="{LINE}"/>'
        for corner in corners
    ]
    parts.append(
        f'<text x="{LEFT}" y="{HIGH - 10}" fill="{INK}">bars: accepted among reached; '
        f'<tspan fill="{LINE}">line: mean of sum min(p, q)</tspan></text></svg>'
    )
    return "\n".join(parts) + "\n"


def draw(places: Mapping[str, Tensor], title: str, path: Path) -> str:
    """Write the picture to a file; returns what was done, or why nothing was."""
    found = shares(places)
    if not found:
        return "no figure: no sampled draft was judged"
    path.write_text(drawn(found, title))
    return f"figure: {path}"
