"""Mutants of the reference and the judge: the list of survivors is in order, and is the truth."""

import json
from pathlib import Path

import pytest

from .house.tree import ROOT, plant
from .mutation.guards import GUARDS, source_of
from .mutation.listing import Survivor, complaints, differences, read
from .mutation.mutants import Mutant, outcome, run

REASON = "the sum is the same either way round"
SOURCE = """
class Pair:
    def total(self):
        return self.a + self.b


def least(a, b):
    return min(
        a,
        b,
    )
"""
GENERATED = """
class Pair:
    def xǁPairǁtotal__mutmut_orig(self):
        return self.a + self.b
    def xǁPairǁtotal__mutmut_1(self):
        return self.a - self.b

def x_least__mutmut_orig(a, b):
    return min(
        a,
        b,
    )
def x_least__mutmut_1(a, b):
    return min(
        None,
        b,
    )
def x_least__mutmut_2(a, b):
    return min(
        a,
        )
"""
SUM = Mutant("Pair.total", "return self.a + self.b", "return self.a - self.b")
FIRST = Mutant("least", "a,", "None,")
ONE = Mutant("least", "b, )", ")")
MODULE = "oracle.judge.sums"


def test_guards_and_modules_exist() -> None:
    """A renamed file is not forgotten, and no guard is a long test alone."""
    for module, guards in GUARDS.items():
        assert (ROOT / source_of(module)).is_file()
        assert guards
        assert all((ROOT / "tests" / guard).is_file() for guard in guards)


def test_the_list_is_in_order() -> None:
    """Each survivor names lines that are still there, once, and a reason."""
    assert complaints(read(), set(GUARDS)) == []


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ([Survivor(SUM, REASON), Survivor(ONE, REASON)], None),
        ([Survivor(SUM, "")], "has no reason"),
        ([Survivor(SUM, REASON), Survivor(SUM, REASON)], "is listed twice"),
        ([Survivor(SUM._replace(line="return self.a * self.b"), REASON)], "has no line"),
        ([Survivor(SUM._replace(function="least"), REASON)], "has no line"),
        ([Survivor(SUM._replace(mutant=SUM.line), REASON)], "is no change"),
    ],
)
def test_a_fault_of_the_list_is_noticed(
    listed: list[Survivor], expected: str | None, tmp_path: Path
) -> None:
    """Stale lines, repeats and missing reasons."""
    root = plant(tmp_path, {source_of(MODULE): SOURCE})
    found = complaints({MODULE: listed}, {MODULE}, root)
    if expected is None:
        assert found == []
    else:
        assert found
        assert all(expected in complaint for complaint in found)
    assert complaints({"oracle.judge.else": []}, {MODULE}, root) == [
        "oracle.judge.else is not mutated"
    ]


def test_a_survivor_is_listed_and_a_listed_mutant_survives() -> None:
    """Both ways round."""
    assert differences([SUM, SUM], [Survivor(SUM, REASON)]) == []
    (new,) = differences([SUM, ONE], [Survivor(SUM, REASON)])
    assert new == "survives, is not listed: least: b, )  ->  )"
    (gone,) = differences([], [Survivor(SUM, REASON)])
    assert gone.startswith("is listed, survives no more: Pair.total")


def test_what_the_tool_leaves_behind_is_read(tmp_path: Path) -> None:
    """A kill, an end by the clock and two that live: not noticed, not reached."""
    names = ("xǁPairǁtotal__mutmut_1", "x_least__mutmut_1", "x_least__mutmut_2")
    path = source_of(MODULE)

    def left(*codes: int | None) -> Path:
        keys = dict(zip((f"{MODULE}.{name}" for name in names), codes, strict=True))
        record = json.dumps({"exit_code_by_key": keys})
        return plant(tmp_path, {path: GENERATED, f"{path}.meta": record})

    assert outcome(MODULE, left(0, 1, 33)) == (1, 0, [SUM, ONE])
    assert outcome(MODULE, left(36, 0, -24)) == (0, 2, [FIRST])
    with pytest.raises(RuntimeError, match=r"3 mutants of .*, 1 were not checked"):
        outcome(MODULE, left(1, None, 1))


@pytest.mark.slow
def test_the_survivors_of_one_module_are_those_of_the_list(tmp_path: Path) -> None:
    """The tool is run as the command runs it."""
    module = "oracle.reference.shards"
    found = run(module, tmp_path)
    assert found.killed > found.total / 2
    assert differences(found.survivors, read()[module]) == []
