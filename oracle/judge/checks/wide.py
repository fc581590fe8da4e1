"""Draws that a subject counts itself, and why its counts can be believed.

Every call starts from a seed of its own. Some calls are made again, block by block, from the same
seed, and the judge counts what it reads: noise and tokens are the same, so the counts have to be.
The subject cannot know which calls those are.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..context import Context
from ..history import History
from ..script import Command, Count, Load, Plan
from ..seeds import seed_of
from ..significance import Counts, Floats
from ..verdict import Verdict, unknown, violated

# Calls, and how many of them are made again.
CALLS, AGAIN = 32, 4
MISS = 0.05
# One law and its table: name, axes, law [contexts, V], step logits over T or None, T.
Named = tuple[str, str, Floats, Floats | None, float]


def tokens_wanted(context: Context) -> int:
    """Tokens to count, 0 for no such case."""
    if context.workload.real or not {"COUNTS", "NOISE"} <= set(context.abilities):
        return 0
    return context.profile.counted[context.device.startswith("cuda")]


def counted(plan: Plan, context: Context, stage_two: float) -> Plan:
    """A plan of one load, with calls that count in the place of its commands.

    stage_two: how many times as many blocks stage two has.
    """
    rows, drafts = plan.inputs["x"]["anchor"].shape[0], plan.setting["drafts"]
    blocks = context.part(-(-tokens_wanted(context) // (rows * drafts)))
    each = max(2, -(-blocks // CALLS))
    commands = calls(context, plan.check, each, 1)
    confirm = calls(context, plan.check, math.ceil(each * stage_two), 2)
    notes = {**plan.notes, "counted": True, "rows": rows}
    case = f"counted, {plan.case}"
    first = (Load("x"), *commands)
    return replace(plan, case=case, commands=first, confirm=confirm, notes=notes)


def calls(context: Context, check: str, each: int, stage: int) -> tuple[Command, ...]:
    """Every call, and then those of them that the judge counts again."""

    def seed(purpose: str) -> int:
        return seed_of(check, context.label, purpose, stage, context.shard, context.seed)

    seeds = [seed(f"call {number}") for number in range(CALLS)]
    again = np.random.default_rng(seed("made again")).permutation(CALLS)[:AGAIN]
    told = tuple(Count(one, each) for one in seeds)
    return (*told, *(Count(seeds[number], each, read=True) for number in sorted(again)))


def of_stage(history: History) -> list[dict[str, Any]]:
    """The calls of the last stage."""
    starts = [i + 1 for i, event in enumerate(history.events) if event["verb"] == "stage"]
    return [e for e in history.events[max(starts, default=0) :] if e["verb"] == "count"]


def unbelievable(history: History) -> Verdict | None:
    """Why counts are not those of the draws that were made, None when they are."""
    rows, drafts = history.notes["rows"], history.setting["drafts"]
    events = of_stage(history)
    told = {event["seed"]: event for event in events if not event["read"]}
    again = [event for event in events if event["read"]]
    used = sum(rows * drafts * event["replays"] for event in told.values())
    if len(told) < CALLS or len(again) < AGAIN:
        return unknown(f"{len(told)} calls counted, {len(again)} of them made again", used)
    for event in again:
        claim = told[event["seed"]]["counts"]
        for name, table in event["counts"].items():
            wrong = int((claim[name] != table).sum())
            if wrong:
                return violated(
                    f"counts of {name} are not those of the tokens: {wrong} of {table.numel()} "
                    f"cells differ, {int(claim[name].sum())} in all, required "
                    f"{int(table.sum())}, when the same {event['replays']} blocks are read",
                    used,
                    unit="draws",
                )
    for event in told.values():
        per_block = {"steps": rows * event["replays"], "rows": rows // 2 * event["replays"]}
        per_block["replays"] = rows * (event["replays"] - 1)
        for name, required in per_block.items():
            sums = event["counts"][name].sum((1, 2)).tolist()
            if sums != [required] * drafts or bool((event["counts"][name] < 0).any()):
                return violated(
                    f"counts of {name} add up to {sums}, required: {required} each and no cell "
                    "below 0",
                    used,
                    unit="draws",
                )
    return None


def totals(history: History) -> dict[str, Counts]:
    """The counts of all calls of the last stage: name to [K, V, V]."""
    told = [event["counts"] for event in of_stage(history) if not event["read"]]
    return {name: np.sum([each[name].numpy() for each in told], axis=0) for name in told[0]}


def tables(steps: Sequence[tuple[Floats, Floats, float]]) -> Iterator[Named]:
    """Laws of counted tables: of each step given the token before, and of two draws of one step.

    steps: the joint law, step logits over T, and T of each step. Two draws are independent.
    """
    for k, (joint, scaled, heat) in enumerate(steps):
        yield f"step {k}", "[token before, token]", joint, scaled, heat
    for k, (joint, _, heat) in enumerate(steps):
        alone = joint.sum(0)
        both = np.outer(alone, alone)
        yield f"step {k} of neighbouring rows", "[row 2 r, row 2 r + 1]", both, None, heat
        yield f"step {k} of successive replays", "[one, the next]", both, None, heat


def seen(history: History) -> list[Counts] | str:
    """The tables of counts, as `tables` names them, or what cannot have been drawn."""
    found, anchor = totals(history), int(history.inputs["x"]["anchor"][0])
    first = found["steps"][0]
    if first.sum() != first[anchor].sum():
        return "the token before step 0 is not the anchor"
    result = [first[anchor][None], *found["steps"][1:]]
    for rows, replays in zip(found["rows"], found["replays"], strict=True):
        result += [rows, replays]
    return result


def effect() -> str:
    """The smallest share of calls with wrong counts that is seen."""
    share = 1.0 - MISS ** (1.0 / AGAIN)
    return f"wrong counts in {100 * share:.0f} % of calls (95 %)"
