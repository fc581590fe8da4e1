"""The strategies for outsiders: what they draw is legal, varied, and holds on the reference."""

from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from oracle import strategies
from oracle.judge.context import Context, query_rows
from oracle.judge.protocol import INPUTS
from oracle.judge.question import Asked
from oracle.judge.script import Eager, Load, Plan
from oracle.judge.suite import Suite
from oracle.judge.verdict import Outcome

SUITE = Suite(Asked("reference"))
QUICK = settings(max_examples=8, deadline=None)


@QUICK
@given(st.data())
def test_scripts_hold_on_the_reference(data: st.DataObject) -> None:
    """Every drawn plan is one that a correct sampler passes."""
    combination = data.draw(strategies.combinations())
    context = SUITE.probed(combination)
    assert isinstance(context, Context)
    plan = data.draw(strategies.scripts(context))
    history, verdict = SUITE.played(plan, context)
    assert verdict.outcome is Outcome.HOLDS, verdict.reason
    assert len(history.of("read", "eager")) >= 1


@QUICK
@given(st.data())
def test_inputs_are_as_the_protocol_has_them(data: st.DataObject) -> None:
    """Names, rows and dtypes; anchors are ids; at most the largest bucket."""
    setting = data.draw(strategies.settings())
    drawn = data.draw(strategies.inputs(setting))
    rows = len(drawn["anchor"])
    assert set(drawn) <= set(INPUTS)
    assert 1 <= rows <= setting["buckets"][-1]
    assert drawn["hidden"].shape == (rows, query_rows(setting), setting["head"].shape[1])
    assert drawn["hidden"].dtype == setting["head"].dtype
    assert {len(tensor) for tensor in drawn.values()} == {rows}
    assert int(drawn["anchor"].max()) < setting["vocabulary"]


def edits(plan: Plan) -> bool:
    """Whether a plan writes into tensors that it loaded before."""
    return any(isinstance(c, Load) and c.edit for c in plan.commands)


def pads(plan: Plan) -> bool:
    """Whether some load leaves rows of every bucket empty."""
    widest = plan.setting["buckets"][-1]
    return any(len(given["anchor"]) < widest for given in plan.inputs.values())


def runs_eagerly(plan: Plan) -> bool:
    """Whether a block runs outside the recording."""
    return any(isinstance(c, Eager) for c in plan.commands)


@pytest.mark.parametrize("wanted", [edits, pads, runs_eagerly], ids=lambda one: one.__name__)
def test_what_matters_is_drawn(wanted) -> None:
    """Each kind of block that hides faults is found within few examples."""
    context = replace(strategies.context_of(), abilities=("EAGER",))
    few = settings(max_examples=60, phases=[Phase.generate], derandomize=True, database=None)
    assert wanted(find(strategies.scripts(context), wanted, settings=few))


def test_only_what_a_subject_claims_is_drawn() -> None:
    """Without an ability there is no such block, and no such setting."""
    few = settings(max_examples=15, phases=[Phase.generate], derandomize=True, database=None)

    @few
    @given(strategies.scripts())
    def plain(plan: Plan) -> None:
        assert not runs_eagerly(plan)
        assert plan.setting["forward"] == "given"

    plain()
