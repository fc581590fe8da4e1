"""Acceptance against what it must be: a draft from q is kept with probability sum of min(p, q)."""

import numpy as np
import torch

from .. import betting
from ..budget import SHARES, Ledger
from ..history import History
from ..verdict import Verdict, holds, not_applicable, violated

NAME = "decode_drafts"
TITLE = "drafts: acceptance is the overlap of p and q"
CLAIM = "A draft is accepted with probability sum min(p, q), as it is when drawn from q."
NEEDS = ("decoder",)
LEDGER = "exact law"
# Odds of acceptance off by these factors, either way.
ODDS = (1.1, 1.3, 2.0, 5.0)


def observed(places: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per sampled place with a draft: its position, the overlap, and whether the draft was kept."""
    rows = places["sampled"] & (places["draft"] >= 0)
    kept = places["coin"] * places["q_draft"] < places["p_draft"]
    return places["place"][rows], places["overlap"][rows], kept[rows]


def check(history: History, ledger: Ledger) -> Verdict:
    """A bet on other odds stays below 1 / alarm at every moment.

    Given what came before a place, its draft is accepted with probability sum min(p, q) when it was
    drawn from q. Shown beside it: accepted and expected numbers by position. Chain rule only.
    """
    if history.setting["rule"] != "chain":
        return not_applicable(f"rule {history.setting['rule']!r} keeps other prefixes")
    places = history.of("decode")[0]["places"]
    position, overlap, kept = observed(places)
    used = len(overlap)
    if not used:
        return not_applicable("no sampled draft was judged")
    chance = np.clip(np.asarray(overlap), 1e-12, 1 - 1e-12)
    columns, names = [], []
    for factor in [odds**sign for odds in ODDS for sign in (1, -1)]:
        other = chance * factor / (1 - chance + chance * factor)
        columns.append(np.where(kept, np.log(other / chance), np.log1p(-other) - np.log1p(-chance)))
        names.append(f"odds times {factor:.3g}")
    cases = int(history.notes.get("cases", 1))
    alarm = ledger.take(LEDGER, SHARES[LEDGER] * ledger.alpha / cases)
    seen = betting.course(np.stack(columns, 1), tuple(names), alarm)
    by_position = ", ".join(
        f"{int(kept[position == k].sum())} of {float(overlap[position == k].sum()):.1f}"
        for k in range(int(position.max()) + 1)
    )
    text = (
        f"accepted of expected by position: {by_position}; mean log e = {seen.highest:.4g}, "
        f"required < {-np.log(alarm):.4g}"
    )
    if seen.crossed >= 0:
        return violated(f"{text}; strongest is {seen.strongest!r}", used, "drafts")
    information = float((chance * (1 - chance)).sum())
    goal = np.log(len(names) / alarm)
    # A bet on odds off by exp(x) gains information x^2 / 2 in the mean, x sqrt(information) spread.
    factor = np.exp((1.96 + np.sqrt(1.96**2 + 2 * goal)) / np.sqrt(information))
    return holds(
        text, used, f"odds of acceptance off by a factor of {factor:.3g} (97.5 %)", "drafts"
    )
