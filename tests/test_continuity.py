"""The noise state moves by blocks, and a reseed brings a seed's own state back."""

from typing import Any

import pytest
import torch

from oracle.judge.continuity import NoiseTrail

KEY = 7


def counter(before: int, after: int, verb: str = "replay", key: int = KEY) -> dict[str, Any]:
    """A block that found and left these counters."""
    states = [{"dialect": "counter", "seed_key": key, "block": at} for at in (before, after)]
    return {"verb": verb, "before": {"noise": states[0]}, "after": {"noise": states[1]}}


def race(before: int, after: int, *, declared: bool = True) -> dict[str, Any]:
    """A block that found and left these generator states."""
    states = [
        {"dialect": "race", "generator": torch.tensor([at], dtype=torch.uint8)}
        for at in (before, after)
    ]
    around = {"before": {"noise": states[0]}, "after": {"noise": states[1]}}
    return {"verb": "replay", "state_as_declared": declared, **around}


def accept(kind: Any, before: int, after: int, **said: bool) -> dict[str, Any]:
    """An accept that found and left these states."""
    return {**kind(before, after, **said), "verb": "accept"}


RESEED = {"verb": "reseed", "seed": 3}


def complaints(*events: dict[str, Any]) -> list[str]:
    """What is said of each event."""
    trail = NoiseTrail()
    return [trail.complaint(event) for event in events]


@pytest.mark.parametrize(
    "events",
    [
        (counter(4, 5), counter(5, 6, "eager"), counter(6, 7)),
        (counter(4, 5), RESEED, counter(0, 1), {"verb": "load"}, counter(1, 2)),
        (RESEED, race(9, 8), race(8, 7), RESEED, race(9, 8)),
        (counter(4, 5), accept(counter, 5, 5), accept(counter, 5, 5), counter(5, 6)),
        (race(9, 8), accept(race, 8, 7), race(7, 6), RESEED, accept(race, 5, 4), race(4, 3)),
    ],
)
def test_a_state_that_moves_by_blocks_is_fine(events: tuple[dict[str, Any], ...]) -> None:
    """Any first state, one step a block on every path, the same start from the same seed; coins."""
    assert set(complaints(*events)) == {""}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ((counter(4, 6),), "the block left block 6, required: block 5"),
        ((counter(4, 5), counter(4, 5)), "at block 4, required: block 5, which what ran before"),
        ((RESEED, counter(1, 2)), "the first state of seed 3 is block 1, required: block 0"),
        ((RESEED, counter(0, 1), RESEED, counter(0, 1, key=8)), "which the same seed gave first"),
        ((RESEED, race(9, 8), RESEED, race(7, 6)), "which the same seed gave first"),
        ((race(9, 8), race(7, 6)), "which what ran before left"),
        ((race(9, 8, declared=False),), "noise was drawn that the block did not use"),
        ((counter(4, 5), accept(counter, 5, 6)), "the accept left block 6, required: block 5"),
        ((counter(4, 5), accept(counter, 4, 4)), "at block 4, required: block 5"),
        ((race(9, 8), accept(race, 8, 8, declared=False)), "than its buffer of coins does"),
        ((race(9, 8), accept(race, 8, 7), race(8, 7)), "which what ran before left"),
    ],
)
def test_a_state_moved_otherwise_is_told(events: tuple[dict[str, Any], ...], told: str) -> None:
    """The last event is the one that is complained of."""
    *before, last = complaints(*events)
    assert set(before) <= {""}
    assert told in last
