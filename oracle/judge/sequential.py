"""A test that is valid at every moment: look after each chunk of draws, stop when it is decided.

Violated when the mean e-value of the bank reaches 1 / alarm: a correct sampler ever gets there with
probability `alarm` at most. Holds when every law at the stated effect has an e-value of `bound` or
less: a sampler with that very fault ever gets there with probability `bound` at most.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from .bank import Member, mean_log, member, members, rejects, tilted
from .evidence import LOG_BOUND, Evidence
from .significance import MISS, Floats
from .verdict import Verdict, holds, unknown, violated

BOUND = 1e-3
UNSEEN = "nothing was drawn"


@dataclass(frozen=True)
class Rule:
    """When to stop: alarm and bound as in the module's text, effect a relative error of T."""

    alarm: float
    effect: float
    bound: float = BOUND

    @property
    def names(self) -> tuple[str, str]:
        """The members that stand for the effect, one a sign."""
        return effect_name(self.effect), effect_name(-self.effect)


def effect_name(tilt: float) -> str:
    """The name of the member for a stated relative error of T."""
    return f"stated effect: T {100 * tilt:+g} %"


def bank_of(log_law: Floats, temperature: float, effect: float) -> tuple[Member, ...]:
    """The bank of known faults, and the stated effect with both signs.

    log_law [contexts, V] at `temperature`.
    """
    stated = [
        member(effect_name(tilt), tilted(log_law, tilt), log_law) for tilt in (effect, -effect)
    ]
    return (*members(log_law, temperature=temperature), *stated)


def spread(log_law: Floats, weights: Floats) -> float:
    """Variance of log p within a context, over contexts: it decides how fast an error of T shows.

    log_law [contexts, V]; weights [contexts], their shares of the draws.
    """
    law = np.exp(log_law)
    finite = np.where(law > 0, log_law, 0.0)
    mean = (law * finite).sum(axis=-1)
    return float((weights * ((law * finite**2).sum(axis=-1) - mean**2)).sum())


def fixed_draws(variance: float, effect: float, alarm: float, miss: float = MISS) -> int:
    """Draws that a test of fixed length plans for the effect, given the `spread` of the law."""
    quantiles = float(stats.norm.isf(alarm / 2) + stats.norm.isf(miss))
    return math.ceil(quantiles**2 / (effect**2 * variance))


def strongest(piece: Evidence) -> tuple[str, float]:
    """The member with the largest e-value, and its logarithm."""
    best = int(np.argmax(piece.log_e))
    return piece.members[best], float(piece.log_e[best])


def weakest_refuted(piece: Evidence, rule: Rule) -> float:
    """The largest log e-value among the laws at the stated effect."""
    for name in rule.names:
        if name not in piece.members:
            raise ValueError(f"the bank lacks {name!r}, it holds {list(piece.members)}")
    return max(float(piece.log_e[piece.members.index(name)]) for name in rule.names)


def decide(piece: Evidence, rule: Rule) -> Verdict | None:
    """Violated, holds, or None when more draws are needed."""
    name, log_e = strongest(piece)
    mean = mean_log(piece.log_e)
    seen = {"strongest": name, "log_e": log_e, "mean_log_e": mean, "alarm": rule.alarm}
    if rejects(piece.log_e, rule.alarm):
        return violated(
            f"tokens do not follow the law: mean log e = {mean:.4g}, required < "
            f"{-math.log(rule.alarm):.4g}; strongest is {name!r} with log e = {log_e:.4g}",
            piece.draws,
            "draws",
            **seen,
        )
    rest = weakest_refuted(piece, rule)
    if rest <= math.log(rule.bound):
        return holds(
            f"mean log e = {mean:.4g} stays below {-math.log(rule.alarm):.4g}, and T off by "
            f"{100 * rule.effect:g} % is refuted: e = {math.exp(max(rest, LOG_BOUND)):.2g}; "
            f"strongest is {name!r} with log e = {log_e:.4g}",
            piece.draws,
            f"T off by {100 * rule.effect:g} %, missed with probability {rule.bound:g} at most",
            "draws",
            **seen,
        )
    return None


def undecided(piece: Evidence | None, rule: Rule, why: str) -> Verdict:
    """Unknown, with how far it got."""
    if piece is None:
        return unknown(f"{why}: {UNSEEN}")
    name, log_e = strongest(piece)
    rest = weakest_refuted(piece, rule)
    return unknown(
        f"{why}: T off by {100 * rule.effect:g} % has log e = {rest:.4g}, required <= "
        f"{math.log(rule.bound):.4g}; strongest is {name!r} with log e = {log_e:.4g}, mean log e = "
        f"{mean_log(piece.log_e):.4g}, required for an alarm {-math.log(rule.alarm):.4g}",
        piece.draws,
        strongest=name,
        log_e=log_e,
    )


def ended(pieces: Sequence[Evidence | None], rule: Rule, why: str) -> list[Verdict]:
    """The verdict of each case; what is not decided is unknown, because of `why`."""
    return [
        (None if piece is None else decide(piece, rule)) or undecided(piece, rule, why)
        for piece in pieces
    ]
