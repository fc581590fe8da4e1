"""The coupled oracle: many draws, each decided in float64 on the sampler's own noise."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ..budget import SHARES, Ledger
from ..context import Context, as_inputs, query_rows
from ..coupling import Coupled, block_noise, counter_of, couple
from ..history import History
from ..margin import ARITHMETIC, near_tie_rate
from ..script import Command, Load, Plan, Read, Replay
from ..significance import hidden_rate, most_hits
from ..verdict import Verdict, holds, unknown, violated

NAME = "coupled"
LEDGER = "near ties"
TITLE = "coupled oracle: float64 race on the sampler's noise"
CLAIM = "Each of many draws is the winner of its own race; near ties are as rare as they must be."
NEEDS = ("DRAWS", "NOISE")

ROWS, DRAFTS = 512, 4
HEATS = (0.3, 0.7, 1.0, 1.5)
EVERY_ID = 2**30
HOT_HEATS = (1.5, 2.0, 2.5, 3.0)
WIDE = 129_280
# The values of race noise are judged by the noise law; draws have to show less.
RACE_PART = 4
CASES_MAX = 8
WINDOW_MAX = 1e-3
# Share of tokens that a relative temperature error of 1 % changes, per unit, measured at V = 8.
CHANGED_PER_TILT = 0.32


def plan(context: Context, vocabulary: int) -> Plan:
    """Full batches of sampled rows at four temperatures until the planned draws are reached."""
    rows, drafts = (64, 2) if context.workload.real else (ROWS, DRAFTS)
    draws = 512 if context.workload.real else context.profile.coupled_draws
    return batches(context, vocabulary, Batches(rows, drafts, draws, HEATS))


def wide_plan(context: Context) -> Plan:
    """Small batches of hot rows over a large vocabulary; tokens and noise state are stored alone.

    Hot rows: winners then have E near 1/V, where a floor or a coarse grid of the noise decides.
    """
    draws = context.profile.wide_draws
    if context.dialect == "race":
        draws //= RACE_PART
    return batches(context, WIDE, Batches(8, 2, draws, HOT_HEATS, ("tokens",)))


@dataclass(frozen=True)
class Batches:
    """Rows and drafts of a replay, draws in all, temperatures in turn, and the outputs to keep."""

    rows: int
    drafts: int
    draws: int
    heats: tuple[float, ...]
    only: tuple[str, ...] = ()


def batches(context: Context, vocabulary: int, sizes: Batches) -> Plan:
    """One load a replay, new rows each time."""
    rows, drafts = sizes.rows, sizes.drafts
    material = context.workload.material(context.seed, vocabulary, torch.float32)
    setting = context.setting(material, drafts=drafts, buckets=(rows,))
    inputs, commands = {}, list[Command]()
    for number in range(math.ceil(sizes.draws / (rows * drafts))):
        hidden, anchor = context.workload.rows(
            context.seed + number,
            material,
            rows,
            query_rows(setting),
            sharpen=not sizes.only,
        )
        heat = torch.tensor(sizes.heats).repeat(rows // len(sizes.heats))
        top_k = torch.full((rows,), EVERY_ID)
        inputs[f"{number}"] = as_inputs(setting, hidden, anchor, heat, top_k)
        # What is too large to be stored is drawn again from the noise state when it is judged.
        commands += [Load(f"{number}"), Replay(redraw=not sizes.only), Read(sizes.only)]
    case = f"V = {material.vocabulary}"
    return Plan(NAME, case, setting, inputs, tuple(commands), notes={"draws": sizes.draws})


def plans(context: Context) -> list[Plan]:
    """V = 8 and V = 128, and a large V where the profile affords it; or the real vocabulary."""
    if context.workload.real:
        return [plan(context, 0)]
    wide = [wide_plan(context)] if context.profile.wide_draws else []
    return [*(plan(context, vocabulary) for vocabulary in (8, 128)), *wide]


def ordinary(result: Coupled) -> np.ndarray:
    """Windows that rounding alone opens; those of flushed probabilities are as wide as the gap."""
    return result.windows[result.windows < WINDOW_MAX]


def check(history: History, ledger: Ledger) -> Verdict:
    """Count draws that lost their race by more than rounding, and near ties against their rate."""
    arithmetic = ARITHMETIC[history.description["stages"]]
    draws, near, expected, widest = 0, 0, 0.0, 0.0
    noise, counter = None, ""
    for event in history.of("replay", "read"):
        if event["verb"] == "replay":
            noise, counter = block_noise(history.setting, event), counter_of(event)
            continue
        if noise is None:
            return unknown("the subject claims NOISE, but its state does not yield the noise")
        inputs = history.inputs[event["inputs"]]
        result = couple(history.setting, inputs, event["outputs"], noise, arithmetic)
        draws += result.sampled
        if result.illegal:
            return violated(
                f"{result.mismatches[0].sentence()}; load {event['inputs']}{counter}",
                draws,
                unit="draws",
                illegal=result.illegal,
                mismatches=[mismatch.sentence() for mismatch in result.mismatches],
            )
        window = float(ordinary(result).max(initial=0.0))
        near += int((result.gaps <= window).sum())
        expected += float(near_tie_rate(result.laws, window).sum())
        widest = max(widest, window)
    if draws < history.notes["draws"]:
        return unknown(f"{draws} draws were judged, required: {history.notes['draws']}")
    alarm = ledger.take("near ties", SHARES["near ties"] * ledger.alpha / CASES_MAX)
    limit = most_hits(draws, expected / draws, alarm)
    if near > limit:
        return violated(
            f"{near} near ties within {widest:.3g} in {draws} draws, required at most {limit} "
            f"({expected:.2g} expected): the noise has too few distinct values",
            draws,
            unit="draws",
        )
    missed = hidden_rate(draws)
    effect = f"{missed:.1e} of draws wrong (99 %)"
    if history.setting["vocabulary"] < WIDE:
        effect += f", as by T {100 * missed / CHANGED_PER_TILT:.2f} % off"
    return holds(
        "every draw won its race",
        draws,
        f"{effect}; {near} near ties, {expected:.1e} expected",
        "draws",
    )
