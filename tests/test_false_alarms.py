"""No alarm over 200 runs of profile ci on healthy samplers, each run with a seed of its own.

All runs together take about six hours of one core, so they are dealt out in shards:

    HEALTHY_SEEDS=3/20 pytest tests/test_false_alarms.py -m slow

judges seeds 3, 23, 43 and so on. Without the variable it is shard 0 of 50.
"""

import os

import pytest

from oracle.judge.budget import SHARES
from oracle.judge.checks import ALL
from oracle.judge.context import PROFILES
from oracle.judge.loading import load_factory
from oracle.judge.verdict import Outcome

from .judging import bad, context, verdicts

SEEDS, FIRST = 200, 1000
# What a seed is judged on: every dialect of every sampler that is known to be right.
HEALTHY = (
    ("folded", ("dspark", "counter")),
    ("folded", ("dspark", "race")),
    ("reference", ("dspark", "counter")),
    ("torch", ("dspark", "race")),
)


def lines(check: object) -> set[str]:
    """The lines of the ledger that a check spends."""
    named = getattr(check, "LEDGER", getattr(check, "NAME", ""))
    return {named} if isinstance(named, str) else set(named)


STATISTICAL = tuple(check.NAME for check in ALL if lines(check) & set(SHARES))


def dealt(shard: str) -> range:
    """The seeds of shard 'i/n', counted from 0."""
    number, _, count = shard.partition("/")
    if not (number.isdigit() and count.isdigit() and int(number) < int(count)):
        raise ValueError(f"HEALTHY_SEEDS is {shard!r}, required: i/n with 0 <= i < n")
    return range(int(number), SEEDS, int(count))


def test_shards_deal_every_seed_once() -> None:
    """Whatever their number; and what is no shard is refused."""
    for count in (1, 7, 20, 200):
        seeds = [seed for number in range(count) for seed in dealt(f"{number}/{count}")]
        assert sorted(seeds) == list(range(SEEDS))
    for wrong in ("20/20", "1", "a/b", "-1/3", ""):
        with pytest.raises(ValueError, match="required: i/n"):
            dealt(wrong)


def test_every_line_of_the_budget_is_spent_by_a_check_here() -> None:
    """So that a new statistical check cannot be left out; Hypothesis spends a line of its own."""
    spent = {line for check in ALL if check.NAME in STATISTICAL for line in lines(check)}
    assert set(SHARES) - spent <= {"hypothesis", "freshness"}


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("seed", dealt(os.environ.get("HEALTHY_SEEDS", "0/50")))  # noqa: TID251
def test_a_healthy_sampler_raises_no_alarm(seed: int) -> None:
    """Every check that spends alarm probability, at profile ci."""
    subject, combination = HEALTHY[seed % len(HEALTHY)]
    base = context(combination, seed=FIRST + seed, profile=PROFILES["ci"])
    found = verdicts(load_factory(subject), base, (combination,), STATISTICAL)
    results = [result for every in found.values() for result in every]
    assert [(r.check, r.case, r.verdict.reason) for r in bad(results)] == []
    assert sum(result.verdict.outcome is Outcome.HOLDS for result in results) >= 4
