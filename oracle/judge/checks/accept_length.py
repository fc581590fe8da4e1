"""How many tokens are committed: the law of the accepted length, for both rules."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...reference import choice, committed, draft, filters, law, logits
from .. import sums
from ..binomial import log_both, rate_seen
from ..budget import ALPHA, SHARES, Ledger
from ..context import Context, as_inputs, constant
from ..history import History
from ..protocol import Setting, Tensors
from ..script import Accept, Command, Load, Plan, Read, Replay
from ..significance import Counts, Floats
from ..verdict import Verdict, holds, unknown, violated
from ..walk import dtype_of

NAME = "accept_length"
TITLE = "acceptance law: how often a block goes on"
CLAIM = "A block goes on past each committed token exactly as often as its rule lets it."
NEEDS = ("DRAWS", "ACCEPTS")
LEDGER = "losslessness"

DRAFTS, VOCABULARY, TEMPERATURE, EVERY_ID = 2, 8, 0.9, 2**30
RULES = {"chain": committed.CHAIN, "block": committed.BLOCK}
# What this check may spend of its line, shared by both rules in both dialects; `lossless` has the
# rest.
PART, CASES = 0.2, 4
REPLAYS_MIN = 16
# The longest block is the rarest: its share is told to twice the share of other checks.
CHANGE = 2.0


def plan(context: Context, rule: str) -> Plan:
    """Every row the same request, every row of it verified."""
    rows = context.profile.rows_max // 4
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(rows,))
    one, anchor = context.workload.rows(context.seed, material, 1, DRAFTS, sharpen=False)
    heat, top_k = constant(rows, TEMPERATURE, EVERY_ID)
    source = torch.Generator().manual_seed(context.seed + 11)
    table = 0.25 * torch.randint(-6, 7, (VOCABULARY, VOCABULARY), generator=source).float()
    hidden = 0.5 * one.expand(rows, -1, -1)
    inputs: dict[str, Any] = {
        "x": as_inputs(setting, hidden, anchor.expand(rows).clone(), heat, top_k),
        "target": {
            "table": table,
            "top_p": torch.ones(rows),
            "verify_len": torch.full((rows,), DRAFTS + 1),
            "prefix_len": torch.zeros(rows, dtype=torch.int64),
        },
    }
    read = Read(only=("tokens",))
    run: tuple[Command, ...] = (Replay(redraw=False), read, Accept("target", rule))
    blocks = context.part(blocks_needed(context, setting, inputs, rule))
    replays = max(REPLAYS_MIN, -(-blocks // rows))
    notes = {"rule": rule}
    return Plan(NAME, f"rule {rule}", setting, inputs, (Load("x"), *run * replays), notes=notes)


def plans(context: Context) -> list[Plan]:
    """Chain and block verification of blocks over 8 ids."""
    if context.workload.real:
        return []
    return [plan(context, rule) for rule in RULES]


def blocks_needed(
    context: Context, setting: dict[str, Any], inputs: dict[str, Any], rule: str
) -> int:
    """Blocks at which every length is seen to be reached CHANGE times the profile's share off."""
    change, each = CHANGE * context.profile.share, alarm_of(ALPHA) / (2 * DRAFTS)
    rates = [float(on.sum()) for on in lengths_law(setting, inputs, rule)[1]]
    blocks = 1024
    while max(rate_seen(blocks, rate, each) / rate for rate in rates) > change:
        blocks += blocks // 8
    return blocks


def alarm_of(alpha: float) -> float:
    """What one case may spend."""
    return PART * SHARES[LEDGER] * alpha / CASES


def lengths_law(
    setting: Setting, loaded: Mapping[str, Tensors], rule: str
) -> tuple[list[Floats], list[Floats]]:
    """The enumerated law of a commit, for each length i from 1 to K.

    Returns [V, .., V] with i axes: P(at least i tokens are committed, and which), and the same for
    at least i + 1 tokens.
    """
    inputs, goal = loaded["x"], loaded["target"]
    drafts, vocabulary = setting["drafts"], setting["vocabulary"]
    rows = logits.draft_rows(inputs["hidden"][:1], drafts)
    base = logits.base_logits(rows, setting["head"], vocabulary)[0]
    heat = choice.clamped(inputs["temperature"][:1])
    anchor = int(inputs["anchor"][0])
    head = draft.vanilla(setting["w1"], setting["w2"])
    steps = law.transitions(base, head, float(heat), dtype_of(setting["step_dtype"]))
    table = goal["table"].double()
    every = torch.ones(vocabulary)
    target = filters.target_law(
        table, heat.expand(vocabulary), (every * EVERY_ID).long(), every.double()
    )

    def q(prefix: law.Prefix) -> torch.Tensor:
        return steps[len(prefix), (anchor, *prefix)[-1]]

    def p(prefix: law.Prefix) -> torch.Tensor:
        return target[(anchor, *prefix)[-1]]

    sizes = (drafts, vocabulary)
    mass = committed.committed(p, q, q, RULES[rule], sizes, lambda _: drafts + 1)
    reached, gone_on = [], []
    for i in range(1, drafts + 1):
        here, on = np.zeros((vocabulary,) * i), np.zeros((vocabulary,) * i)
        for tokens, weight in mass.items():
            if len(tokens) == i:
                here[tokens] += weight
            if len(tokens) == i + 1:
                on[tokens[:-1]] += weight
        reached.append(here)
        gone_on.append(on)
    return reached, gone_on


def rule_of(history: History) -> str:
    """The rule of a case: as it was planned, or as it was played where no note tells it."""
    noted = history.notes.get("rule")
    return str(noted if noted is not None else history.of("accept")[0]["rule"])


def observed(tokens: Counts, lengths: Counts, vocabulary: int, i: int) -> tuple[Counts, Counts]:
    """Blocks that committed i tokens or more, by these tokens, and those of them that went on.

    tokens [N, K + 1], lengths [N]. Returns two arrays [V, .., V] with i axes.
    """
    code = np.zeros(len(tokens), dtype=np.int64)
    for k in range(i):
        code = code * vocabulary + tokens[:, k]
    shape, cells = (vocabulary,) * i, vocabulary**i
    reached = np.bincount(code[lengths >= i], minlength=cells).reshape(shape)
    return reached, np.bincount(code[lengths > i], minlength=cells).reshape(shape)


def gathered(history: History) -> sums.Sums | Verdict:
    """Blocks by their tokens so far, and those that went on; what cannot be is a verdict."""
    events = history.of("accept")
    tokens = torch.cat([event["commit"]["out_tokens"] for event in events]).numpy()
    lengths = torch.cat([event["commit"]["commit_len"] for event in events]).numpy()
    vocabulary, drafts, used = history.setting["vocabulary"], history.setting["drafts"], len(tokens)
    if lengths.min() < 1 or lengths.max() > drafts + 1:
        wrong = int(lengths[(lengths < 1) | (lengths > drafts + 1)][0])
        return violated(f"{wrong} tokens were committed, required: 1 to {drafts + 1}", used)
    inside = np.arange(drafts + 1) < lengths[:, None]
    if ((tokens < 0) | (tokens >= vocabulary))[inside].any():
        return violated("committed tokens lie outside the vocabulary", used, unit="blocks")
    laws = lengths_law(history.setting, history.inputs, rule_of(history))
    found = []
    for i, law_of in enumerate(zip(*laws, strict=True), 1):
        both = np.stack(observed(tokens, lengths, vocabulary, i))
        what = "[reached this length, went on beyond it] by the tokens so far"
        found.append(sums.table(f"length {i}", what, np.stack(law_of), both))
    return tuple(found)


def check(history: History, ledger: Ledger) -> Verdict:
    """Exact two-sided binomials: all blocks, and blocks with the same tokens so far."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict:
    """The answer to counts, wherever they were drawn."""
    alarm, used, drafts = alarm_of(ledger.alpha), int(seen[0].counts[0].sum()), len(seen)
    ledger.take(LEDGER, alarm)
    each = alarm / (2 * drafts)
    changes = []
    laws = lengths_law(history.setting, history.inputs, rule_of(history))
    for i, (here, on, one) in enumerate(zip(*laws, seen, strict=True), 1):
        reached, gone_on = one.counts
        total = int(gone_on.sum())
        whole = float(on.sum())
        log_p = float(log_both(np.array(total), np.array(used), np.array(whole)))
        if log_p <= math.log(each):
            return violated(
                f"{total} of {used} blocks committed {i + 1} tokens or more, expected "
                f"{used * whole:.0f}, p = {math.exp(log_p):.2g}, required > {each:.2g}",
                used,
                unit="blocks",
            )
        open_cells = (here > 0) & (reached > 0)
        rates = np.minimum(on[open_cells] / here[open_cells], 1.0)
        logs = log_both(gone_on[open_cells], reached[open_cells], rates)
        worst = int(logs.argmin())
        if float(logs[worst]) <= math.log(each / here.size):
            return violated(
                f"after {np.argwhere(open_cells)[worst].tolist()}: {gone_on[open_cells][worst]} of "
                f"{reached[open_cells][worst]} blocks went on, expected "
                f"{reached[open_cells][worst] * rates[worst]:.1f}, p = "
                f"{math.exp(logs[worst]):.2g}, required > {each / here.size:.2g}",
                used,
                unit="blocks",
            )
        changes.append(rate_seen(used, whole, each) / whole)
    if not math.isfinite(max(changes)):
        return unknown("no change of the accepted length would have been seen", used)
    effect = f"a length reached {100 * max(changes):.2g} % too often or too rarely (95 %)"
    mean = f"{1 + sum(int(one.counts[1].sum()) for one in seen) / used:.3f} tokens a block"
    return holds(f"lengths follow the law of the rule: {mean}", used, effect, "blocks")
