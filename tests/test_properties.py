"""The four promises under random shapes and dtypes: parity, law, staleness, gates.

Each example builds the folded sampler, records it, and lets the judge decide.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.judge.budget import Ledger
from oracle.judge.checks import draft_law, equality, freshness, gates, named, writeset
from oracle.judge.context import Size
from oracle.judge.script import Ask, Plan
from oracle.judge.trial import COMBINATIONS, Trial
from oracle.judge.verdict import Outcome
from oracle.reference import gate

from .judging import FOLDED, context, probed, verdict
from .strategies import DTYPES

EXAMPLES = 6
SAMPLED = [("dspark", "race"), ("dspark", "counter")]
SIZES = st.builds(
    Size,
    rows=st.integers(6, 9),
    drafts=st.integers(2, 4),
    vocabulary=st.integers(40, 90),
    padding=st.integers(0, 20),
    dtype=st.sampled_from(DTYPES),
)
SEEDS = st.integers(0, 2**31)
combinations = pytest.mark.parametrize("combination", COMBINATIONS)


def must_hold(check: str, plan: Plan, base: Any) -> None:
    """Fail with the judge's own sentence."""
    answer = verdict(check, plan, base)
    assert answer.outcome is Outcome.HOLDS, answer.reason


@combinations
@settings(max_examples=EXAMPLES)
@given(
    vocabulary=st.integers(2, 80),
    padding=st.integers(0, 20),
    drafts=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    wide=st.booleans(),
    anchor_row=st.booleans(),
    seed=SEEDS,
)
def test_token_parity(
    engine_name: str, combination: tuple[str, str], seed: int, *, wide: bool, **shape: Any
) -> None:
    """Blocks of growing and shrinking batches equal the reference, folded and eager."""
    base = probed(context(combination, engine=engine_name, seed=seed))
    shape["sample_from_anchor"] = shape.pop("anchor_row")
    if wide and combination[0] == "dspark":
        shape["step_dtype"] = "float32"
    must_hold("equality", equality.plan(base, "drawn", shape.pop("dtype"), **shape), base)


@combinations
@settings(max_examples=EXAMPLES)
@given(size=SIZES, seed=SEEDS, forward=st.sampled_from(["given", "backbone"]))
def test_no_input_is_stale_after_a_replay(
    engine_name: str, combination: tuple[str, str], size: Size, seed: int, forward: str
) -> None:
    """Every field, changed alone or edited in place, moves the next block."""
    base = probed(context(combination, engine=engine_name, seed=seed))
    must_hold("freshness", freshness.plan(base, forward, size), base)


@combinations
@settings(max_examples=EXAMPLES)
@given(size=SIZES, seed=SEEDS)
def test_no_buffer_is_stale_after_a_replay(
    engine_name: str, combination: tuple[str, str], size: Size, seed: int
) -> None:
    """Whatever any buffer held before the load, the block is the same."""
    base = probed(context(combination, engine=engine_name, seed=seed))
    must_hold("writeset", writeset.plan(base, size), base)


@pytest.mark.statistical
@pytest.mark.parametrize("combination", SAMPLED)
@settings(max_examples=4)
@given(
    vocabulary=st.integers(3, 16),
    dtype=st.sampled_from(DTYPES),
    quarter=st.integers(2, 8),
    seed=SEEDS,
)
def test_gumbel_chi_square(
    engine_name: str,
    combination: tuple[str, str],
    vocabulary: int,
    dtype: torch.dtype,
    quarter: int,
    seed: int,
) -> None:
    """Drawn blocks fit the exact law at any temperature, step after step."""
    base = probed(context(combination, engine=engine_name, seed=seed))
    size = Size(rows=1024, drafts=2, vocabulary=vocabulary, dtype=dtype)
    plan = draft_law.plan(base, size, replays=16, temperature=quarter / 4)
    answer = verdict("draft_law", plan, base)
    assert answer.outcome in (Outcome.HOLDS, Outcome.UNKNOWN), answer.reason


FACTS = st.fixed_dictionaries(
    {
        "family": st.sampled_from(["dflash", "dspark"]),
        "switched_off": st.booleans(),
        "engine_available": st.booleans(),
        "drafts": st.integers(0, 8),
        "has_head": st.booleans(),
        "vocabulary": st.integers(0, 60),
        "has_weight": st.booleans(),
        "weight_dtype": st.sampled_from(gates.DTYPES),
        "stored_rows": st.integers(1, 60),
        "added_vocabulary": st.integers(0, 2),
        "ranks": st.integers(1, 2),
        "has_shard_ranges": st.booleans(),
        "sharded_dflash": st.sampled_from(["fold", "eager"]),
        "has_base_logits": st.booleans(),
        "has_markov_head": st.booleans(),
        "mode": st.sampled_from(["off", "auto", "force"]),
        "free_bytes": st.none() | st.integers(0, 2**34),
        "need_bytes": st.integers(0, 2**33),
    }
)


@settings(max_examples=40)
@given(st.lists(FACTS, min_size=20, max_size=20))
def test_fallback_gates(questions: list[dict[str, Any]]) -> None:
    """Answers from real objects equal the reference's table, on random facts."""
    base = context(("dflash", "none"))
    plan = gates.plans(base)[0]
    commands = tuple(Ask({"table": "build", **facts}) for facts in questions)
    asked = Plan("gates", "drawn", plan.setting, {}, commands)
    history, answer = Trial(FOLDED, base, ledger=Ledger()).case(named("gates"), asked, base)
    assert answer.outcome is Outcome.HOLDS, answer.reason
    assert history is not None
    folds = {event["answer"]["fold"] for event in history.of("ask")}
    assert folds <= {"eager", "greedy", "sampled"}
    assert gate.GIB == 2**30
