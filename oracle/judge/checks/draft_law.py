"""Goodness of fit: drafted tokens follow the reference's law, given the token before."""

import math
from typing import Any

import numpy as np
import torch

from ...reference import choice, draft, law, logits
from .. import significance
from ..budget import Ledger
from ..context import Context, Size, as_inputs, constant
from ..history import History
from ..script import Command, Load, Plan, Read, Replay
from ..significance import CASE_ALARM, STAGES, Fit, Pools
from ..verdict import Pending, Verdict, holds, unknown, violated
from ..walk import dtype_of

NAME = "draft_law"
LEDGER = "draw law"
TITLE = "Gumbel law: chi-square goodness of fit"
CLAIM = "Sampled tokens follow softmax(step logits / T), each step given the token before it."
NEEDS = ("DRAWS",)

VOCABULARY, DRAFTS, EVERY_ID = 16, 3, 2**30
# Stage two draws this many times as many as stage one (99 % power over both stages).
CONFIRMATION = 1.6


def size_of(context: Context) -> Size:
    """One step at the real vocabulary, a block of three at a small one."""
    if context.workload.real:
        return Size(rows=64, drafts=1, vocabulary=0)
    return Size(rows=context.profile.law_rows, drafts=DRAFTS, vocabulary=VOCABULARY)


def plan(context: Context, size: Size, replays: int, temperature: float = 1.0) -> Plan:
    """Every row the same request; stage two repeats it with fresh noise, same recording."""
    rows, drafts = size.rows, size.drafts
    material = context.workload.material(context.seed, size.vocabulary, size.dtype, size.padding)
    setting = context.setting(material, drafts=drafts, buckets=(rows,))
    one, anchor = context.workload.rows(context.seed, material, 1, drafts, sharpen=False)
    hidden = one.expand(rows, -1, -1).clone()
    heat, top_k = constant(rows, temperature, EVERY_ID)
    inputs = {"x": as_inputs(setting, hidden, anchor.expand(rows).clone(), heat, top_k)}
    run: tuple[Command, ...] = (Replay(redraw=False), Read())
    first = (Load("x"), *run * replays)
    second = run * math.ceil(replays * CONFIRMATION)
    case = f"V = {material.vocabulary}, T = {temperature:g}"
    notes = {"temperature": temperature}
    return Plan(NAME, case, setting, inputs, first, second, notes)


def plans(context: Context) -> list[Plan]:
    """One case a combination; it holds one test a step."""
    replays = 32 if context.workload.real else context.profile.law_replays
    return [plan(context, size_of(context), replays)]


def tables(history: History) -> list[np.ndarray]:
    """Exact joint laws of (token before, token), one table a step; a vector for a large V."""
    setting, inputs = history.setting, history.inputs["x"]
    rows = logits.draft_rows(inputs["hidden"][:1], setting["drafts"])
    base = logits.base_logits(rows, setting["head"], setting["vocabulary"])[0]
    bias = draft.vanilla(setting["w1"], setting["w2"])
    dtype, anchor = dtype_of(setting["step_dtype"]), inputs["anchor"][:1]
    heat = choice.clamped(inputs["temperature"][:1])
    if setting["drafts"] == 1:
        step = choice.step_logits(base[:1], bias(anchor), dtype)
        return [choice.law(step, heat).numpy()]
    steps = law.transitions(base, bias, float(heat), dtype)
    joint = law.pair_laws(steps, int(anchor))
    return [joint[0][int(anchor)][None].numpy(), *(table.numpy() for table in joint[1:])]


def counts(history: History, stage: int) -> list[np.ndarray]:
    """Observed cells of each step's table, flattened, of one stage."""
    vocabulary = history.setting["vocabulary"]
    boundary = [i for i, e in enumerate(history.events) if e["verb"] == "stage"]
    start, stop = (0, boundary[0]) if boundary and stage == 1 else (0, len(history.events))
    if stage == 2:
        start = boundary[0]
    blocks = [e["outputs"]["tokens"] for e in history.events[start:stop] if e["verb"] == "read"]
    tokens = torch.cat(blocks).numpy()
    cells = [tokens[:, 0]]
    cells += [tokens[:, k - 1] * vocabulary + tokens[:, k] for k in range(1, tokens.shape[1])]
    sizes = [vocabulary] + [vocabulary**2] * (len(cells) - 1)
    return [np.bincount(c, minlength=size) for c, size in zip(cells, sizes, strict=True)]


def fits(history: History, stage: int) -> list[tuple[Pools, Fit, float]]:
    """One fit a step: pools fixed from law and n, the statistic, and the smallest tilt seen."""
    level = STAGES[stage - 1]
    result = []
    for table, seen in zip(tables(history), counts(history, stage), strict=True):
        pools = significance.pool(table.ravel(), int(seen.sum()))
        fitted = significance.fit(pools, seen.astype(np.int64), level)
        weights = table.sum(axis=1)
        present = weights > 0
        conditional = np.where(present[:, None], table / np.maximum(weights, 1e-300)[:, None], 1.0)
        with np.errstate(divide="ignore"):
            log_law = np.log(conditional)
        tilt = significance.smallest_tilt(pools, log_law, level, weights=weights)
        result.append((pools, fitted, tilt))
    return result


def described(step: int, pools: Pools, fitted: Fit) -> dict[str, Any]:
    """What is printed and stored of one fit."""
    return {
        "step": step,
        "statistic": fitted.statistic,
        "value": fitted.value,
        "other": fitted.other,
        "degrees": fitted.degrees,
        "p_value": fitted.p_value,
        "level": fitted.level,
        "least_expected": fitted.least_expected,
        "pools": len(pools.probability),
        "draws": pools.draws,
    }


def check(history: History, ledger: Ledger) -> Verdict | Pending:
    """Stage one at 1e-3; only if it fires, fresh draws at 1e-6 decide."""
    tokens = torch.cat([event["outputs"]["tokens"] for event in history.of("read")])
    if bool(((tokens < 0) | (tokens >= history.setting["vocabulary"])).any()):
        return violated("tokens lie outside the vocabulary", tokens.numel(), unit="draws")
    stage = history.stages
    fitted = fits(history, stage)
    if stage == 1:
        for _ in fitted:
            ledger.take("draw law", CASE_ALARM)
    alarmed = [(k, p, f) for k, (p, f, _) in enumerate(fitted) if f.rejects]
    draws = sum(pools.draws for pools, _, _ in fitted)
    evidence = [described(k, p, f) for k, (p, f, _) in enumerate(fitted)]
    if alarmed and stage == 1:
        step, _, fit = alarmed[0]
        return Pending(f"step {step}: {fit.statistic} p = {fit.p_value:.2g} below {fit.level}")
    if alarmed:
        step, _, fit = alarmed[0]
        return violated(
            f"tokens of step {step} do not follow the law: {fit.statistic} = {fit.value:.6g} on "
            f"{fit.degrees} degrees, p = {max(fit.p_value, 1e-300):.2g} on fresh draws, "
            f"required >= {fit.level}",
            draws,
            unit="draws",
            fits=evidence,
        )
    worst = max(tilt for _, _, tilt in fitted)
    if not math.isfinite(worst):
        return unknown("no temperature error would have been seen with these draws", draws)
    second = " (confirmed by fresh draws)" if stage == 2 else ""
    return holds(
        f"every step follows its law{second}",
        draws,
        f"T off by {100 * worst:.2g} % (97.5 %); blind inside a pool, not valid below 1e-6",
        "draws",
        fits=evidence,
        alarm=CASE_ALARM * len(fitted),
    )
