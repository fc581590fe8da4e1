"""Every check holds on correct samplers, and says unknown where it could not see."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from oracle.judge.answer import judged
from oracle.judge.checks import ALL, accept_rule, draft_law, named, path
from oracle.judge.context import Size, as_inputs, query_rows
from oracle.judge.drive import Driver
from oracle.judge.loading import build
from oracle.judge.protocol import Setting
from oracle.judge.script import Accept, Eager, Load, Plan, block
from oracle.judge.trial import COMBINATIONS, Trial
from oracle.judge.verdict import Outcome, Pending
from oracle.subjects.reference import Reference
from oracle.subjects.reference import factory as reference

from .judging import FOLDED, bad, context, probed, verdict, verdicts
from .zoo.controls import CONTROLS


@pytest.mark.parametrize(
    "combination",
    [
        pytest.param(COMBINATIONS[0], id="dflash"),
        pytest.param(COMBINATIONS[1], id="race", marks=pytest.mark.slow),
        pytest.param(COMBINATIONS[2], id="counter"),
    ],
)
def test_the_folded_sampler_passes_every_check(
    engine_name: str, combination: tuple[str, str]
) -> None:
    """All checks, each with a verdict that is not empty."""
    found = verdicts(FOLDED, context(combination, engine=engine_name), (combination,))
    assert set(found) == {check.NAME for check in ALL}
    for results in found.values():
        assert results
        assert not bad(results), [result.verdict.reason for result in bad(results)]


@pytest.mark.parametrize("name", ["reference", "torch_multinomial"])
def test_healthy_controls_pass(name: str) -> None:
    """Correct but different samplers are not accused, and most checks do apply to them."""
    found = verdicts(CONTROLS[name], context(), (("dspark", "counter"),))
    for results in found.values():
        assert not bad(results), [result.verdict.reason for result in bad(results)]
    held = [r for results in found.values() for r in results if r.verdict.outcome is Outcome.HOLDS]
    assert len(held) >= 8


def test_a_sampler_that_tells_no_path_may_pad_to_its_bucket() -> None:
    """Race noise of the live rows or of their bucket: the state it leaves says which it was."""
    checks = ("equality", "coupled")
    for name in ("without_recording", "reference"):
        found = verdicts(CONTROLS[name], context(), (("dspark", "race"),), checks)
        for results in found.values():
            assert {result.verdict.outcome for result in results} == {Outcome.HOLDS}


@pytest.mark.slow
def test_a_holding_verdict_states_what_it_would_have_seen() -> None:
    """No check may hold without an effect and a count."""
    found = verdicts(reference, context(), (("dspark", "race"),))
    for results in found.values():
        for result in results:
            if result.verdict.outcome is Outcome.HOLDS:
                assert result.verdict.effect
                assert result.verdict.used > 0


def test_abilities_that_are_not_claimed_are_counted_as_such() -> None:
    """The reference records nothing, so path does not apply, by name."""
    found = verdicts(reference, context(), (("dspark", "counter"),), ("path", "writeset"))
    for check in ("path", "writeset"):
        (result,) = found[check]
        assert result.verdict.outcome is Outcome.NOT_APPLICABLE
        assert "does not claim" in result.verdict.reason


def test_an_unserved_combination_is_declined_for_every_check() -> None:
    """torch.multinomial cannot draft greedily in parallel: one answer a check, with its reason."""
    found = verdicts(CONTROLS["torch_multinomial"], context(), (("dflash", "none"),))
    for results in found.values():
        assert [r.verdict.outcome for r in results] == [Outcome.NOT_APPLICABLE]
        assert "dflash is greedy" in results[0].verdict.reason


class Breaks(Reference):
    """Raises in the middle of a run."""

    def replay(self) -> None:
        """Fail at the third block."""
        if self.blocks == 2:
            raise MemoryError("no room for block 3")
        super().replay()


def test_a_subject_that_raises_has_errored() -> None:
    """Its own words are kept, and nothing holds."""
    found = verdicts(Breaks, context(), (("dspark", "counter"),), ("freshness",))
    assert {r.verdict.outcome for r in found["freshness"]} == {Outcome.ERRORED}
    assert "MemoryError: no room for block 3" in found["freshness"][0].verdict.reason


class Widens(Reference):
    """Returns tokens of another dtype."""

    def read(self) -> Mapping[str, torch.Tensor]:
        """Tokens as int32."""
        return {**self.outputs, "tokens": self.outputs["tokens"].int()}


def test_a_malformed_answer_names_field_dtype_and_shape() -> None:
    """Observed and required are both there."""
    found = verdicts(Widens, context(), (("dspark", "counter"),), ("bounds",))
    reason = found["bounds"][0].verdict.reason
    assert reason == "tokens is int32 (8, 3), required: int64 (8, 3)"


def test_a_subject_that_says_it_did_not_fold_is_unknown() -> None:
    """path never turns a missing replay into a pass."""
    base = probed(context())
    plan = path.plans(base)[0]
    trial = Trial(FOLDED, base)
    history, _ = trial.case(named("path"), plan, base)
    assert history is not None
    for event in history.of("replay"):
        event["after"]["path"]["folded"] = False
        event["after"]["path"]["reason"] = "recording did not run"
    answer = judged(named("path"), history, trial.ledger)
    assert not isinstance(answer, Pending)
    assert answer.outcome is Outcome.UNKNOWN
    assert "recording did not run" in answer.reason


class TooHot(Reference):
    """Draws at 1.07 times the temperature in its first 64 replays only.

    So little alarms chi-square at 1e-3, and nothing that reads deeper.
    """

    replays = 0
    tilt = 1.07

    def load(self, inputs: Mapping[str, torch.Tensor]) -> None:
        """Load hot, and cool down later."""
        super().load({**inputs, "temperature": inputs["temperature"] * self.tilt})
        self.cool = dict(inputs)

    def replay(self) -> None:
        """Count, and use the right temperature once stage one is over."""
        if self.replays == 64:
            super().load(self.cool)
        self.replays += 1
        super().replay()


def test_stage_two_draws_afresh_on_the_same_subject() -> None:
    """An alarm that fresh draws do not confirm is no violation, and says that it was confirmed."""
    base = context()
    plan = draft_law.plan(base, Size(rows=256, drafts=1, vocabulary=8), replays=64)
    answer = verdict("draft_law", plan, base, TooHot)
    assert answer.outcome is Outcome.HOLDS
    assert "confirmed by fresh draws" in answer.reason


def test_a_fault_that_stays_is_confirmed() -> None:
    """The same sampler, hot all the time, is violated at stage two."""

    class StaysHot(TooHot):
        replays = -(10**9)

    base = context()
    plan = draft_law.plan(base, Size(rows=256, drafts=1, vocabulary=8), replays=64)
    answer = verdict("draft_law", plan, base, StaysHot)
    assert answer.outcome is Outcome.VIOLATED
    assert "on fresh draws" in answer.reason


def test_what_the_bank_sees_needs_no_confirmation() -> None:
    """A sampler as hot as a member of the bank is violated at stage one, and the member named."""

    class MuchTooHot(TooHot):
        tilt = 1.3

    base = context()
    plan = draft_law.plan(base, Size(rows=256, drafts=1, vocabulary=8), replays=64)
    history, answer = Trial(MuchTooHot, base).case(draft_law, plan, base)
    assert answer.outcome is Outcome.VIOLATED
    assert "as likely under 'T +30 %' as under the law" in answer.reason
    assert history is not None
    assert history.stages == 1


@pytest.mark.parametrize("combination", COMBINATIONS)
@pytest.mark.parametrize("rule", ["chain", "block"])
def test_an_accept_belongs_to_the_block_read_last(combination: tuple[str, str], rule: str) -> None:
    """Not to what is loaded: after an eager block, and after a load that nothing ran yet."""
    base, rows = context(combination), 5
    material = base.workload.material(3, 19, torch.float32)
    setting = base.setting(material, drafts=accept_rule.DRAFTS, buckets=(8,))
    inputs = {}
    for number, name in enumerate("xy"):
        hidden, anchor = base.workload.rows(number, material, rows, query_rows(setting))
        heat = torch.tensor([0.7, 1.0, 50.0, 0.0, 1.3]).roll(number)
        top_k = torch.full((rows,), 6 - 2 * number)
        inputs[name] = as_inputs(setting, hidden, (anchor + number) % 19, heat, top_k)
    inputs["target"] = {**accept_rule.target(1, 19, rows), "top_p": torch.ones(rows)}
    accept = Accept("target", rule)
    commands = (*block("x"), Eager("y"), accept, Load("y"), *block("x"), Load("y"), accept)
    plan = Plan("accept_rule", "two inputs", setting, inputs, commands)
    history, answer = Trial(FOLDED, base).case(accept_rule, plan, base)
    assert answer.outcome is Outcome.HOLDS, answer.reason
    assert history is not None
    assert [event["inputs"] for event in history.of("accept")] == ["y", "x"]


def test_the_driver_sees_poison_that_does_not_take() -> None:
    """A buffer that is handed out as a copy cannot be poisoned, and that is an error."""

    class HandsOutCopies(Reference):
        def describe(self) -> Mapping[str, Any]:
            return {"name": "copies", "abilities": ("BUFFERS",)}

        def buffers(self) -> Mapping[str, Any]:
            read_only = torch.zeros(1).expand(4)
            return {"tokens": {"tensor": read_only, "role": "luck", "pad": "undefined", "rows": 1}}

    base = context()
    plan = draft_law.plan(base, Size(rows=4, drafts=1, vocabulary=8), replays=1)
    setting: Setting = plan.setting
    subject = build(HandsOutCopies, setting)
    trial = Trial(HandsOutCopies, base)
    driver = Driver(subject, plan, trial.opened(plan, subject, base))
    with pytest.raises(Exception, match="has role 'luck', required"):
        driver.buffer("tokens")
