"""Jobs over processes answer what one process answers."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from oracle.judge.budget import Ledger, OverspentError
from oracle.judge.checks import named
from oracle.judge.jobs import Order, jobs_for, shared_out
from oracle.judge.verdict import Outcome

ORDER = Order("reference", "synthetic", "smoke", "cpu", "emulator", 3, 1e-6, "again")
CHECKS = tuple(named(name) for name in ("gates", "freshness", "coupled", "claim", "path"))
COMBINATIONS = (("dspark", "counter"), ("dflash", "none"))


def test_two_processes_find_what_one_finds() -> None:
    """Same verdicts, figures, order and alarm probability spent."""
    told: list[str] = []
    ledger, alone = Ledger(), ORDER.trial()
    shared = list(shared_out(ORDER, COMBINATIONS, CHECKS, 2, ledger, told.append))
    alone.checks, alone.combinations = CHECKS, COMBINATIONS
    expected = list(alone.run())
    assert [(r.check, r.combination, r.case, r.verdict) for r in shared] == [
        (r.check, r.combination, r.case, r.verdict) for r in expected
    ]
    assert ledger.spent == pytest.approx(alone.ledger.spent)
    assert len(told) == len(CHECKS) * len(COMBINATIONS)


def test_what_all_jobs_spent_is_held_against_one_ledger() -> None:
    """A line that others have spent already is overspent by a job."""
    ledger = Ledger(spent={"claimed law": 3.9e-8})
    with pytest.raises(OverspentError, match="claimed law"):
        list(shared_out(ORDER, COMBINATIONS[:1], (named("claim"),), 1, ledger, lambda _: None))


@pytest.mark.parametrize(
    ("device", "asked", "jobs"), [("cuda", 0, 1), ("cpu", 3, 3), ("cuda", 2, 2)]
)
def test_a_gpu_is_not_shared_unless_asked(device: str, asked: int, jobs: int) -> None:
    """One process a GPU; what is asked for is done."""
    assert jobs_for(device, asked) == jobs
    assert 1 <= jobs_for("cpu", 0) <= 4
    assert jobs_for("cpu", 0, "smollm2") == 1


def dies(setting: Mapping[str, Any]) -> Any:
    """A subject that takes its process with it."""
    os._exit(3 if setting else 4)


def test_a_process_that_dies_is_an_error_of_the_subject() -> None:
    """No green answer, and no hanging run."""
    order = replace(ORDER, subject="tests.test_jobs:dies")
    found = list(shared_out(order, COMBINATIONS[:1], CHECKS[:2], 1, Ledger(), lambda _: None))
    assert {result.verdict.outcome for result in found} == {Outcome.ERRORED}
    assert [result.check for result in found] == ["gates", "freshness"]
    assert all("died" in result.verdict.reason for result in found)
