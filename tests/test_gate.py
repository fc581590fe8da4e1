"""The three tables: both sides equal on every finite combination, monotone in memory."""

import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from impl import gate as folded
from oracle.judge.checks.gates import OPEN_BUILD, questions
from oracle.judge.protocol import FACTS
from oracle.reference import gate

BOOLS = (True, False)
DTYPES = ("float16", "bfloat16", "float32", "float8_e4m3fn", "int8", "")


def folded_answer(facts: dict[str, Any]) -> tuple[str, str]:
    """What impl's tables answer."""
    values = dict(facts)
    table = values.pop("table")
    kinds: dict[str, tuple[Any, Any]] = {
        "build": (folded.build, folded.BuildFacts),
        "step": (folded.step, folded.StepFacts),
        "accept": (folded.accept, folded.AcceptFacts),
    }
    decide, record = kinds[table]
    decision = decide(record(**values))
    return decision.fold, decision.reason


def test_build_agrees_on_every_finite_combination() -> None:
    """All truth values, dtypes, families, modes and rules over ranks: 73,728 questions."""
    asked = 0
    names = (
        "switched_off",
        "engine_available",
        "has_head",
        "has_weight",
        "has_shard_ranges",
        "has_base_logits",
        "has_markov_head",
    )
    others = {
        "family": ("dflash", "dspark"),
        "mode": ("off", "auto", "force"),
        "weight_dtype": DTYPES,
        "drafts": (0, 3),
        "added_vocabulary": (0, 2),
        "ranks": (1, 2),
        "sharded_dflash": ("fold", "eager"),
    }
    for bits in product(BOOLS, repeat=len(names)):
        for values in product(*others.values()):
            facts = {
                **OPEN_BUILD,
                **dict(zip(names, bits, strict=True)),
                **dict(zip(others, values, strict=True)),
            }
            asked += 1
            assert folded_answer({"table": "build", **facts}) == gate.build(facts), facts
    assert asked == 2**7 * 2 * 3 * 6 * 2**4


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_the_judge_asks_only_what_the_protocol_lists(family: str) -> None:
    """Facts are named in one place, and each table gets all of its own."""
    for facts in questions(family):
        names = set(facts) - {"table"}
        allowed = set(FACTS[facts["table"]])
        assert names == allowed
        assert folded_answer(facts) == {
            "build": gate.build,
            "step": gate.step,
            "accept": gate.accept,
        }[facts["table"]](facts)


RANK = {"eager": 0, "greedy": 1, "sampled": 2}


@given(free=st.integers(0, 2**40), more=st.integers(0, 2**40), need=st.integers(0, 2**38))
def test_more_memory_never_closes_a_gate(free: int, more: int, need: int) -> None:
    """Both sides are monotone in free bytes."""
    facts = {**OPEN_BUILD, "family": "dspark", "need_bytes": need}
    less = gate.build({**facts, "free_bytes": free})[0]
    plenty = gate.build({**facts, "free_bytes": free + more})[0]
    assert RANK[less] <= RANK[plenty]
    for bytes_free in (free, free + more):
        asked = {"table": "build", **facts, "free_bytes": bytes_free}
        assert folded_answer(asked) == gate.build(asked)


@pytest.mark.parametrize(("spare", "fold"), [(0, "sampled"), (-1, "greedy"), (1, "sampled")])
def test_the_threshold_of_one_gib_is_inclusive(spare: int, fold: str) -> None:
    """free - need >= 2^30 folds."""
    assert gate.sampling("auto", 10**9 + 2**30 + spare, 10**9)[0] == fold


def test_the_published_worked_example_of_the_memory_gate() -> None:
    """V = 129,280, K = 7, 16-bit logits, Bmax 64: 148,930,560 bytes are needed."""
    need = 64 * 129280 * 4 + 64 * 7 * 129280 * 2
    assert need == 148_930_560
    assert gate.sampling("auto", 1_222_672_384, need) == ("sampled", "folded")
    assert gate.sampling("auto", 1_222_672_383, need) == ("greedy", "memory short")


def test_an_unknown_mode_is_an_error() -> None:
    """A typing mistake must not decide."""
    with pytest.raises(ValueError, match="mode is 'atuo'"):
        gate.sampling("atuo", None, 0)


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_an_unknown_rule_over_ranks_is_an_error(family: str) -> None:
    """On either side, even where another row would have decided."""
    facts = {**OPEN_BUILD, "family": family, "sharded_dflash": "eagre", "switched_off": True}
    with pytest.raises(ValueError, match="sharded_dflash is 'eagre'"):
        gate.build(facts)
    with pytest.raises(ValueError, match="sharded dflash is 'eagre'"):
        folded_answer({"table": "build", **facts})


@pytest.mark.parametrize(
    ("family", "change", "reason"),
    [
        ("dflash", {"ranks": 2, "sharded_dflash": "eager"}, "sharded dflash kept eager"),
        ("dflash", {"ranks": 1, "sharded_dflash": "eager"}, "folded"),
        ("dflash", {"ranks": 2, "sharded_dflash": "fold"}, "folded"),
        ("dspark", {"ranks": 2, "sharded_dflash": "eager"}, "folded"),
        ("dspark", {"has_base_logits": False}, "no base logits"),
        ("dspark", {"has_base_logits": False, "has_markov_head": False}, "no base logits"),
        ("dflash", {"has_base_logits": False}, "folded"),
        ("dflash", {"vocabulary": 0}, "empty vocabulary"),
        ("dspark", {"vocabulary": 1}, "folded"),
    ],
)
def test_rows_of_one_family_leave_the_other_alone(
    family: str, change: dict[str, Any], reason: str
) -> None:
    """What a row says, and where it has nothing to say, on both sides."""
    facts = {"table": "build", **OPEN_BUILD, "family": family, **change}
    assert folded_answer(facts)[1] == gate.build(facts)[1] == reason


def test_the_judge_asks_for_every_row_of_the_build_table() -> None:
    """No reason can be lost from a subject's table without a question that misses it."""
    asked = [facts for family in ("dflash", "dspark") for facts in questions(family)]
    given = {gate.build(facts)[1] for facts in asked if facts["table"] == "build"}
    assert {reason for reason, _ in folded.BUILD} <= given


@pytest.mark.parametrize("table", ["build", "step", "accept"])
def test_the_readme_lists_the_reasons_in_order(table: str) -> None:
    """The row of a table names its reasons as the code has them, up to what follows them."""
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {table} \| (?P<reasons>.*) \|$", text, re.MULTILINE)
    assert row is not None
    named = [re.sub(r" \(.*\)$", "", part) for part in row["reasons"].split(" · ")]
    rows = [reason for reason, _ in getattr(folded, table.upper())]
    assert named[: len(rows)] == rows
    assert named[-1] == "folded"
