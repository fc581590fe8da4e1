"""The ranks of a sharded sampler are one sampler."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import torch

from ...reference import gate
from ...workloads.synthetic import sampling_parameters
from ..budget import Ledger
from ..context import Context, Material, as_inputs, query_rows
from ..history import History
from ..merge import by_rank
from ..parity import parity
from ..protocol import Tensors
from ..script import Ask, Command, Eager, Load, Plan, Read, Replay
from ..verdict import Outcome, Verdict, holds, violated
from .gates import OPEN_BUILD

NAME = "ranks"
TITLE = "one sampler over tensor-parallel ranks"
CLAIM = "Every rank reads the unsharded reference's tokens, takes one path and one gate decision."
NEEDS: tuple[str, ...] = ("RANKS",)

EFFECT = "one wrong token, one bit or one decision that differs between ranks"
BUCKETS = (2, 5)
LIVE_ROWS = (5, 2, 3, 1, 4)
# A shard starts where a Philox call of four words starts.
WORDS = 4
GIB = 2**30
Ranges = tuple[tuple[int, int], ...]


def edged(edges: list[int]) -> Ranges:
    """Ranges between consecutive edges."""
    return tuple(pairwise(edges))


def splits(vocabulary: int, ranks: int) -> dict[str, Ranges]:
    """Ways to share ids: evenly, with one wide rank, with ranks that hold none."""
    wide = -(-vocabulary // (ranks * WORDS)) * WORDS
    even = [min(wide * rank, vocabulary) for rank in range(ranks)]
    narrow = [min(WORDS * rank, vocabulary) for rank in range(ranks)]
    return {
        "even": edged([*even, vocabulary]),
        "one wide": edged([*narrow, vocabulary]),
        "first empty": edged([0] * ranks + [vocabulary]),
        "last empty": edged([0] + [vocabulary] * ranks),
    }


def tied(material: Material, ranges: Ranges) -> Material:
    """The ids on both sides of every edge, and the last id, get the same weights."""
    head, w2 = material.head.clone(), material.w2.clone()
    last = material.vocabulary - 1
    same = {last} | {start - side for start, _ in ranges for side in (0, 1)}
    ids = sorted(i for i in same if 0 <= i <= last)
    # The same +-1 row for all of them; `loads` points the hidden states along it.
    head[ids] = (1 - 2 * (torch.arange(head.shape[1]) % 2)).to(head.dtype)
    w2[ids] = w2[ids[0]].clone()
    return Material(head, material.w1, w2, material.vocabulary)


def plan(context: Context, case: str, dtype: str, split: str, drafts: int = 3) -> Plan:
    """Blocks of growing and shrinking batches over shards; `case` 'ties' makes edges tie."""
    padding = 3 if split == "even" else 0
    material = context.workload.material(context.seed, 45, getattr(torch, dtype), padding)
    ranges = splits(material.vocabulary, context.ranks)[split]
    ties = case == "ties"
    if ties:
        material = tied(material, ranges)
    anchored = split != "one wide"
    setting = context.setting(
        material, drafts=drafts, buckets=BUCKETS, sample_from_anchor=anchored
    ) | {"shard_ranges": ranges}
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    for number in range(context.profile.blocks):
        rows, seed = LIVE_ROWS[number % len(LIVE_ROWS)], context.seed + number
        hidden, anchor = context.workload.rows(seed, material, rows, query_rows(setting))
        if ties:
            hidden = material.head[-1 - padding].expand_as(hidden) * (2 + number % 3)
        heat, top_k = sampling_parameters(seed, rows)
        name = f"block {number}"
        inputs[name] = as_inputs(setting, hidden.clone(), anchor, heat, top_k)
        commands += [Load(name), Replay(), Read()]
        if "EAGER" in context.abilities and number % 3 == 1:
            commands.append(Eager(name))
    return Plan(NAME, f"{case}, {split} split, {dtype}", setting, inputs, tuple(commands))


def questions(context: Context) -> Iterator[Ask]:
    """Builds that every rank asks about with free memory of its own; the last one has least."""
    base = {"table": "build", **OPEN_BUILD, "family": context.family, "ranks": context.ranks}
    need = 3 * GIB
    spare = {"plenty": GIB + 5, "just enough": GIB, "one byte short": GIB - 1, "none": 0}
    for bytes_left in spare.values():
        free = need + bytes_left if context.rank == context.ranks - 1 else 64 * GIB
        yield Ask({**base, "need_bytes": need, "free_bytes": free})


def plans(context: Context) -> list[Plan]:
    """Even, uneven and empty shards, exact ties across every edge, and unequal free memory."""
    if context.workload.real:
        return []
    cases = [
        plan(context, "blocks", dtype, split)
        for dtype, split in zip(("float32", "bfloat16") * 2, splits(45, context.ranks), strict=True)
    ]
    cases += [plan(context, "ties", dtype, "even") for dtype in ("float32", "bfloat16")]
    if "GATES" in context.abilities:
        material = context.workload.material(context.seed, 40, torch.float32)
        setting = context.setting(material, drafts=3, buckets=(4,))
        setting |= {"shard_ranges": splits(40, context.ranks)["even"]}
        cases.append(Plan(NAME, "unequal free memory", setting, {}, tuple(questions(context))))
    return cases


def check(history: History, _ledger: Ledger) -> Verdict:
    """Rank against rank bit for bit, then each against the reference; paths and gates equal."""
    ranks = by_rank(history)
    asked = [each.of("ask") for each in ranks]
    if asked[0]:
        return gates_agree(asked)
    first = ranks[0]
    for other in ranks[1:]:
        for one, two in zip(first.events, other.events, strict=True):
            if complaint := differs(one, two):
                return violated(f"{complaint} on rank {other.rank} and rank 0", 0)
    judged = 0
    for each in ranks:
        answer = parity(each)
        judged += answer.used
        if answer.outcome is not Outcome.HOLDS:
            return violated(f"rank {each.rank}: {answer.reason}", judged, "draws")
    return holds("all ranks read the reference's tokens", judged, EFFECT, "draws")


def differs(one: Mapping[str, Any], two: Mapping[str, Any]) -> str:
    """What two ranks saw differently at one command, as text; '' for nothing."""
    for name, value in one.get("outputs", {}).items():
        other = two["outputs"][name]
        if not torch.equal(value.nan_to_num(), other.nan_to_num()):
            at = tuple(int(i) for i in (value != other).nonzero()[0])
            return f"{name} at {at} of {one['inputs']}: observed {other[at]} and {value[at]}"
    for name, value in one.get("after", {}).get("path", {}).items():
        other = two["after"]["path"][name]
        if name != "kernels" and other != value:
            return f"the {name} of {one['inputs']}: observed {other!r} and {value!r}"
    return ""


def gates_agree(asked: list[list[dict[str, Any]]]) -> Verdict:
    """Every rank answers what the reference answers about the least free memory."""
    for events in zip(*asked, strict=True):
        free = min(event["facts"]["free_bytes"] for event in events)
        fold, reason = gate.build({**events[0]["facts"], "free_bytes": free})
        for rank, event in enumerate(events):
            answer = event["answer"]
            if (answer.get("fold"), answer.get("reason")) != (fold, reason):
                return violated(
                    f"rank {rank}, least free memory {free}, need {event['facts']['need_bytes']}: "
                    f"observed {answer.get('fold')!r} ({answer.get('reason')!r}), required "
                    f"{fold!r} ({reason!r})",
                    len(asked) * len(asked[0]),
                    "questions",
                )
    count = len(asked) * len(asked[0])
    return holds("all ranks decide alike", count, EFFECT, "questions")
