"""Committed tokens against the model's own law, token after token, by an always-valid bet."""

import numpy as np
import torch

from .. import betting, reading
from ..budget import SHARES, Ledger
from ..history import History
from ..verdict import Verdict, holds, not_applicable, unknown, violated

NAME = "decode_law"
TITLE = "law: sampled text follows the model's own law"
CLAIM = "Committed tokens follow the model's law after T, top-k and top-p, given their text."
NEEDS = ("decoder",)
LEDGER = "losslessness"


def ordered(history: History) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Per sampled token in the order of time: step, ratios, variance, log p."""
    places = history.of("decode")[0]["places"]
    kept = places["kept"] & places["sampled"]
    texts = {event["request"]: event for event in history.of("text") if "ratios" in event}
    step, request = places["step"][kept], places["request"][kept]
    ratios = torch.empty(len(step), len(reading.names()), dtype=torch.float64)
    variance, log_p = torch.empty(2, len(step), dtype=torch.float64)
    for number, event in texts.items():
        own = request == number
        ratios[own], variance[own], log_p[own] = event["ratios"], event["variance"], event["log_p"]
    return step, ratios, variance, log_p


def check(history: History, ledger: Ledger) -> Verdict:
    """The mean likelihood ratio of known faults stays below 1 / alarm, whenever one looks.

    The law is the model's own, read from the whole text without cache and decoder. A token that the
    law excludes is a violation by itself.
    """
    if not bool(history.of("decode")[0]["places"]["sampled"].any()):
        return not_applicable("no request was sampled")
    step, ratios, variance, log_p = ordered(history)
    used = len(step)
    if not used:
        return unknown("no sampled token was committed")
    excluded = (~log_p.isfinite()).nonzero()
    if len(excluded):
        number = int(step[excluded[0]]) + 1
        return violated(
            f"step {number} committed a token that the law excludes, {len(excluded)} of {used}",
            used,
            "tokens",
            steps=number,
        )
    cases = int(history.notes.get("cases", 1))
    alarm = ledger.take(LEDGER, SHARES[LEDGER] * ledger.alpha / cases)
    names = reading.names()
    seen = betting.course(np.asarray(ratios), names, alarm)
    limit = -np.log(alarm)
    if seen.crossed >= 0:
        number = int(step[seen.crossed]) + 1
        return violated(
            f"tokens do not follow the model's law: mean log e = {seen.highest:.4g}, required < "
            f"{limit:.4g}, passed in step {number} after {seen.crossed + 1} tokens; strongest is "
            f"{seen.strongest!r}",
            used,
            "tokens",
            steps=number,
            tokens=seen.crossed + 1,
        )
    tilt = betting.smallest_tilt(float(variance.sum()), reading.TILTS, len(names), alarm)
    found = np.isfinite(tilt)
    effect = f"T too high by {100 * tilt:.2g} % (97.5 %)" if found else "faults larger than 2 T"
    return holds(
        f"mean log e = {seen.highest:.4g} at most, required < {limit:.4g}; strongest is "
        f"{seen.strongest!r}",
        used,
        effect,
        "tokens",
        alarm=alarm,
    )
