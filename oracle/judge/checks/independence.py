"""Draws that must not share noise do not: rows, steps, replays, draft noise and coins."""

from typing import Any

import numpy as np
import torch

from ..budget import SHARES, Ledger
from ..context import Context, Material, as_inputs, constant, query_rows
from ..history import History
from ..script import Accept, Command, Load, Plan, Read, Replay
from ..significance import most_hits, pairs_seen
from ..verdict import Verdict, holds, unknown, violated

NAME = "independence"
TITLE = "independence: rows, steps, replays, draft noise and coins"
CLAIM = "No two draws share noise: neighbouring rows, steps, replays, and draft against accept."
NEEDS = ("DRAWS",)
LEDGER = "independence"

ROWS, DRAFTS, VOCABULARY, REPLAYS, EVERY_ID = 256, 3, 512, 64, 2**30
TESTS_MAX = 32


def plans(context: Context) -> list[Plan]:
    """Uniform logits, so that tokens are the noise itself; 64 replays, accepted where claimed."""
    if context.workload.real:
        return []
    source = context.workload.material(context.seed, VOCABULARY, torch.float32)
    flat = Material(torch.zeros_like(source.head), source.w1 * 0, source.w2 * 0, VOCABULARY)
    setting = context.setting(flat, drafts=DRAFTS, buckets=(ROWS,))
    hidden, anchor = context.workload.rows(context.seed, flat, ROWS, query_rows(setting))
    inputs: dict[str, Any] = {
        "x": as_inputs(setting, hidden, anchor, *constant(ROWS, 1.0, EVERY_ID)),
        "target": {
            "table": torch.zeros(VOCABULARY, VOCABULARY),
            "top_p": torch.ones(ROWS),
            "verify_len": torch.full((ROWS,), DRAFTS + 1),
            "prefix_len": torch.zeros(ROWS, dtype=torch.int64),
        },
    }
    one: tuple[Command, ...] = (Replay(redraw=False), Read())
    if "ACCEPTS" in context.abilities:
        one += (Accept("target"),)
    return [Plan(NAME, f"uniform, V = {VOCABULARY}", setting, inputs, (Load("x"), *one * REPLAYS))]


def pairs(tokens: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Disjoint pairs of draws by what they must not share.

    tokens [replays, rows, K].
    """
    return {
        "neighbouring rows": (tokens[:, 0::2], tokens[:, 1::2]),
        "rows one half apart": (tokens[:, : ROWS // 2], tokens[:, ROWS // 2 :]),
        "consecutive steps": (tokens[:, :, 0], tokens[:, :, 1]),
        "first and last step": (tokens[:, :, 0], tokens[:, :, -1]),
        "consecutive replays": (tokens[0::2], tokens[1::2]),
        "replays one half apart": (tokens[: REPLAYS // 2], tokens[REPLAYS // 2 :]),
    }


def coin_pairs(tokens: np.ndarray, events: list[dict[str, Any]]) -> dict[str, Any]:
    """Pairs of a draft and what the accept of its block drew, brought to V equal bins."""
    if not events:
        return {}
    coins = np.stack([event["commit"]["coins"].numpy() for event in events])
    bins = np.minimum((coins * VOCABULARY).astype(np.int64), VOCABULARY - 1)
    return {
        "draft and its coin": (tokens, bins[:, :, :DRAFTS]),
        "coins of neighbouring rows": (bins[:, 0::2], bins[:, 1::2]),
        "coin and final draw": (bins[:, :, 0], bins[:, :, -1]),
        "coins of consecutive replays": (bins[0::2], bins[1::2]),
    }


def check(history: History, ledger: Ledger) -> Verdict:
    """Count equal pairs against Binomial(pairs, 1/V), upper tail, exactly."""
    tokens = np.stack([event["outputs"]["tokens"].numpy() for event in history.of("read")])
    tested = pairs(tokens) | coin_pairs(tokens, history.of("accept"))
    alarm = SHARES[LEDGER] * ledger.alpha / TESTS_MAX
    shares, used = [], 0
    for name, (left, right) in tested.items():
        ledger.take(LEDGER, alarm)
        equal, count = int((left == right).sum()), left.size
        limit = most_hits(count, 1 / VOCABULARY, alarm)
        used += count
        if equal > limit:
            return violated(
                f"{name}: {equal} of {count} pairs are equal, required at most {limit} "
                f"({count / VOCABULARY:.0f} expected): they share noise",
                used,
                unit="pairs",
            )
        shares.append(pairs_seen(count, 1 / VOCABULARY, alarm))
    if max(shares) >= 1:
        return unknown(f"{used} pairs would not have shown noise that all of them share", used)
    effect = f"{100 * max(shares):.2g} % of pairs with common noise (95 %)"
    return holds(f"{len(tested)} kinds of pairs are independent", used, effect, "pairs")
