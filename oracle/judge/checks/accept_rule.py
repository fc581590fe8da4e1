"""Same coins, same commit: every accept path against the reference, row by row."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...reference import acceptance, choice, filters
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..continuity import NoiseTrail
from ..history import History
from ..protocol import Tensors
from ..script import Accept, Command, Load, Observe, Plan, Read, Replay
from ..verdict import Verdict, holds, not_applicable, violated
from .sampling import mixed

NAME = "accept_rule"
TITLE = "accept rule: same coins, token for token"
CLAIM = "Accepted drafts, residual and bonus token follow the rule on the coins that were used."
NEEDS = ("ACCEPTS",)

ROWS, DRAFTS, VOCABULARY, BLOCKS = 12, 3, 11, 6
EVERY_ID = 2**30
# Of V float32 additions and one product, relative to the sum: nearer than this is not decided.
DECIDED = 2.0**-18
HIDDEN = "the subject does not show the coins of its accept"


def target(seed: int, vocabulary: int, rows: int) -> dict[str, torch.Tensor]:
    """A target law by the token before, cuts of every length, top-p on every third row."""
    source = torch.Generator().manual_seed(seed + 99)
    table = 0.5 * torch.randint(-4, 5, (vocabulary, vocabulary), generator=source).float()
    top_p = torch.ones(rows)
    top_p[2::3] = 0.8
    verify_len = torch.randint(0, DRAFTS + 2, (rows,), generator=source)
    verify_len[: rows // 2] = DRAFTS + 1
    prefix_len = torch.randint(0, 50, (rows,), generator=source)
    return {"table": table, "top_p": top_p, "verify_len": verify_len, "prefix_len": prefix_len}


def plan(context: Context, rule: str) -> Plan:
    """Blocks of mixed batches, each accepted by one rule between two looks at its outputs."""
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(ROWS,))
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    for number in range(BLOCKS):
        seed = context.seed + number
        hidden, anchor = context.workload.rows(seed, material, ROWS, query_rows(setting))
        heat, top_k = mixed(ROWS)
        top_k[1::4] = 4
        if number == BLOCKS - 1:
            top_k[:] = 1
        inputs[f"{number}"] = as_inputs(setting, hidden, anchor, heat, top_k)
        inputs[f"target {number}"] = target(seed, VOCABULARY, ROWS)
        looks = [Observe(name) for name, role in context.buffers.items() if role == "output"]
        accept = Accept(f"target {number}", rule)
        commands += [Load(f"{number}"), Replay(), Read(), *looks, accept, *looks]
    return Plan(NAME, f"rule {rule}", setting, inputs, tuple(commands))


def plans(context: Context) -> list[Plan]:
    """Chain and block verification; greedy drafts are one-hot in both."""
    if context.workload.real:
        return []
    rules = ("chain",) if context.family == "dflash" else ("chain", "block")
    return [plan(context, rule) for rule in rules]


def expected(
    history: History, event: dict[str, Any], read: dict[str, Any]
) -> tuple[acceptance.Commit, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The reference's commit on the coins of an accept event, its laws p and q, greedy rows."""
    inputs, goal = history.inputs[event["inputs"]], history.inputs[event["target"]]
    outputs = read["outputs"]
    tokens = outputs["tokens"]
    candidates = torch.cat([inputs["anchor"].unsqueeze(1), tokens], 1)
    heat = choice.clamped(inputs["temperature"])
    greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
    logits = goal["table"][candidates].double()
    top_k, top_p = inputs["top_k"].unsqueeze(1), goal["top_p"].double().unsqueeze(1)
    p = filters.target_law(logits, heat.unsqueeze(1), top_k, top_p)
    flags = outputs.get("flags", torch.zeros_like(tokens))
    one_hot = greedy if "step_logits" in outputs else torch.ones_like(greedy)
    kept = outputs.get("step_logits", torch.zeros_like(p[:, :-1]))
    q = acceptance.claimed_law(kept.double(), heat, tokens, one_hot)
    lengths = (goal["verify_len"], goal["prefix_len"])
    coins = event["commit"]["coins"].double()
    rule = acceptance.accept_block if event["rule"] == "block" else acceptance.accept_chain
    by_coins = rule(tokens, q, p, coins, *lengths, flags)
    by_argmax = acceptance.accept_greedy(candidates, logits, *lengths)
    return acceptance.accept_mixed(by_argmax, by_coins, greedy), p, q, greedy


def undecided(
    p: torch.Tensor, q: torch.Tensor, tokens: torch.Tensor, coins: torch.Tensor
) -> np.ndarray:
    """Rows in which a coin or the final draw lies closer to its threshold than float32 can tell."""
    drafts = tokens.shape[1]
    picked = tokens.unsqueeze(-1)
    p_at = p[:, :drafts].gather(-1, picked).squeeze(-1)
    q_at = q.gather(-1, picked).squeeze(-1)
    close_coin = ((coins[:, :drafts].double() * q_at - p_at).abs() <= DECIDED * p_at).any(1)
    padded = torch.cat([q, torch.zeros_like(q[:, :1])], 1)
    residual = (p - padded).clamp(min=0)
    mass = residual.sum(-1, keepdim=True)
    share = torch.where(mass > 0, residual / mass.clamp(min=1e-300), p).cumsum(-1)
    final = coins[:, drafts].double()[:, None, None]
    close_final = ((share - final).abs() <= DECIDED).any(-1).any(1)
    return (close_coin | close_final).numpy()


class Looks:
    """Follows the looks at buffers between which nothing but reads and accepts happened."""

    def __init__(self) -> None:
        """Begin before any look."""
        self.seen: dict[str, torch.Tensor] = {}

    def complaint(self, event: Mapping[str, Any]) -> str:
        """A sentence when a buffer was seen to change, else ''."""
        if event["verb"] not in ("observe", "read", "reread", "accept"):
            self.seen = {}
        if event["verb"] != "observe":
            return ""
        name, now = event["buffer"], event["content"].reshape(-1).view(torch.uint8)
        before = self.seen.setdefault(name, now)
        if torch.equal(before, now):
            return ""
        changed = int((before != now).sum())
        return f"the accept changed {changed} bytes of buffer {name!r}, required: none"


def check(history: History, _ledger: Ledger) -> Verdict:
    """Every field of every row equals the reference's, but for counted undecided rows.

    Of the draft noise an accept takes nothing but the coins of race, and it writes no buffer.
    """
    used = near = 0
    read: dict[str, Any] = {}
    trail, looks = NoiseTrail(), Looks()
    for event in history.events:
        if moved := trail.complaint(event) or looks.complaint(event):
            return violated(moved, used, unit="rows")
        if event["verb"] in ("read", "eager"):
            read = event
        if event["verb"] != "accept":
            continue
        if bool(event["commit"]["coins"].isnan().all()):
            return not_applicable(HIDDEN)
        tokens = read["outputs"]["tokens"]
        commit, p, q, greedy = expected(history, event, read)
        open_rows = undecided(p, q, tokens, event["commit"]["coins"]) & ~greedy.numpy()
        near += int(open_rows.sum())
        for name, wanted in commit._asdict().items():
            field = FIELDS[name]
            seen = event["commit"][field].long()
            wrong = (seen != wanted.long()).reshape(len(seen), -1).any(1).numpy() & ~open_rows
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                return violated(
                    f"{field} of row {row}, {event['inputs']} by {event['rule']}: observed "
                    f"{seen[row].tolist()}, required {wanted[row].long().tolist()}; drafts "
                    f"{tokens[row].tolist()}, coins {event['commit']['coins'][row].tolist()}",
                    used,
                    unit="rows",
                )
        used += len(tokens)
    effect = f"one row that breaks the rule; {near} of {used} rows too close to decide"
    return holds("every commit equals the reference's", used, effect, "rows")


FIELDS = {
    "correct_len": "correct_len",
    "bonus": "bonus",
    "trim": "trim",
    "commit_len": "commit_len",
    "new_seq_len": "new_seq_len",
    "out_tokens": "out_tokens",
    "flags": "accept_flags",
}
