"""The exported law is the one the tokens came from."""

import numpy as np
import torch

from .. import sums
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..script import Command, Load, Plan, Read, Replay
from ..seeds import seed_of
from ..significance import CASE_ALARM, STAGES, equal_counts, smallest_shift
from ..transform import transformed
from ..verdict import Pending, Verdict, holds, violated

NAME = "claim"
TITLE = "claimed law q: what is exported is what was drawn from"
CLAIM = "Tokens follow softmax(exported step logits / exported T), whatever those are."
NEEDS = ("DRAWS", "CLAIMS")
LEDGER = "claimed law"

ROWS, DRAFTS, VOCABULARY, REPLAYS, BINS = 512, 3, 40, 16, 64
HEATS = (0.5, 0.8, 1.0, 1.6)
EVERY_ID = 2**30


def plans(context: Context) -> list[Plan]:
    """Many different requests; stage two replays them with fresh noise."""
    real = context.workload.real
    rows, replays = (64, context.part(4)) if real else (ROWS, context.part(REPLAYS))
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(rows,))
    hidden, anchor = context.workload.rows(context.seed, material, rows, query_rows(setting))
    heat = torch.tensor(HEATS).repeat(rows // len(HEATS))
    top_k = torch.full((rows,), EVERY_ID)
    inputs = {"x": as_inputs(setting, hidden, anchor, heat, top_k)}
    run: tuple[Command, ...] = (Replay(redraw=False), Read())
    case = f"V = {material.vocabulary}"
    seeds = [
        seed_of(NAME, f"{context.label}: {case}", "transform", stage, context.shard, context.seed)
        for stage in (1, 2)
    ]
    notes = {"seed": context.seed, "seeds": seeds}
    return [Plan(NAME, case, setting, inputs, (Load("x"), *run * replays), run * replays, notes)]


def integral_transform(history: History, stage: int, order: str) -> np.ndarray:
    """Randomised probability integral transform of every token, one band a temperature.

    U = F(x-) + W p(x) is uniform and independent when the exported law is the one drawn from. W
    comes from the judge's own seed, another one for each stage and order; histories that name only
    the seed of their run are judged with the W they were stored for. The transform of rows at
    temperature number i of HEATS fills the band [i, i + 1) / len(HEATS), so that errors of opposite
    sign at two temperatures do not cancel.
    """
    seeds = history.notes.get("seeds")
    entropy = [seeds[stage - 1]] if seeds else [history.notes["seed"], stage]
    draw = np.random.default_rng([*entropy, len(order)])
    boundary = [i for i, e in enumerate(history.events) if e["verb"] == "stage"]
    events = history.events[: boundary[0]] if boundary else history.events
    if stage > 1:
        events = history.events[boundary[0] :]
    parts = []
    for event in events:
        if event["verb"] != "read":
            continue
        outputs = event["outputs"]
        heat = outputs["temperature"].double()[:, None, None]
        law = torch.softmax(outputs["step_logits"].double() / heat, -1)
        picked = outputs["tokens"]
        w = torch.from_numpy(draw.random(picked.shape))
        u = transformed(law, picked, order, w)
        band = (torch.arange(len(u)) % len(HEATS)).unsqueeze(1)
        parts.append(((band + u) / len(HEATS)).flatten().numpy())
    return np.concatenate(parts)


def gathered(history: History) -> sums.Sums | Verdict:
    """Bins of the transform in each order, of the last stage."""
    tokens = torch.cat([e["outputs"]["tokens"] for e in history.of("read")])
    if bool(((tokens < 0) | (tokens >= history.setting["vocabulary"])).any()):
        return violated("tokens lie outside the vocabulary", tokens.numel(), unit="draws")
    found = []
    for order in ("probability", "id"):
        u = integral_transform(history, history.stages, order)
        bins = np.bincount((u * BINS).astype(np.int64), minlength=BINS)
        what = f"[bin of the transform in order of {order}]"
        found.append(sums.table(order, what, np.full(BINS, 1 / BINS), bins))
    return tuple(found)


def check(history: History, ledger: Ledger) -> Verdict | Pending:
    """64 equal bins of the transform in two orders, G; 1e-3, then fresh draws at 1e-6."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict | Pending:
    """The answer to counts, wherever they were drawn."""
    level = STAGES[history.stages - 1]
    if history.stages == 1:
        ledger.take(LEDGER, len(seen) * CASE_ALARM)
    for one in seen:
        order, draws = one.law, int(one.counts.sum())
        fitted = equal_counts(one.counts, level)
        if fitted.rejects and history.stages == 1:
            return Pending(f"G in order of {order}: p = {fitted.p_value:.2g} below {level}")
        if fitted.rejects:
            return violated(
                f"tokens do not follow the exported law, in order of {order}: G = "
                f"{fitted.value:.6g} on {fitted.degrees} degrees, p = "
                f"{max(fitted.p_value, 1e-300):.2g} on fresh draws, required >= {level}",
                draws,
                unit="draws",
            )
    draws = int(seen[0].counts.sum())
    share = smallest_shift(draws, BINS, level)
    effect = f"{100 * share:.2g} % of draws moved into one of {BINS} bins of their law (97.5 %)"
    return holds("tokens follow the exported law", draws, effect, "draws")
