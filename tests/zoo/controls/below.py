"""Faults a tenth of the smallest one that a check states: nobody may be accused of them.

The size of each follows from the profile, by the arithmetic that the check plans and reports with.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oracle.judge import binomial, chain, lattice, significance
from oracle.judge.budget import ALPHA, SHARES
from oracle.judge.checks import (
    accept_length,
    block_law,
    claim,
    confidence,
    independence,
    lossless,
    noise_law,
)
from oracle.judge.context import Context, Profile, constant
from oracle.judge.protocol import Factory
from oracle.judge.script import Plan, Replay
from oracle.reference import choice, filters, law

from ...judging import context
from .faint import (
    bent,
    floored,
    leaning_coins,
    leaning_end,
    rounded_confidence,
    seldom_foreign,
    seldom_shared,
    warmer,
)

Setting = Mapping[str, Any]
TENTH = 0.1


@dataclass(frozen=True)
class Below:
    """A sampler whose fault lies below what a check states as its smallest detectable effect.

    id: its name. check: whose statement it is. fault: what is wrong, in a few words. effect: what
    the check states, in a few words. stated: that effect at a profile. says: how the report words
    it, with the number as its only group. read: from that number to the unit of `stated`. build: a
    subject for a setting, with a fault of a given size; see faint.py. part: of the stated effect.
    """

    id: str
    check: str
    fault: str
    effect: str
    stated: Callable[[Context], float]
    says: str
    read: Callable[[float], float]
    build: Callable[[Setting, float], Any]
    part: float = TENTH

    def size(self, profile: Profile) -> float:
        """How large the fault is at a profile."""
        return self.part * self.stated(context(profile=profile))

    def factory(self, profile: Profile) -> Factory:
        """Build subjects with the fault of a profile."""
        size = self.size(profile)
        return lambda setting: self.build(setting, size)


def percent(value: float) -> float:
    """A number of a report that is followed by a per cent sign."""
    return value / 100


def moved_share(_: Context) -> float:
    """Share of draws in one bin that `claim` finds; its draws are those of every profile."""
    draws = claim.ROWS * claim.DRAFTS * claim.REPLAYS
    return significance.smallest_shift(draws, claim.BINS, significance.STAGES[0])


def floor_seen(asked: Context) -> float:
    """The lowest floor that draws of rare ids show."""
    (*_, plan) = noise_law.plans(asked)
    own = lattice.declared(asked.dialect, asked.device)
    vocabulary, draws = plan.setting["vocabulary"], plan.notes["draws"]
    mass = noise_law.rare_mass(vocabulary, plan.notes["gap"])
    each = mass / (vocabulary - 1)
    alarm = SHARES[noise_law.LEDGER] * ALPHA / noise_law.TESTS_MAX
    kept = mass * lattice.kept_share(own.floor / each)
    return lattice.smallest_floor(draws, kept, each, alarm)


def neighbours_seen(asked: Context) -> float:
    """Share of neighbouring rows with common noise that `independence` finds."""
    draws = independence.ROWS * independence.DRAFTS - independence.DRAFTS
    alarm = SHARES[independence.LEDGER] * ALPHA / independence.TESTS_MAX
    pairs = independence.replays_for(asked) * draws
    return significance.pairs_seen(pairs, 1 / independence.MANY, alarm)


def blocks_of(plan: Plan) -> int:
    """How many blocks a plan drafts before anything is confirmed."""
    return len(plan.inputs["x"]["anchor"]) * sum(isinstance(c, Replay) for c in plan.commands)


def foreign_seen(asked: Context) -> float:
    """Share of blocks with a neighbour's previous token that `block_law` finds, over 8 ids."""
    plan, share = block_law.plan(asked, "vanilla"), asked.profile.share
    laws = chain.chain(plan.setting, plan.inputs["x"], block_law.TYPES)
    return block_law.effect_of(laws, blocks_of(plan), share, ALPHA)[0]


def length_seen(asked: Context) -> float:
    """Relative change of how often a length is reached that `accept_length` finds, every length."""
    each, found = accept_length.alarm_of(ALPHA) / (2 * accept_length.DRAFTS), []
    for rule, plan in zip(accept_length.RULES, accept_length.plans(asked), strict=True):
        _, gone_on = accept_length.lengths_law(plan.setting, plan.inputs, rule)
        rates = [float(on.sum()) for on in gone_on]
        found.append(max(binomial.rate_seen(blocks_of(plan), rate, each) / rate for rate in rates))
    return min(found)


def distance_seen(asked: Context) -> float:
    """Root chi-square distance of committed pairs that `lossless` finds, in its sharpest case."""
    found = []
    for plan in lossless.plans(asked):
        table, anchor = plan.inputs["target"]["table"], int(plan.inputs["x"]["anchor"][0])
        heat, top_k = constant(lossless.VOCABULARY, lossless.TEMPERATURE, lossless.EVERY_ID)
        top_p = plan.inputs["target"]["top_p"][: lossless.VOCABULARY].double()
        steps = filters.target_law(table.double(), choice.clamped(heat), top_k, top_p)
        every = steps.unsqueeze(0).expand(lossless.DRAFTS + 1, -1, -1)
        blocks = blocks_of(plan)
        pools = significance.pool(law.pair_laws(every, anchor)[-1].numpy().ravel(), blocks)
        level, miss = significance.STAGES[0], significance.MISS
        found.append(math.sqrt(significance.noncentrality(pools.degrees, level, miss) / blocks))
    return min(found)


SPECIMENS = (
    Below(
        "warmer_by_a_tenth",
        "draft_law",
        "draws at a temperature above the one that was staged",
        "T off",
        lambda asked: asked.profile.tilt,
        r"T off by ([\d.e+-]+) %",
        percent,
        warmer,
    ),
    Below(
        "slightly_bent_temperature",
        "claim",
        "draws at a power of T just above 1, and exports T",
        "draws moved within their law",
        moved_share,
        r"^([\d.e+-]+) % of draws moved",
        percent,
        bent,
    ),
    Below(
        "deep_floor",
        "noise_law",
        "has no noise below a floor",
        "noise floor",
        floor_seen,
        r"a noise floor of 2\^(-[\d.]+)",
        lambda value: 2.0**value,
        floored,
    ),
    Below(
        "seldom_shared_noise",
        "independence",
        "shares the noise of neighbouring rows, never twice the same",
        "pairs of rows with common noise",
        neighbours_seen,
        r"([\d.e+-]+) % of pairs with common noise",
        percent,
        seldom_shared,
    ),
    Below(
        "seldom_foreign_token",
        "block_law",
        "reads the previous token of the next row now and then",
        "blocks with a neighbour's previous token",
        foreign_seen,
        r"a neighbour's previous token in ([\d.e+-]+) % of blocks",
        percent,
        seldom_foreign,
    ),
    Below(
        "leaning_coins",
        "accept_length",
        "accepts by coins that lean to accepting",
        "lengths reached too often",
        length_seen,
        r"a length reached ([\d.e+-]+) % too often",
        percent,
        leaning_coins,
    ),
    Below(
        "leaning_final_draw",
        "lossless",
        "draws the residual and the bonus token with a uniform that leans to the first ids",
        "committed law off, as a root chi-square",
        distance_seen,
        r"a law off by ([\d.e+-]+) \(root",
        float,
        leaning_end,
    ),
    Below(
        "rounded_confidence",
        "confidence",
        "returns a confidence that is a little too low",
        "one value off, relative to itself and 1",
        lambda _: confidence.RELATIVE,
        r"^([\d.e+-]+) of one value",
        float,
        rounded_confidence,
    ),
)
BELOW = {specimen.id: specimen for specimen in SPECIMENS}
