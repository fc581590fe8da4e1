"""Likelihood ratios of known faults: e-values, exact at any depth and for any mix of contexts.

A member is the law of a sampler with one fault. Its value is the likelihood of the counts under
that law over their likelihood under the true one; under the true law its mean is 1, whatever the
order of the contexts and whenever one stops. The mean over members is such a value again, so it
reaches 1 / alarm with probability `alarm` at most: no asymptotics, no second stage.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy import optimize, special, stats

from .significance import MISS, Counts, Floats

TILTS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
NUDGES = (0.001, 0.01)
# A lost id is drawn this often instead of always, so that one stray draw does not refute the loss.
REMAINDER = 1e-3
LEAK = 0.01
# Significant bits, the leading one included.
FORMATS = {"bf16": 8, "fp16": 11}


@dataclass(frozen=True)
class Member:
    """One fault.

    name      what it is, in words
    log_ratio log(q(x | context) / p(x | context)), [contexts, V]; 0 where p is 0, so an impossible
              token tells nothing here: the scan and the exact checks see it
    """

    name: str
    log_ratio: Floats


def normalised(log_weights: Floats) -> Floats:
    """Log weights shifted so that each row adds up to 1; rows without any weight stay at -inf."""
    top = log_weights.max(axis=-1, keepdims=True)
    shift = np.where(np.isfinite(top), top, 0.0)
    total = np.exp(log_weights - shift).sum(axis=-1, keepdims=True)
    return np.asarray(log_weights - shift - np.log(np.where(total > 0, total, 1.0)))


def tilted(log_law: Floats, tilt: float) -> Floats:
    """The law at a temperature that is `tilt` too high, relative to the true one."""
    return normalised(log_law / (1.0 + tilt))


def nudged(log_law: Floats, move: float) -> Floats:
    """The most likely token has `move` more, absolute; the others share what is left.

    A move is cut to half of what the token, or the others together, have to give.
    """
    top = log_law.argmax(axis=-1, keepdims=True)
    mass = np.exp(np.take_along_axis(log_law, top, axis=-1))
    others = np.exp(log_law)
    np.put_along_axis(others, top, 0.0, axis=-1)
    rest = others.sum(axis=-1, keepdims=True)
    move_cut = np.clip(move, -mass / 2, rest / 2)
    safe_mass, safe_rest = np.where(mass > 0, mass, 1.0), np.where(rest > 0, rest, 1.0)
    scale = np.broadcast_to(np.log1p(-move_cut / safe_rest), log_law.shape).copy()
    np.put_along_axis(scale, top, np.log1p(move_cut / safe_mass), axis=-1)
    return normalised(log_law + scale)


def shifted(log_law: Floats, step: int) -> Floats:
    """Ids reported `step` too high, the last one wrapping round, but for REMAINDER of the draws."""
    moved = np.roll(log_law, step, axis=-1) + math.log1p(-REMAINDER)
    return normalised(np.logaddexp(moved, log_law + math.log(REMAINDER)))


def lost(log_law: Floats, ids: int) -> Floats:
    """The last `ids` ids are drawn REMAINDER times as often as they should be."""
    faulty = log_law.copy()
    faulty[:, -ids:] += math.log(REMAINDER)
    return normalised(faulty)


def leaking(log_law: Floats, share: float) -> Floats:
    """A share of the draws is uniform over the possible ids."""
    possible = np.isfinite(log_law)
    count = np.maximum(possible.sum(axis=-1, keepdims=True), 1)
    uniform = np.where(possible, math.log(share) - np.log(count), -np.inf)
    return normalised(np.logaddexp(log_law + math.log1p(-share), uniform))


def coarse(logits: Floats, bits: int) -> Floats:
    """The law of logits over T that were rounded to `bits` significant bits, ties to even."""
    possible = np.isfinite(logits)
    fraction, exponent = np.frexp(np.where(possible, logits, 0.0))
    rounded = np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)
    return normalised(np.where(possible, rounded, -np.inf))


def members(
    log_law: Floats, logits: Floats | None = None, temperature: float = 1.0
) -> tuple[Member, ...]:
    """The bank for a law: names and number depend on V, on T and on whether logits are given.

    log_law [contexts, V] log p, -inf where p is 0, a whole row of it where the context is
    impossible. logits [contexts, V] step logits over T: with them come the rounded members.
    temperature T, as given: unless it is 1, "T ignored" is a member.
    """
    vocabulary = log_law.shape[-1]
    faults: dict[str, Callable[[], Floats]] = {}
    for tilt in [sign * size for size in TILTS for sign in (1, -1)]:
        faults[f"T {100 * tilt:+g} %"] = partial(tilted, log_law, tilt)
    if temperature != 1.0:
        faults["T ignored"] = partial(tilted, log_law, 1.0 / temperature - 1.0)
    for move in [sign * size for size in NUDGES for sign in (1, -1)]:
        faults[f"most likely token {100 * move:+g} %"] = partial(nudged, log_law, move)
    for step in (1, -1):
        faults[f"ids shifted by {step:+d}"] = partial(shifted, log_law, step)
    for ids in sorted({1, vocabulary // 512, vocabulary // 64} - {0}):
        faults[f"last {ids} ids lost"] = partial(lost, log_law, ids)
    faults[f"{100 * LEAK:g} % uniform"] = partial(leaking, log_law, LEAK)
    if logits is not None:
        for name, bits in FORMATS.items():
            faults[f"{name} logits"] = partial(coarse, logits, bits)
    return tuple(member(name, fault(), log_law) for name, fault in faults.items())


def member(name: str, log_fault: Floats, log_law: Floats) -> Member:
    """A member from the log of its law; what it gives to impossible ids goes to the others.

    log_fault, log_law [contexts, V]; a row that shares no id with the true law is left true.
    """
    possible = np.isfinite(log_law)
    kept = normalised(np.where(possible, log_fault, -np.inf))
    drawable = np.isfinite(kept).any(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratio = np.where(possible & drawable, kept - log_law, 0.0)
    return Member(name, ratio)


def log_values(counts: Counts, bank: Sequence[Member]) -> Floats:
    """Log e-value of each member. counts [contexts, V], integers: order and batches do not matter.

    Values of the same members on other draws of any law add up, member by member.
    """
    return np.array([float((counts * one.log_ratio).sum()) for one in bank])


def never_drawn(log_law: Floats, counts: Counts) -> float:
    """Log e-value of "some id never comes in some context": a mixture of one loss a cell.

    A cell (context, id) that was not drawn in n draws of its context gives (1 - p)^-n, one that was
    drawn gives 0; the value is their mean over all cells with 0 < p < 1.
    """
    law = np.exp(log_law)
    cells = (law > 0) & (law < 1)
    if not cells.any():
        return 0.0
    draws = np.broadcast_to(counts.sum(axis=-1, keepdims=True), law.shape)
    empty = cells & (counts == 0)
    logs = -draws[empty] * np.log1p(-law[empty])
    return float(special.logsumexp(logs) - math.log(cells.sum())) if empty.any() else -math.inf


def mean_log(values: Floats) -> float:
    """Log of the mean over members of e-values whose logs are given."""
    return float(special.logsumexp(values) - math.log(len(values)))


def rejects(values: Floats, alarm: float) -> bool:
    """Whether the mean reaches 1 / alarm; under the true law it does with probability <= alarm."""
    return mean_log(values) >= -math.log(alarm)


def draws_needed(member: Member, law: Floats, members: int, alarm: float, miss: float) -> int:
    """Draws at which `rejects` finds this member's fault with probability 1 - miss.

    law [contexts, V] the joint law of context and token; members how many values are averaged. A
    member equal to the law on all of it is a ValueError: no number of draws would do.
    """
    faulty = law * np.exp(member.log_ratio)
    drift = float((faulty * member.log_ratio).sum() / faulty.sum())
    if drift < 1e-15:
        raise ValueError(f"{member.name!r} is the law itself, required: a law that differs")
    square = float((faulty * member.log_ratio**2).sum() / faulty.sum())
    noise = float(stats.norm.isf(miss)) * math.sqrt(max(square - drift**2, 0.0))
    goal = math.log(members / alarm)
    return math.ceil(((noise + math.sqrt(noise**2 + 4 * drift * goal)) / (2 * drift)) ** 2)


def smallest_tilt(
    bank: Sequence[Member], law: Floats, draws: int, members: int, alarm: float, miss: float = MISS
) -> float:
    """Smallest relative temperature error, of either sign, found with probability 1 - miss.

    law [contexts, V] joint; draws over all contexts; members how many values `rejects` averages.
    Infinite when an error of half the temperature would not be found.
    """
    ratios = np.stack([one.log_ratio.ravel() for one in bank])
    squares = ratios**2
    weights = law.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        log_law = np.log(law / np.where(weights > 0, weights, 1.0))
    goal, quantile = math.log(members / alarm), float(stats.norm.isf(miss))

    def lead(tilt: float) -> float:
        faulty = (weights * np.exp(tilted(log_law, tilt))).ravel()
        faulty = faulty / faulty.sum()
        mean = ratios @ faulty
        spread = np.sqrt(np.maximum(squares @ faulty - mean**2, 0.0))
        return float((draws * mean - quantile * math.sqrt(draws) * spread).max()) - goal

    found = []
    for sign in (1.0, -1.0):
        if lead(0.5 * sign) < 0:
            return math.inf
        found.append(optimize.brentq(lambda size, s=sign: lead(s * size), 1e-7, 0.5, rtol=1e-4))
    return float(max(found))
