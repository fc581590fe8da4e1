"""Losslessness: committed tokens follow the target law, through the real noise and coins."""

from typing import Any

import numpy as np
import torch

from ...reference import choice, filters, law
from .. import significance, sums
from ..budget import ALPHA, SHARES, Ledger
from ..context import Context, as_inputs, batches, constant
from ..goodness import Table, bank_of, draws_for, judge
from ..history import History
from ..script import Accept, Command, Load, Plan, Read, Replay
from ..seeds import seed_of
from ..significance import CASE_ALARM, STAGES
from ..verdict import Pending, Verdict, holds, violated

NAME = "lossless"
TITLE = "losslessness at T > 0: committed tokens follow the target"
CLAIM = "Committed tokens follow the target law given what was committed before them."
NEEDS = ("DRAWS", "ACCEPTS")
LEDGER = "losslessness"

DRAFTS, VOCABULARY, TEMPERATURE, EVERY_ID = 2, 8, 0.9, 2**30
CONFIRMATION = 1.6
TABLES_MAX = 48
# Of the ledger line, what bank and scan have; chi-square has the rest.
EXACT_SHARE = 0.5


def plan(context: Context, rule: str, top_p: float, sizes: tuple[int, int] | None = None) -> Plan:
    """Every row the same request; the target's law depends on the token before.

    sizes rows and replays; None for as many as show twice the profile's error of T.
    """
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    one, anchor = context.workload.rows(context.seed, material, 1, DRAFTS, sharpen=False)
    source = torch.Generator().manual_seed(context.seed + 7)
    table = 0.25 * torch.randint(-6, 7, (VOCABULARY, VOCABULARY), generator=source).float()
    rows, replays = sizes or sizes_for(context, table, top_p, int(anchor))
    setting = context.setting(material, drafts=DRAFTS, buckets=(rows,))
    heat, top_k = constant(rows, TEMPERATURE, EVERY_ID)
    goal = {
        "table": table,
        "top_p": torch.full((rows,), top_p),
        "verify_len": torch.full((rows,), DRAFTS + 1),
        "prefix_len": torch.zeros(rows, dtype=torch.int64),
    }
    hidden = one.expand(rows, -1, -1).clone()
    inputs = {
        "x": as_inputs(setting, hidden, anchor.expand(rows).clone(), heat, top_k),
        "target": goal,
    }
    read = Read(only=("tokens",))
    run: tuple[Command, ...] = (Replay(redraw=False), read, Accept("target", rule))
    second = run * int(replays * CONFIRMATION)
    case = f"rule {rule}, top-p {top_p:g}"
    seeds = [
        seed_of(NAME, f"{context.label}: {case}", "completion", stage, context.shard, context.seed)
        for stage in (1, 2)
    ]
    notes = {"seed": context.seed, "seeds": seeds}
    return Plan(NAME, case, setting, inputs, (Load("x"), *run * replays), second, notes)


def sizes_for(context: Context, table: torch.Tensor, top_p: float, anchor: int) -> tuple[int, int]:
    """Rows and replays after which the bank finds the profile's error of the target's T."""
    heat, top_k = constant(VOCABULARY, TEMPERATURE, EVERY_ID)
    kept = torch.full((VOCABULARY,), top_p, dtype=torch.float64)
    steps = filters.target_law(table.double(), choice.clamped(heat), top_k, kept)
    chain = steps.unsqueeze(0).expand(DRAFTS + 1, -1, -1)
    joint = [each.numpy() for each in law.pair_laws(chain, anchor)]
    alarm = EXACT_SHARE * SHARES[LEDGER] * ALPHA / TABLES_MAX
    draws = draws_for(joint, context.profile.target_tilt, alarm)
    return batches(context.part(draws), context.profile.rows_max // 4)


def plans(context: Context) -> list[Plan]:
    """Chain, block verification, and chain under top-p."""
    if context.workload.real:
        return []
    return [plan(context, "chain", 1.0), plan(context, "block", 1.0), plan(context, "chain", 0.85)]


def target_steps(history: History) -> torch.Tensor:
    """The target's law after its filters, given each token before: [V, V] float64."""
    inputs, goal = history.inputs["x"], history.inputs["target"]
    vocabulary = history.setting["vocabulary"]
    heat = choice.clamped(inputs["temperature"][:1]).expand(vocabulary)
    top_k = inputs["top_k"][:1].expand(vocabulary)
    top_p = goal["top_p"][:1].double().expand(vocabulary)
    return filters.target_law(goal["table"].double(), heat, top_k, top_p)


def completed(history: History, stage: int, steps: np.ndarray) -> np.ndarray:
    """Every commit completed to K + 1 tokens by reference draws; the block then has an exact law.

    The completion draws from the judge's own seed, another one for each stage; histories that
    name only the seed of their run are completed as they were when they were stored.
    """
    seeds = history.notes.get("seeds")
    draw = np.random.default_rng(seeds[stage - 1] if seeds else [history.notes["seed"], 5, stage])
    boundary = [i for i, e in enumerate(history.events) if e["verb"] == "stage"]
    events = history.events[: boundary[0]] if boundary else history.events
    if stage > 1:
        events = history.events[boundary[0] :]
    commits: list[Any] = [e["commit"] for e in events if e["verb"] == "accept"]
    blocks = [commit["out_tokens"].numpy().copy() for commit in commits]
    lengths = [commit["commit_len"].numpy() for commit in commits]
    cumulated = steps.cumsum(axis=1)
    for k in range(1, blocks[0].shape[1]):
        # Block by block, since a table of all rows at once outgrows memory.
        for tokens, length in zip(blocks, lengths, strict=True):
            open_rows = np.flatnonzero(length <= k)
            before = tokens[open_rows, k - 1]
            u = draw.random(len(open_rows))[:, None]
            drawn = (cumulated[before] <= u * cumulated[before, -1:]).sum(axis=1)
            tokens[open_rows, k] = drawn
    return np.concatenate(blocks)


def pair_laws(history: History) -> list[np.ndarray]:
    """The law of each pair (token before, committed token), from the first token on."""
    steps, anchor = target_steps(history), int(history.inputs["x"]["anchor"][0])
    chain = steps.unsqueeze(0).expand(history.setting["drafts"] + 1, -1, -1)
    return [joint.numpy() for joint in law.pair_laws(chain, anchor)]


def tables(history: History, stage: int) -> list[Table]:
    """Law and counts of each pair (token before, committed token)."""
    steps = target_steps(history)
    vocabulary = steps.shape[0]
    tokens = completed(history, stage, steps.numpy())
    before = np.full(len(tokens), int(history.inputs["x"]["anchor"][0]))
    result = []
    for k, joint in enumerate(pair_laws(history)):
        seen = np.bincount(before * vocabulary + tokens[:, k], minlength=vocabulary**2)
        observed = seen.astype(np.int64).reshape(vocabulary, vocabulary)
        result.append(Table(joint, observed, temperature=TEMPERATURE))
        before = tokens[:, k]
    return result


def impossible(history: History, pairs: list[Table]) -> str:
    """A sentence when something was committed that no correct sampler commits, else ''."""
    commits = [event["commit"] for event in history.of("accept")]
    if bool((torch.cat([commit["commit_len"] for commit in commits]) < 1).any()):
        return "a verified request committed nothing, required: one token or more"
    for k, table in enumerate(pairs):
        cells = np.flatnonzero((table.law == 0) & (table.counts > 0))
        if len(cells):
            token = int(cells[0]) % history.setting["vocabulary"]
            return f"committed token {k}: observed {token}, which has probability 0"
    return ""


def gathered(history: History) -> sums.Sums | Verdict:
    """Counts of each pair, of the last stage; what no correct sampler commits is a verdict."""
    commits = [event["commit"] for event in history.of("accept")]
    out = torch.cat([commit["out_tokens"] for commit in commits])
    lengths = torch.cat([commit["commit_len"] for commit in commits]).numpy()
    if int(out.max()) >= history.setting["vocabulary"]:
        return violated(f"token {int(out.max())} was committed, outside the vocabulary", 0)
    pairs = tables(history, history.stages)
    wrong = impossible(history, pairs)
    if wrong:
        return violated(wrong, out.numel(), unit="tokens")
    found = [
        sums.table(f"token {k}", "[token before, token]", one.law, one.counts, bank_of(one))
        for k, one in enumerate(pairs)
    ]
    long = np.bincount(lengths, minlength=out.shape[1] + 1)
    return (*found, sums.Sum("lengths", "[tokens committed]", "", long))


def check(history: History, ledger: Ledger) -> Verdict | Pending:
    """Bank and scan decide at once; chi-square at 1e-3, then on fresh draws at 1e-6."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict | Pending:
    """The answer to counts, wherever they were drawn."""
    stage, draws = history.stages, sum(int(one.counts.sum()) for one in seen[:-1])
    pairs = [
        Table(joint, one.counts, temperature=TEMPERATURE)
        for joint, one in zip(pair_laws(history), seen[:-1], strict=True)
    ]
    mean = float((seen[-1].counts * np.arange(seen[-1].counts.size)).sum() / seen[-1].counts.sum())
    alarm = EXACT_SHARE * SHARES[LEDGER] * ledger.alpha / TABLES_MAX
    if stage == 1:
        for _ in pairs:
            ledger.take(LEDGER, CASE_ALARM + alarm)
    judged = [judge(table, stage, alarm) for table in pairs]
    for k, one in enumerate(judged):
        if one.complaint:
            reason = f"committed token {k} does not follow the target law: {one.complaint}"
            return violated(reason, draws, unit="tokens", fits=[one.described(k)])
    for k, one in enumerate(judged):
        fit = one.fit
        if fit.rejects and stage == 1:
            return Pending(f"committed token {k}: {fit.statistic} p = {fit.p_value:.2g}")
        if fit.rejects:
            return violated(
                f"committed token {k} does not follow the target law: {fit.statistic} = "
                f"{fit.value:.6g} on {fit.degrees} degrees, p = {max(fit.p_value, 1e-300):.2g} on "
                f"fresh draws, required >= {fit.level}",
                draws,
                unit="tokens",
            )
    last = judged[-1]
    needed = significance.noncentrality(last.fit.degrees, STAGES[0], significance.MISS)
    distance = (needed / (draws / len(judged))) ** 0.5
    tilt = max(judged, key=lambda one: one.tilt).effect
    masses = [one.exact.mass for one in judged if one.exact is not None]
    lost = f"; a lost pair of mass {max(masses):.2g} (scan)" if masses else ""
    effect = f"target {tilt}; a law off by {distance:.2g} (root chi-square){lost}"
    return holds(
        f"committed tokens follow the target law; mean commit {mean:.2f}", draws, effect, "tokens"
    )
