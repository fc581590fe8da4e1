"""Fold or eager: each gate closes for its reason and opens without it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from ...reference import gate
from ..budget import Ledger
from ..context import Context
from ..history import History
from ..script import Ask, Plan
from ..verdict import Verdict, holds, violated

NAME = "gates"
TITLE = "fallback gates, both ways"
CLAIM = "Each gate closes for its own reason and opens without it; reasons equal the reference's."
NEEDS = ("GATES",)

TABLES = {"build": gate.build, "step": gate.step, "accept": gate.accept}
NEED = 96_000_000
DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2", "int8", "uint8")

OPEN_BUILD: dict[str, Any] = {
    "switched_off": False,
    "engine_available": True,
    "drafts": 3,
    "has_head": True,
    "vocabulary": 40,
    "has_weight": True,
    "weight_dtype": "bfloat16",
    "stored_rows": 48,
    "added_vocabulary": 0,
    "ranks": 1,
    "has_shard_ranges": True,
    "sharded_dflash": "fold",
    "has_base_logits": True,
    "has_markov_head": True,
    "mode": "auto",
    "free_bytes": None,
    "need_bytes": NEED,
}
# One change each from a gate that is open.
BUILD_CHANGES: tuple[dict[str, Any], ...] = (
    {"switched_off": True},
    {"engine_available": False},
    {"drafts": 0},
    {"drafts": 1},
    {"has_head": False},
    {"vocabulary": 0},
    {"has_weight": False},
    {"vocabulary": 48},
    {"vocabulary": 49},
    {"added_vocabulary": 2},
    {"ranks": 2},
    {"ranks": 2, "has_shard_ranges": False},
    {"has_shard_ranges": False},
    {"sharded_dflash": "eager"},
    {"ranks": 2, "sharded_dflash": "eager"},
    {"has_base_logits": False},
    {"has_markov_head": False},
    {"mode": "off"},
    {"free_bytes": NEED + gate.GIB},
    {"free_bytes": NEED + gate.GIB - 1},
    {"free_bytes": 0},
    {"free_bytes": 0, "mode": "force"},
    {"free_bytes": NEED + gate.GIB, "mode": "off"},
    # Two closed gates: the earlier row speaks.
    {"switched_off": True, "weight_dtype": "int8"},
    {"vocabulary": 49, "ranks": 2, "sharded_dflash": "eager"},
    {"ranks": 2, "sharded_dflash": "eager", "added_vocabulary": 2},
    {"ranks": 2, "sharded_dflash": "eager", "has_shard_ranges": False},
    {"ranks": 2, "has_shard_ranges": False, "has_base_logits": False},
    {"has_base_logits": False, "has_markov_head": False},
    {"has_markov_head": False, "free_bytes": 0},
    {"weight_dtype": "float8_e4m3fn", "added_vocabulary": 1},
)


def questions(family: str) -> Iterator[dict[str, Any]]:
    """Every question: the open gate, each single change, and the finite tables in full."""
    base = {"table": "build", "family": family, **OPEN_BUILD}
    yield base
    for change in BUILD_CHANGES:
        yield {**base, **change}
    for dtype in DTYPES:
        yield {**base, "weight_dtype": dtype}
    for tail in ("eager", "greedy", "sampled"):
        for ran in (True, False):
            for sampled in (True, False):
                yield {
                    "table": "step",
                    "tail": tail,
                    "recording_ran": ran,
                    "sampled_rows": sampled,
                }
    names = ("block_folded", "sampled_rows", "logit_adjustment", "live_grammar", "verify_replayed")
    for bits in range(2 ** len(names)):
        answers = {name: bool(bits >> place & 1) for place, name in enumerate(names)}
        yield {"table": "accept", **answers}


def plans(context: Context) -> list[Plan]:
    """One case: all questions, put to one subject."""
    if context.workload.real:
        return []
    material = context.workload.material(context.seed, 40, torch.float32)
    setting = context.setting(material, drafts=3, buckets=(4,))
    commands = tuple(Ask(facts) for facts in questions(context.family))
    return [Plan(NAME, "three tables", setting, {}, commands)]


def differs(facts: Mapping[str, Any]) -> str:
    """What distinguishes these facts from an open gate, as text."""
    if facts["table"] != "build":
        return ", ".join(f"{name}={facts[name]}" for name in facts if name != "table")
    changed = [name for name in OPEN_BUILD if facts[name] != OPEN_BUILD[name]]
    return ", ".join(f"{name}={facts[name]}" for name in changed) or "an open gate"


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare fold and reason with the reference's table, question by question."""
    asked = history.of("ask")
    for event in asked:
        facts, answer = event["facts"], event["answer"]
        fold, reason = TABLES[facts["table"]](facts)
        if answer.get("fold") != fold or answer.get("reason") != reason:
            return violated(
                f"{facts['table']} gate for {facts.get('family', 'any family')} with "
                f"{differs(facts)}: observed {answer.get('fold')!r} ({answer.get('reason')!r}), "
                f"required {fold!r} ({reason!r})",
                len(asked),
                unit="questions",
                facts=dict(facts),
            )
    return holds(
        "all answers and reasons agree", len(asked), "one wrong answer or reason", "questions"
    )
