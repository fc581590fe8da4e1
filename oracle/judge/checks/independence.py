"""Draws that must not share noise do not: rows, steps, replays, buckets, seeds, noise and coins."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import sums
from ..binomial import log_above, log_both, pairs_needed, rate_seen
from ..budget import ALPHA, SHARES, Ledger
from ..context import Context, Material, as_inputs, constant, query_rows
from ..history import History
from ..script import Accept, Command, Load, Plan, Read, Replay, Reseed
from ..seeds import seed_of
from ..significance import Counts, pairs_seen
from ..verdict import Verdict, holds, not_applicable, unknown, violated

NAME = "independence"
TITLE = "independence: rows, steps, replays, buckets, draft noise and coins"
CLAIM = "No two draws share noise: rows, steps, replays, buckets, seeds, and draft against accept."
NEEDS = ("DRAWS",)
LEDGER = "independence"

ROWS, FEW_ROWS, DRAFTS, EVERY_ID = 256, 64, 3, 2**30
# Uniform over many ids, two draws are equal by chance only rarely; uniform over few, a table of two
# draws has cells that fill.
MANY, FEW = 512, 8
# A fault that sits in the replay cannot be told by many rows of one replay.
REPLAYS_MIN = 64
RESEEDED = 16
# Kinds of pairs, over both dialects.
TESTS_MAX = 40

# What is counted, and how the smallest fault it shows is told.
EFFECTS = {
    "pairs": "of pairs with common noise",
    "places": "of replays in which two given places share it",
    "cells": "of pairs moved into one cell",
}


@dataclass(frozen=True)
class Kind:
    """Counts of one kind of pair; each is binomial under the law of a correct sampler.

    hits, pairs arrays of one shape; rate how often independent pairs hit. what: a key of EFFECTS;
    of cells, too few hits are a finding as well.
    """

    hits: Counts
    pairs: Counts
    rate: float
    what: str = "pairs"

    def strangest(self) -> tuple[int, float]:
        """Place of the most striking count, and the log of its p-value times their number."""
        tail = log_both if self.what == "cells" else log_above
        hits, pairs = self.hits.ravel(), self.pairs.ravel()
        _, place = np.unique(pairs * (hits.max() + 1) + hits, return_index=True)
        logs = tail(hits[place], pairs[place], np.full(len(place), self.rate))
        least = int(logs.argmin())
        return int(place[least]), float(logs[least]) + math.log(self.hits.size)

    def share(self, alarm: float) -> float:
        """The smallest fault that would have been found: a share of pairs, at most 1, or inf."""
        seen = rate_seen if self.what == "cells" else pairs_seen
        return seen(int(self.pairs.min()), self.rate, alarm / self.hits.size)


def kind(left: Counts, right: Counts, vocabulary: int) -> Kind:
    """How often two arrays of draws agree, place by place."""
    return Kind(np.array([(left == right).sum()]), np.array([left.size]), 1 / vocabulary)


def of_sum(one: sums.Sum) -> Kind:
    """A kind of pair, from its sum."""
    what = one.what.removeprefix("[hits, ").removesuffix("]")
    rate = 1 / FEW**2 if what == "cells" else 1 / MANY
    return Kind(one.counts[0], one.counts[1], rate, what)


def replays_for(context: Context) -> int:
    """Replays at which the poorest kind of pair shows the profile's share of common noise."""
    alarm = SHARES[LEDGER] * ALPHA / TESTS_MAX
    pairs = context.part(pairs_needed(context.profile.share, 1 / MANY, alarm))
    return max(REPLAYS_MIN, -(-pairs // ROWS))


def plan(context: Context, vocabulary: int, replays: int) -> Plan:
    """Uniform logits, so that tokens are the noise itself; accepted where that is claimed."""
    source = context.workload.material(context.seed, vocabulary, torch.float32)
    flat = Material(torch.zeros_like(source.head), source.w1 * 0, source.w2 * 0, vocabulary)
    setting = context.setting(flat, drafts=DRAFTS, buckets=(FEW_ROWS, ROWS))
    hidden, anchor = context.workload.rows(context.seed, flat, ROWS, query_rows(setting))
    heat, top_k = constant(ROWS, 1.0, EVERY_ID)
    whole = as_inputs(setting, hidden, anchor, heat, top_k)
    inputs: dict[str, Any] = {
        "whole": whole,
        "few": {name: tensor[:FEW_ROWS].clone() for name, tensor in whole.items()},
        "target": {
            "table": torch.zeros(vocabulary, vocabulary),
            "top_p": torch.ones(ROWS),
            "verify_len": torch.full((ROWS,), DRAFTS + 1),
            "prefix_len": torch.zeros(ROWS, dtype=torch.int64),
        },
    }
    read = Read(only=("tokens",))
    one: tuple[Command, ...] = (Load("whole"), Replay(redraw=False), read)
    # Coins do not know V: they are flipped where an accept is cheap.
    one += (Load("few"), Replay(redraw=False), read) if vocabulary == MANY else (Accept("target"),)
    commands = one * replays
    if vocabulary == MANY and "NOISE" in context.abilities:
        again = seed_of(NAME, context.label, "second seed", 0, context.shard, context.seed)
        commands += (Reseed(again), *one * RESEEDED)
    return Plan(NAME, f"uniform, V = {vocabulary}", setting, inputs, commands)


def plans(context: Context) -> list[Plan]:
    """Uniform logits over many ids, for pairs that agree, and over few, for tables of pairs."""
    if context.workload.real:
        return []
    found = [plan(context, MANY, replays_for(context))]
    return [*found, plan(context, FEW, REPLAYS_MIN)] if "ACCEPTS" in context.abilities else found


def agreeing(tokens: Counts) -> dict[str, Kind]:
    """Kinds of pairs of drafts of one bucket and one seed: tokens [replays, rows, K].

    Where draws are uniform, the links of a chain of pairs agree independently, so neighbours need
    not be disjoint.
    """
    half, replays = tokens.shape[1] // 2, len(tokens)
    return {
        "neighbouring rows": kind(tokens[:, 1:], tokens[:, :-1], MANY),
        "rows one half apart": kind(tokens[:, :half], tokens[:, half:], MANY),
        "consecutive steps": kind(tokens[:, :, 1:], tokens[:, :, :-1], MANY),
        "first and last step": kind(tokens[:, :, 0], tokens[:, :, -1], MANY),
        "replays at every distance up to one half": distances(tokens, tokens, replays // 2 + 1),
        "any two rows and steps": places(tokens.reshape(replays, -1)),
    }


def of_coins(coins: Counts) -> dict[str, Kind]:
    """Kinds of pairs of coins [replays, rows, K + 1], brought to MANY equal bins."""
    replays = len(coins)
    return {
        "coins of neighbouring rows": kind(coins[:, 1:], coins[:, :-1], MANY),
        "coins of consecutive steps": kind(coins[:, :, 1:], coins[:, :, :-1], MANY),
        "first coin and final draw": kind(coins[:, :, 0], coins[:, :, -1], MANY),
        "coins of replays at every distance": distances(coins, coins, replays // 2 + 1),
        "any two coins": places(coins.reshape(replays, -1)),
    }


def distances(left: Counts, right: Counts, stop: int, start: int = 1) -> Kind:
    """Agreement of replay t + d of one array with replay t of the other, d from start to stop."""
    hits, pairs = [], []
    for distance in range(start, stop):
        later = left[max(distance, 0) : len(left) + min(distance, 0)]
        sooner = right[max(-distance, 0) : len(right) - max(distance, 0)]
        hits.append((later == sooner).sum())
        pairs.append(later.size)
    return Kind(np.array(hits), np.array(pairs), 1 / MANY)


def places(draws: Counts) -> Kind:
    """How often any two places of a block agree over the replays: draws [replays, places]."""
    ids = torch.from_numpy(draws.astype(np.int16))
    hits = torch.zeros((draws.shape[1],) * 2, dtype=torch.int16)
    for replay in ids:
        hits += replay[:, None] == replay[None, :]
    upper = hits.numpy()[np.triu_indices(draws.shape[1], 1)].astype(np.int64)
    return Kind(upper, np.full(upper.shape, len(draws)), 1 / MANY, "places")


def table(left: Counts, right: Counts) -> Kind:
    """The FEW x FEW cells of two draws, each as likely as any other."""
    cells = np.bincount((left * FEW + right).ravel(), minlength=FEW**2)
    return Kind(cells, np.full(cells.shape, left.size), 1 / FEW**2, "cells")


def tabled(tokens: Counts, coins: Counts) -> dict[str, Kind]:
    """Tables of two draws of which one is a coin, or both are drafts.

    A coin that is made of the noise of a draft does not equal it, but depends on it.
    """
    steps, columns = range(tokens.shape[2]), range(coins.shape[2])
    drafts_and_coins = [table(tokens[:, :, k], coins[:, :, c]) for k in steps for c in columns]
    across = [table(tokens[1:, :, k], coins[:-1, :, c]) for k in steps for c in columns]
    return {
        "draft and coin of a block": joined(drafts_and_coins),
        "draft and coin of the block before": joined(across),
        "steps, as a table": joined([table(tokens[:, :, k], tokens[:, :, k - 1]) for k in (1, 2)]),
        "coins, as a table": joined([table(coins[:, :, c], coins[:, :, c - 1]) for c in (1, 2, 3)]),
    }


def joined(kinds: list[Kind]) -> Kind:
    """Several counts of the same rate, as one kind."""
    hits = np.concatenate([one.hits for one in kinds])
    pairs = np.concatenate([one.pairs for one in kinds])
    return Kind(hits, pairs, kinds[0].rate, kinds[0].what)


def seen(history: History) -> dict[str, Counts]:
    """Draws by where they come from: 'whole' and 'few' blocks, '.. reseeded' ones, 'coins'."""
    parts: dict[str, list[Counts]] = {}
    reseeded = False
    for event in history.events:
        reseeded = reseeded or event["verb"] == "reseed"
        if event["verb"] == "read":
            name = event["inputs"] + (" reseeded" if reseeded else "")
            parts.setdefault(name, []).append(event["outputs"]["tokens"].numpy())
        if event["verb"] == "accept":
            bins = (event["commit"]["coins"].numpy() * MANY).astype(np.int64)
            parts.setdefault("coins", []).append(bins.clip(0, MANY - 1))
    return {name: np.stack(part) for name, part in parts.items()}


def kinds_of(history: History) -> dict[str, Kind]:
    """Every kind of pair that the history holds."""
    draws = seen(history)
    tokens = draws["whole"]
    if history.setting["vocabulary"] == FEW:
        coins = draws["coins"]
        return tabled(tokens, coins * FEW // MANY) | of_coins(coins)
    found = agreeing(tokens)
    rows = draws["few"].shape[1]
    reach = len(tokens) // 2
    found["replays of two buckets"] = distances(tokens[:, :rows], draws["few"], reach, 1 - reach)
    if "whole reseeded" in draws:
        again = draws["whole reseeded"]
        found["two seeds"] = kind(tokens[: len(again)], again, MANY)
    return found


def untested(history: History, found: dict[str, Kind]) -> list[str]:
    """What the case over many ids cannot speak of."""
    if history.setting["vocabulary"] == FEW:
        return []
    missing = ["captures (a plan builds one)"]
    if "two seeds" not in found:
        missing.append("seeds (no NOISE)")
    if "ACCEPTS" not in history.description["abilities"]:
        missing.append("coins (no ACCEPTS)")
    return missing


def gathered(history: History) -> sums.Sums | Verdict:
    """Hits and trials of every kind of pair."""
    accepts = history.of("accept")
    if accepts and bool(accepts[0]["commit"]["coins"].isnan().all()):
        return not_applicable("the subject does not show the coins of its accept")
    return tuple(
        sums.table(
            name, f"[hits, {one.what}]", np.array([one.rate]), np.stack([one.hits, one.pairs])
        )
        for name, one in kinds_of(history).items()
    )


def check(history: History, ledger: Ledger) -> Verdict:
    """Count pairs that agree, or cells of two draws, against exact binomials."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict:
    """The answer to counts, wherever they were drawn."""
    found = {one.law: of_sum(one) for one in seen}
    alarm = SHARES[LEDGER] * ledger.alpha / TESTS_MAX
    used = sum(int(one.pairs.max()) for one in found.values())
    for name, one in found.items():
        ledger.take(LEDGER, alarm)
        place, log_p = one.strangest()
        if log_p <= np.log(alarm):
            hits, pairs = int(one.hits.ravel()[place]), int(one.pairs.ravel()[place])
            return violated(
                f"{name}: {hits} of {pairs} pairs agree, expected {pairs * one.rate:.0f}, "
                f"p = {np.exp(log_p):.2g}, required > {alarm:.2g}: they share noise",
                used,
                unit="pairs",
            )
    shares = {
        what: max(one.share(alarm) for one in found.values() if one.what == what)
        for what in EFFECTS
        if any(one.what == what for one in found.values())
    }
    if max(shares.values()) >= 1:
        return unknown(f"{used} pairs would not have shown noise that all of them share", used)
    told = ", ".join(f"{100 * share:.2g} % {EFFECTS[what]}" for what, share in shares.items())
    missing = untested(history, found)
    omitted = f"; not tested: {', '.join(missing)}" if missing else ""
    reason = f"{len(found)} kinds of pairs are independent{omitted}"
    return holds(reason, used, f"{told} (95 %)", "pairs")
