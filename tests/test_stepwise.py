"""Adapters of single calls: laws and commits, accept rules that are not served, hidden coins."""

from typing import Any

import pytest
import torch

from oracle.judge.checks import named
from oracle.judge.context import PROFILES, Context
from oracle.judge.trial import Result, Trial, workload_named
from oracle.judge.verdict import Outcome
from oracle.reference import acceptance, choice, filters
from oracle.subjects import stepwise, torch_ops
from oracle.subjects.reference import Reference

from .strategies import grid, source


class ChainAlone(Reference):
    """The reference without block verification."""

    def describe(self) -> dict[str, Any]:
        """It says so."""
        return {**super().describe(), "rules": ("chain",)}


class Hides(ChainAlone):
    """Its coins are its own."""

    def accept(self, target: Any) -> Any:
        """Put NaN in their place."""
        commit = super().accept(target)
        return {**commit, "coins": stepwise.hidden_coins(self.outputs["tokens"])}


class Picks(stepwise.Stepwise):
    """Draws by a race."""

    def pick(self, logits: Any, heat: Any, greedy: Any, step: int) -> Any:
        """Sampled rows by the race, others by argmax."""
        del step
        drawn = self.raced(torch.softmax(logits.float() / heat[:, None], -1))
        return torch.where(greedy, logits.argmax(-1), drawn)


def played(factory: Any, check: str, profile: str = "smoke") -> list[Result]:
    """One check on counter noise."""
    source = workload_named("synthetic")
    context = Context("dspark", "counter", "cpu", "eager", 0, PROFILES[profile], source)
    trial = Trial(factory, context, checks=(named(check),), combinations=(("dspark", "counter"),))
    return list(trial.run())


def test_a_rule_that_is_not_served_does_not_apply() -> None:
    """Chain is judged, block is not, and the reason says which."""
    seen = {result.case: result.verdict for result in played(ChainAlone, "accept_rule")}
    assert seen["rule chain"].outcome is Outcome.HOLDS
    assert seen["rule block"].outcome is Outcome.NOT_APPLICABLE
    assert seen["rule block"].reason == "the subject has no accept rule 'block'"


def test_hidden_coins_leave_the_rule_undecided() -> None:
    """Neither green nor red: the rule coin by coin does not apply."""
    for result in played(Hides, "accept_rule"):
        assert result.verdict.outcome is Outcome.NOT_APPLICABLE
    reasons = [r.verdict.reason for r in played(Hides, "accept_rule")]
    assert reasons[0] == "the subject does not show the coins of its accept"


@pytest.mark.parametrize(("top_k", "top_p"), [(9, 1.0), (3, 1.0), (9, 0.6), (4, 0.5)])
def test_the_target_law_of_adapters_is_that_of_the_reference(top_k: int, top_p: float) -> None:
    """Temperature, top-k, top-p: within the rounding of float32."""
    logits = grid(source(4), 5, 4, 9)
    heat = torch.tensor([0.3, 0.7, 1.0, 1.5, 4.0])
    top = torch.full((5,), top_k), torch.full((5,), top_p)
    found = stepwise.target_law(logits, heat, *top)
    columns = (
        part.double()[:, None] if part.is_floating_point() else part[:, None] for part in top
    )
    required = filters.target_law(logits.double(), heat.double()[:, None], *columns)
    assert torch.allclose(found.double(), required, rtol=1e-5, atol=1e-7)


def test_a_commit_is_laid_out_as_the_reference_does() -> None:
    """All lengths of acceptance and of verification, zero included."""
    tokens = torch.tensor([[5, 6, 7]] * 8)
    accepted = torch.tensor([0, 1, 2, 3, 3, 3, 3, 3])
    length = torch.tensor([4, 4, 4, 4, 3, 2, 1, 0])
    bonus, prefix = torch.arange(20, 28), torch.arange(8)
    broken = torch.zeros(8, dtype=torch.bool)
    required = acceptance.commit(tokens, accepted, bonus, broken, length, prefix)
    cut = torch.minimum(accepted, (length - 1).clamp(min=0))
    target = {"verify_len": length, "prefix_len": prefix}
    found = stepwise.laid_out(cut, bonus, accepted - cut, tokens, target)
    for name, part in required._asdict().items():
        assert torch.equal(found["accept_flags" if name == "flags" else name].long(), part.long())


def test_laws_of_a_block_are_one_hot_on_greedy_rows() -> None:
    """p and q of what an adapter drafted, as the reference claims them."""
    workload = workload_named("synthetic")
    material = workload.material(0, 7, torch.float32)
    context = Context("dspark", "counter", "cpu", "eager", 0, PROFILES["smoke"], workload)
    setting = context.setting(material, drafts=3, buckets=(4,))
    subject = Picks(setting)
    hidden, anchor = workload.rows(0, material, 4, 3)
    heat, top_k = torch.tensor([0.5, 1.0, 0.0, 2.0]), torch.tensor([9, 1, 9, 9])
    subject.load({"hidden": hidden, "anchor": anchor, "temperature": heat, "top_k": top_k})
    subject.replay()
    read = subject.read()
    logits = grid(source(1), 4, 4, 7)
    p, q = subject.laws({"target_logits": logits, "top_p": torch.ones(4)})
    greedy = choice.is_greedy(heat, top_k)
    assert torch.equal(read["greedy"], greedy)
    own = choice.clamped(heat)
    required = acceptance.claimed_law(read["step_logits"].double(), own, read["tokens"], greedy)
    assert torch.allclose(q.double(), required, atol=1e-6)
    assert torch.equal(p[greedy].argmax(-1), logits[greedy].argmax(-1))
    assert torch.equal(p[greedy].sum(-1), torch.ones(2, 4))


@pytest.mark.parametrize("factory", [torch_ops.factory, torch_ops.race, torch_ops.categorical])
def test_torchs_own_samplers_hold(factory: Any) -> None:
    """Every id can be drawn, and greedy rows are argmaxes."""
    for check in ("spike", "equality"):
        outcomes = {result.verdict.outcome for result in played(factory, check)}
        assert outcomes <= {Outcome.HOLDS, Outcome.NOT_APPLICABLE}
        assert Outcome.HOLDS in outcomes


def test_categorical_leaves_the_default_generator_alone() -> None:
    """It draws from a fork of it."""
    workload = workload_named("synthetic")
    material = workload.material(0, 7, torch.float32)
    context = Context("dspark", "counter", "cpu", "eager", 0, PROFILES["smoke"], workload)
    subject = torch_ops.categorical(context.setting(material, drafts=1, buckets=(4,)))
    before = torch.default_generator.get_state()
    first, second = (subject.sampled(torch.zeros(64, 97)) for _ in range(2))
    assert torch.equal(torch.default_generator.get_state(), before)
    assert not torch.equal(first, second)
