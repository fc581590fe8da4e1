"""The coupled oracle: many draws, each decided in float64 on the sampler's own noise."""

import math

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
CASES_MAX = 8
WINDOW_MAX = 1e-3
# Share of tokens that a relative temperature error of 1 % changes, per unit, measured at V = 8.
CHANGED_PER_TILT = 0.32


def plan(context: Context, vocabulary: int) -> Plan:
    """Full batches of sampled rows at four temperatures until the planned draws are reached."""
    rows, drafts = (64, 2) if context.workload.real else (ROWS, DRAFTS)
    draws = 512 if context.workload.real else context.profile.coupled_draws
    material = context.workload.material(context.seed, vocabulary, torch.float32)
    setting = context.setting(material, drafts=drafts, buckets=(rows,))
    inputs, commands = {}, list[Command]()
    for number in range(math.ceil(draws / (rows * drafts))):
        hidden, anchor = context.workload.rows(
            context.seed + number, material, rows, query_rows(setting)
        )
        heat = torch.tensor(HEATS).repeat(rows // len(HEATS))
        top_k = torch.full((rows,), EVERY_ID)
        inputs[f"{number}"] = as_inputs(setting, hidden, anchor, heat, top_k)
        commands += [Load(f"{number}"), Replay(), Read()]
    case = f"V = {material.vocabulary}"
    return Plan(NAME, case, setting, inputs, tuple(commands), notes={"draws": draws})


def plans(context: Context) -> list[Plan]:
    """V = 8 and V = 128, or the real vocabulary."""
    if context.workload.real:
        return [plan(context, 0)]
    return [plan(context, vocabulary) for vocabulary in (8, 128)]


def ordinary(result: Coupled) -> np.ndarray:
    """Windows that rounding alone opens; those of flushed probabilities are as wide as the gap."""
    return result.windows[result.windows < WINDOW_MAX]


def check(history: History, ledger: Ledger) -> Verdict:
    """Count draws that lost their race by more than rounding, and near ties against their rate."""
    arithmetic = ARITHMETIC[history.description["stages"]]
    draws, gaps, windows, laws = 0, [], [], []
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
        gaps.append(result.gaps)
        windows.append(ordinary(result))
        laws.append(result.laws)
    if draws < history.notes["draws"]:
        return unknown(f"{draws} draws were judged, required: {history.notes['draws']}")
    window = float(np.concatenate(windows).max(initial=0.0))
    near = int((np.concatenate(gaps) <= window).sum())
    rate = float(np.concatenate([near_tie_rate(law, window) for law in laws]).mean())
    alarm = ledger.take("near ties", SHARES["near ties"] * ledger.alpha / CASES_MAX)
    limit = most_hits(draws, rate, alarm)
    if near > limit:
        return violated(
            f"{near} near ties within {window:.3g} in {draws} draws, required at most {limit} "
            f"({draws * rate:.2g} expected): the noise has too few distinct values",
            draws,
            unit="draws",
        )
    missed = hidden_rate(draws)
    effect = (
        f"{missed:.1e} of draws wrong (99 %), as by T {100 * missed / CHANGED_PER_TILT:.2f} % off; "
        f"{near} near ties, {draws * rate:.1e} expected"
    )
    return holds("every draw won its race", draws, effect, "draws")
