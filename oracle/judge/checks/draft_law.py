"""Goodness of fit: drafted tokens follow the reference's law, given the token before."""

import math

import numpy as np
import torch

from ...reference import choice, draft, law, logits
from .. import sums
from ..budget import ALPHA, SHARES, Ledger
from ..context import Context, Size, as_inputs, batches, constant
from ..goodness import Table, bank_of, draws_for, judge
from ..history import History
from ..protocol import Setting, Tensors
from ..script import Command, Load, Plan, Read, Replay
from ..significance import CASE_ALARM
from ..verdict import Pending, Verdict, holds, unknown, violated
from ..walk import dtype_of
from . import wide

NAME = "draft_law"
LEDGER = ("draw law", "exact law")
TITLE = "Gumbel law: chi-square, likelihood ratios and exact binomials"
CLAIM = "Sampled tokens follow softmax(step logits / T), each step given the token before it."
NEEDS = ("DRAWS",)

VOCABULARY, DRAFTS, EVERY_ID = 16, 3, 2**30
# Stage two draws this many times as many as stage one (99 % power over both stages).
CONFIRMATION = 1.6
TABLES_MAX = 32
# Rows that are counted at once: as many as fill a GPU, and as many as a cache of a CPU holds.
COUNTED_ROWS = {torch.float16: 2**18, torch.float32: 2**13}


def size_of(context: Context) -> Size:
    """One step at the real vocabulary, a block of three at a small one."""
    if context.workload.real:
        return Size(rows=64, drafts=1, vocabulary=0)
    return Size(rows=context.profile.rows_max, drafts=DRAFTS, vocabulary=VOCABULARY)


def plan(context: Context, size: Size, replays: int = 0, temperature: float = 1.0) -> Plan:
    """Every row the same request; stage two repeats it with fresh noise, same recording.

    replays of size.rows rows; 0 for as many draws as show the profile's error of T, in batches of
    at most size.rows.
    """
    drafts = size.drafts
    material = context.workload.material(context.seed, size.vocabulary, size.dtype, size.padding)
    setting = context.setting(material, drafts=drafts, buckets=(size.rows,))
    one, anchor = context.workload.rows(context.seed, material, 1, drafts, sharpen=False)
    rows = size.rows
    if not replays:
        single = as_inputs(setting, one, anchor, *constant(1, temperature, EVERY_ID))
        alarm = SHARES["exact law"] * ALPHA / TABLES_MAX
        joint = [table for table, _, _ in laws(setting, single)]
        draws = context.part(draws_for(joint, context.profile.tilt, alarm))
        rows, replays = batches(draws, size.rows)
        setting["buckets"] = (rows,)
    hidden = one.expand(rows, -1, -1).clone()
    heat, top_k = constant(rows, temperature, EVERY_ID)
    inputs = {"x": as_inputs(setting, hidden, anchor.expand(rows).clone(), heat, top_k)}
    run: tuple[Command, ...] = (Replay(redraw=False), Read(only=("tokens",)))
    first = (Load("x"), *run * replays)
    second = run * math.ceil(replays * CONFIRMATION)
    case = f"V = {material.vocabulary}, T = {temperature:g}"
    notes = {"temperature": temperature}
    return Plan(NAME, case, setting, inputs, first, second, notes)


def plans(context: Context) -> list[Plan]:
    """One test a step; where the sampler counts, as many again as it can, and pairs of draws."""
    found = [plan(context, size_of(context), context.part(32) if context.workload.real else 0)]
    if wide.tokens_wanted(context):
        # Steps in float16 have kernels on every GPU; on the grid of these inputs they are exact.
        dtype = torch.float16 if context.device.startswith("cuda") else torch.float32
        rows = min(context.profile.rows_max, COUNTED_ROWS[dtype])
        one = plan(context, Size(rows, DRAFTS, VOCABULARY, dtype=dtype), replays=1)
        found.append(wide.counted(one, context, CONFIRMATION))
    return found


def laws(setting: Setting, inputs: Tensors) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """One (joint law, step logits over T, T) a step, each table [token before, token].

    The first step has the anchor alone before it, and so one row.
    """
    rows = logits.draft_rows(inputs["hidden"][:1], setting["drafts"])
    base = logits.base_logits(rows, setting["head"], setting["vocabulary"])[0]
    bias = draft.vanilla(setting["w1"], setting["w2"])
    dtype, anchor = dtype_of(setting["step_dtype"]), inputs["anchor"][:1]
    heat = choice.clamped(inputs["temperature"][:1])
    first = choice.step_logits(base[:1], bias(anchor), dtype)
    if setting["drafts"] == 1:
        return [(choice.law(first, heat).numpy(), (first / heat).numpy(), float(heat))]
    steps = law.transitions(base, bias, float(heat), dtype)
    joint = law.pair_laws(steps, int(anchor))
    every = bias(torch.arange(setting["vocabulary"]))
    scaled = [choice.step_logits(each.expand_as(every), every, dtype) / heat for each in base]
    result = [(joint[0][int(anchor)][None].numpy(), (first / heat).numpy(), float(heat))]
    for table, values in zip(joint[1:], scaled[1:], strict=True):
        result.append((table.numpy(), values.numpy(), float(heat)))
    return result


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


def tables(history: History, seen: list[np.ndarray]) -> list[Table]:
    """Each step's law, and the counts of its cells, of any shape."""
    if history.notes.get("counted"):
        named = wide.tables(laws(history.setting, history.inputs["x"]))
        return [
            Table(law, flat.astype(np.int64).reshape(law.shape), scaled, heat)
            for (_, _, law, scaled, heat), flat in zip(named, seen, strict=True)
        ]
    return [
        Table(joint, flat.astype(np.int64).reshape(joint.shape), scaled, heat)
        for (joint, scaled, heat), flat in zip(
            laws(history.setting, history.inputs["x"]), seen, strict=True
        )
    ]


def gathered_wide(history: History) -> sums.Sums | Verdict:
    """Counts that the sampler made, of the last stage, once they are known to be those of draws."""
    if (doubt := wide.unbelievable(history)) is not None:
        return doubt
    flat = wide.seen(history)
    if isinstance(flat, str):
        return violated(flat, 1, unit="draws")
    named = wide.tables(laws(history.setting, history.inputs["x"]))
    return tuple(
        sums.table(name, what, one.law, one.counts, bank_of(one))
        for (name, what, *_), one in zip(named, tables(history, flat), strict=True)
    )


def gathered(history: History) -> sums.Sums | Verdict:
    """Counts of each step's table, of the last stage; a token that is no id needs no statistics."""
    if history.notes.get("counted"):
        return gathered_wide(history)
    tokens = torch.cat([event["outputs"]["tokens"] for event in history.of("read")])
    if bool(((tokens < 0) | (tokens >= history.setting["vocabulary"])).any()):
        return violated("tokens lie outside the vocabulary", tokens.numel(), unit="draws")
    return tuple(
        sums.table(f"step {k}", "[token before, token]", one.law, one.counts, bank_of(one))
        for k, one in enumerate(tables(history, counts(history, history.stages)))
    )


def check(history: History, ledger: Ledger) -> Verdict | Pending:
    """Bank and scan decide at once; chi-square at 1e-3, then on fresh draws at 1e-6."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict | Pending:
    """The answer to counts, wherever they were drawn."""
    alarm = SHARES["exact law"] * ledger.alpha / TABLES_MAX
    found = tables(history, [one.counts for one in seen])
    judged = [judge(each, history.stages, alarm) for each in found]
    if history.stages == 1:
        for _ in judged:
            ledger.take("draw law", CASE_ALARM)
            ledger.take("exact law", alarm)
    # Pairs of rows and of replays are made of the tokens that the steps have counted.
    steps = judged[: history.setting["drafts"]]
    draws = sum(one.pools.draws for one in steps)
    evidence = [one.described(k) for k, one in enumerate(judged)]
    names = [one.law for one in seen]
    for name, one in zip(names, judged, strict=True):
        if one.complaint:
            reason = f"tokens of {name} do not follow the law: {one.complaint}"
            return violated(reason, draws, unit="draws", fits=evidence)
    for name, one in zip(names, judged, strict=True):
        fit = one.fit
        if fit.rejects and history.stages == 1:
            return Pending(f"{name}: {fit.statistic} p = {fit.p_value:.2g} below {fit.level}")
        if fit.rejects:
            return violated(
                f"tokens of {name} do not follow the law: {fit.statistic} = {fit.value:.6g} "
                f"on {fit.degrees} degrees, p = {max(fit.p_value, 1e-300):.2g} on fresh draws, "
                f"required >= {fit.level}",
                draws,
                unit="draws",
                fits=evidence,
            )
    weakest = max(steps, key=lambda one: one.tilt)
    if not math.isfinite(weakest.tilt):
        return unknown("no temperature error would have been seen with these draws", draws)
    second = " (confirmed by fresh draws)" if history.stages == 2 else ""
    masses = [one.exact.mass for one in judged if one.exact is not None]
    what = "id" if len(judged) == 1 else "pair"
    lost = f"; a lost {what} of mass {max(masses):.2g} (scan)" if masses else ""
    lost += f"; {wide.effect()}" if history.notes.get("counted") else ""
    return holds(
        f"every step follows its law{second}",
        draws,
        f"{weakest.effect}{lost}",
        "draws",
        fits=evidence,
        alarm=(CASE_ALARM + alarm) * len(judged),
    )
