"""Seeds depend on what they are for and on nothing else; old histories keep theirs."""

import hashlib
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from oracle.judge.checks import claim, lossless
from oracle.judge.context import PROFILES
from oracle.judge.history import History
from oracle.judge.script import Plan
from oracle.judge.seeds import seed_of
from oracle.judge.trial import seeded

from .judging import context

CASES = ("V = 16, T = 1", "V = 16, T = 1.0", "rule chain, top-p 1")


def test_derived_seeds_are_distinct() -> None:
    """A quarter of a million purposes, among them some that a plain join would confuse."""
    names = product(
        ("draft_law", "lossless"), CASES, ("subject", "completion"), (1, 11), range(103), range(101)
    )
    seeds = [seed_of(*name) for name in names]
    assert len(seeds) == 249_672
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_is_the_same_on_every_machine() -> None:
    """It is read off canonical JSON, so no process, version or order of tests enters."""
    name = b'["claim","V = 40","transform",2,0,7]'
    expected = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big") // 2
    assert seed_of("claim", "V = 40", "transform", 2, run=7) == expected


def history_of(plan: Plan, events: list[dict[str, Any]], notes: dict[str, Any]) -> History:
    """A history of a plan with the given events and notes."""
    return History(plan.check, plan.case, plan.setting, plan.inputs, notes, {}, {}, events=events)


def committed() -> tuple[Plan, list[dict[str, Any]]]:
    """The plan of lossless, and two stages of the same commits of one token each."""
    plan = lossless.plan(context(), "chain", 1.0)
    commit = {"out_tokens": torch.zeros(500, 3, dtype=torch.int64), "commit_len": torch.ones(500)}
    event = {"verb": "accept", "commit": commit}
    return plan, [event, {"verb": "stage"}, event]


def test_completions_differ_by_case_run_and_stage() -> None:
    """No two uses of the judge's own numbers share them."""
    plan, events = committed()
    steps = np.full((8, 8), 1 / 8)
    others = [lossless.plan(context(), "block", 1.0), lossless.plan(context(seed=1), "chain", 1.0)]
    drawn = [
        lossless.completed(history_of(plan, events, dict(each.notes)), stage, steps)
        for each in (plan, *others)
        for stage in (1, 2)
    ]
    for n, one in enumerate(drawn):
        assert not any(np.array_equal(one, other) for other in drawn[:n])


def test_a_history_from_before_is_completed_as_it_was() -> None:
    """A note with the run's seed alone still gives the numbers that were used then."""
    plan, events = committed()
    steps = np.full((8, 8), 1 / 8)
    old = history_of(plan, events, {"seed": 3})
    for stage in (1, 2):
        u = np.random.default_rng([3, 5, stage]).random(500)
        found = lossless.completed(old, stage, steps)
        assert np.array_equal(found[:, 1], np.floor(8 * u))


@pytest.mark.parametrize("order", ["probability", "id"])
def test_a_transform_from_before_is_the_same(order: str) -> None:
    """As for completions: the claimed law's W of an old history, and another one for a new."""
    plan = claim.plans(context(profile=PROFILES["smoke"]))[0]
    outputs = {
        "temperature": torch.ones(4),
        "step_logits": torch.zeros(4, 3, 40),
        "tokens": torch.zeros(4, 3, dtype=torch.int64),
    }
    events = [{"verb": "read", "outputs": outputs}]
    old = claim.integral_transform(history_of(plan, events, {"seed": 3}), 1, order)
    w = np.random.default_rng([3, 1, len(order)]).random((4, 3))
    assert np.allclose(old, ((np.arange(4)[:, None] + w / 40) / 4).ravel())
    new = claim.integral_transform(history_of(plan, events, dict(plan.notes)), 1, order)
    assert not np.allclose(old, new)


def test_the_noise_seed_of_a_case_is_its_own() -> None:
    """Cases, combinations and runs differ; the same case of the same run repeats."""
    base, other = context(), context(("dspark", "race"))
    plans = lossless.plans(base)
    seeds = [seeded(plan, base).setting["seed"] for plan in plans]
    seeds += [seeded(plans[0], each).setting["seed"] for each in (other, context(seed=1))]
    assert len(set(seeds)) == len(plans) + 2
    again = seeded(lossless.plans(base)[0], base)
    assert again.setting["seed"] == seeds[0]
    assert again.case == plans[0].case
