"""Tokens stay in the vocabulary, whatever the logits hold."""

from typing import Any

import torch

from ..budget import Ledger
from ..context import Context, as_inputs, constant, query_rows
from ..history import History
from ..script import Plan, block
from ..verdict import Verdict, holds, violated

NAME = "bounds"
TITLE = "id bounds, padding, masks, NaN"
CLAIM = "Every token is a real id: no padded column, no masked id, no sentinel, NaN included."
NEEDS: tuple[str, ...] = ()

ROWS, VOCABULARY, PADDING, DRAFTS = 8, 50, 14, 3
EVERY_ID = 2**30


def designed(context: Context, scale: float) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Weights with a positive embedding, so that an infinite row meets no zero."""
    material = context.workload.material(context.seed, VOCABULARY, torch.float32, PADDING)
    head = material.head.clone()
    head[VOCABULARY:] = scale
    return material, head, material.w1.abs() + 0.25


def plan(context: Context, case: str, head: torch.Tensor, allowed: torch.Tensor, flag: int) -> Plan:
    """One case: the same weights for greedy, hot and cold rows."""
    material, _, w1 = designed(context, 8.0)
    setting = context.setting(material, drafts=DRAFTS, buckets=(4, ROWS))
    setting["head"] = head
    if context.family == "dspark":
        setting["w1"] = w1
    hidden = torch.ones(ROWS, query_rows(setting), head.shape[1])
    anchor = torch.arange(ROWS)
    heat, _ = constant(ROWS, 1.0, EVERY_ID)
    heat[ROWS // 2 :] = 50.0
    top_k = torch.tensor([1, EVERY_ID] * (ROWS // 2))
    inputs = {"x": as_inputs(setting, hidden, anchor, heat, top_k)}
    commands = block("x") * 4
    return Plan(NAME, case, setting, inputs, commands, notes={"allowed": allowed, "flag": flag})


def plans(context: Context) -> list[Plan]:
    """Padding, one masked half, one id left, one NaN column, all NaN, nothing finite."""
    if context.workload.real:
        return []
    _, padded, _ = designed(context, 8.0)
    everything = torch.ones(VOCABULARY, dtype=torch.bool)
    cases = [plan(context, "padded columns at +192", padded, everything, 0)]
    half = everything.clone()
    half[::2] = False
    lone = ~everything
    lone[VOCABULARY - 1] = True
    for case, allowed in (("every second id masked", half), ("one id left", lone)):
        head = padded.clone()
        head[:VOCABULARY][~allowed] = -torch.inf
        cases.append(plan(context, case, head, allowed, 0))
    nan = padded.clone()
    nan[7] = torch.nan
    seven = ~everything
    seven[7] = True
    cases.append(plan(context, "one NaN column", nan, seven, 1))
    first = ~everything
    first[0] = True
    nothing = padded.clone()
    nothing[:VOCABULARY] = torch.nan
    cases.append(plan(context, "all NaN", nothing, first, 1))
    nothing = padded.clone()
    nothing[:VOCABULARY] = -torch.inf
    cases.append(plan(context, "nothing finite", nothing, first, 2))
    return cases


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare every token with the ids its row allows, and flags where they are claimed."""
    allowed, flag = history.notes["allowed"], history.notes["flag"]
    flagged = "FLAGS" in history.description["abilities"]
    used = 0
    for number, event in enumerate(history.of("read")):
        tokens = event["outputs"]["tokens"]
        used += tokens.numel()
        where = f"block {number} of case {history.case!r}"
        outside = (tokens < 0) | (tokens >= VOCABULARY)
        if bool(outside.any()):
            row, step = outside.nonzero()[0].tolist()
            return violated(
                f"token of row {row}, step {step}, {where}: observed {int(tokens[row, step])}, "
                f"required an id in [0, {VOCABULARY})",
                used,
            )
        if flag and not flagged:
            continue
        wrong = ~allowed[tokens]
        if bool(wrong.any()):
            row, step = wrong.nonzero()[0].tolist()
            return violated(
                f"token of row {row}, step {step}, {where}: observed {int(tokens[row, step])}, "
                f"required one of {int(allowed.sum())} ids that are allowed there",
                used,
            )
        if flagged and bool((event["outputs"]["flags"] != flag).any()):
            seen = event["outputs"]["flags"].unique().tolist()
            return violated(f"flags of {where}: observed {seen}, required {flag} everywhere", used)
    return holds("every token was allowed", used, "any single occurrence")
