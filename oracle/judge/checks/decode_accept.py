"""Every accept of a decoder on real laws: the same coins, the same commit."""

from typing import Any

import torch

from ..budget import Ledger
from ..history import History
from ..verdict import Verdict, holds, not_applicable, unknown, violated

NAME = "decode_accept"
TITLE = "accept: each commit follows the rule on the coins that were used"
CLAIM = "Each draft is kept iff coin q < p, and each final draw is the one its uniform picks."
NEEDS = ("decoder",)


def wanted(places: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per place, [P] bool: the rule says otherwise; too close to decide; it is a final draw.

    A draft is accepted when coin q < p. Not the last place: it must have been, and be the token.
    The last: after an accepted draft it is that draft, at the cut; else the token must be the one
    whose interval holds the uniform.
    """
    drafted, sampled = places["draft"] >= 0, places["sampled"]
    same = places["token"] == places["draft"]
    product = places["coin"] * places["q_draft"]
    takes = drafted & (product < places["p_draft"])
    close = drafted & ((product - places["p_draft"]).abs() <= places["loose"] * places["p_draft"])
    final = places["last"] & ~takes
    low, high = places["low"], places["high"]
    inside = (places["uniform"] >= low) & (places["uniform"] < high)
    margin = places["loose_draw"]
    edge = torch.minimum((places["uniform"] - low).abs(), (places["uniform"] - high).abs())
    right = torch.where(takes, same & (~places["last"] | places["cut"]), places["last"] & inside)
    by_argmax = places["argmax"] == places["token"]
    goes_on = (places["draft"] == places["argmax"]) & ~places["cut"]
    greedy_right = by_argmax & (goes_on == ~places["last"])
    wrong = torch.where(sampled, ~right, ~greedy_right)
    return wrong, sampled & (close | (final & (edge <= margin))), final & sampled


def told(places: dict[str, torch.Tensor], place: int) -> str:
    """What was seen at one place, in words."""
    one = {name: value[place].item() for name, value in places.items()}
    where = f"step {one['step'] + 1}, request {one['request']}, position {one['place']}"
    if not one["sampled"]:
        return (
            f"{where}: committed {one['token']}, drafted {one['draft']}, required: the target's "
            f"argmax {one['argmax']}, going on while the draft agrees"
        )
    return (
        f"{where}: coin {one['coin']:.6g}, q {one['q_draft']:.6g}, p {one['p_draft']:.6g}, drafted "
        f"{one['draft']}, committed {one['token']}, whose final draw is [{one['low']:.6g}, "
        f"{one['high']:.6g}) for the uniform {one['uniform']:.6g}"
    )


def check(history: History, _ledger: Ledger) -> Verdict:
    """Accepts, cuts and final draws are decided again in float64 from exported logits and coins.

    A coin or a uniform that is closer to its threshold than float32 can tell is counted, and
    decides nothing. Chain rule only.
    """
    if history.setting["rule"] != "chain":
        return not_applicable(f"rule {history.setting['rule']!r} is judged by accept_rule")
    places: dict[str, Any] = history.of("decode")[0]["places"]
    wrong, close, final = wanted(places)
    bad = (wrong & ~close).nonzero()
    used = len(wrong)
    if len(bad):
        first = int(bad[0])
        steps = int(places["step"][first]) + 1
        return violated(
            f"{told(places, first)}; {len(bad)} of {used} places, the first in step {steps}",
            used,
            "places",
            steps=steps,
        )
    if not bool(final.any()) and bool(places["sampled"].any()):
        return unknown("no final draw was made", used)
    drafts = int((places["sampled"] & (places["draft"] >= 0)).sum())
    effect = (
        f"one accept or draw that breaks the rule: {drafts} coins, {int(final.sum())} final draws; "
        f"{int(close.sum())} too close to decide"
    )
    return holds("every commit follows from its coins", used, effect, "places")
