"""Controls are not flagged, and faults below a stated effect are as far below as they say."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from oracle.judge import planning
from oracle.judge.checks import accept_length, claim, coupled, named, retention
from oracle.judge.context import PROFILES
from oracle.judge.protocol import Factory
from oracle.judge.script import Load
from oracle.judge.trial import Result
from oracle.judge.verdict import Outcome
from oracle.reference import choice, draft, filters, law, logits

from .judging import SMALL, context, probed, verdict, verdicts
from .zoo.controls import CONTROLS, SPARED, spared
from .zoo.controls.below import BELOW, Below
from .zoo.controls.stages import in_pieces
from .zoo.jobs import judged
from .zoo.matrix import CHECKS, State, dealt

RACE, COUNTER = ("dspark", "race"), ("dspark", "counter")
# What is different about these is in their recordings; of the others a few eager blocks are enough.
RECORDED = ("early_noise", "more_buckets", "extra_buffers", "copied_at_the_border")
# Where the same fault has to be seen, in units of what the check states.
SEEN = 6.0
LONG = ("claim", "draft_law", "noise_law", "independence", "block_law", "accept_length", "lossless")


def some(names: tuple[str, ...]) -> list[object]:
    """Faint faults as parameters; those of long checks are slow."""
    return [
        pytest.param(name, marks=pytest.mark.slow if BELOW[name].check in names else ())
        for name in BELOW
    ]


def own_check(one: Below, factory: Factory) -> list[Result]:
    """What the check of a faint fault says of a subject at the sizes of the suite."""
    return verdicts(factory, context(engine="eager"), (COUNTER,), (one.check,))[one.check]


def test_there_are_enough_of_both() -> None:
    """Sixteen correct samplers, five faint faults, no name twice, none of a specimen."""
    assert len(CONTROLS) >= 16
    assert len(BELOW) >= 5
    assert len(set(SPARED)) == len(SPARED)
    assert len({one.check for one in BELOW.values()}) == len(BELOW)


@pytest.mark.parametrize("name", SPARED)
def test_a_control_passes_what_is_cheap(name: str) -> None:
    """One plan: draws on known noise where it is shown, in the two dialects in turn; or blocks."""
    turn = (COUNTER, RACE)[SPARED.index(name) % 2]
    engine = "emulator" if name in RECORDED else "eager"
    factory = spared(name, SMALL)
    base = probed(context(COUNTER if name == "two_ranks" else turn, engine=engine), factory)
    shows = "NOISE" in base.abilities
    few = coupled.plan(replace(base, profile=replace(SMALL, wrong=0.01)), 8)
    plan = few if shows else retention.plans(base)[0]
    answer = verdict(plan.check, plan, base, factory)
    assert answer.outcome is Outcome.HOLDS, answer.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", SPARED)
def test_a_control_passes_every_check(name: str) -> None:
    """Each in one combination, dealt in turn; `python -m tests.zoo --full` has all of them."""
    cells = [judged(job, "small", 0) for job in dealt(SPARED.index(name), name, "small", CHECKS)]
    assert [
        (c.job.label, c.job.check, c.reason) for c in cells if c.state is State.UNEXPECTED
    ] == []
    assert any(cell.state is State.PASSED for cell in cells)


@pytest.mark.parametrize("name", some(LONG))
def test_a_faint_fault_lies_below_what_its_check_states(name: str) -> None:
    """The check holds on it; the effect in its report is five times the fault, or more."""
    one = BELOW[name]
    results = own_check(one, one.factory(SMALL))
    assert {result.verdict.outcome for result in results} == {Outcome.HOLDS}
    told = [re.search(one.says, result.verdict.effect) for result in results]
    effects = [one.read(float(found.group(1))) for found in told if found]
    assert effects, [result.verdict.effect for result in results]
    for effect in effects:
        assert effect / 60 <= one.size(SMALL) <= effect / 5


@pytest.mark.parametrize("name", some(LONG))
def test_the_same_fault_is_seen_when_it_is_large(name: str) -> None:
    """At a few times the stated effect the check is not silent."""
    one = BELOW[name]
    large = SEEN * one.stated(context())
    outcomes = {r.verdict.outcome for r in own_check(one, lambda given: one.build(given, large))}
    assert Outcome.VIOLATED in outcomes


def test_sizes_follow_the_profile() -> None:
    """A profile that sees less has smaller faults."""
    half = replace(SMALL, tilt=SMALL.tilt / 2)
    assert BELOW["warmer_by_a_tenth"].size(half) == BELOW["warmer_by_a_tenth"].size(SMALL) / 2
    for name in ("deep_floor", "leaning_final_draw", "seldom_foreign_token"):
        assert BELOW[name].size(PROFILES["ci"]) < BELOW[name].size(SMALL) / 2


def test_the_bent_temperature_changes_fewer_draws_than_claim_sees() -> None:
    """In one race on common noise, over the requests of the check, at its coldest temperature."""
    one, (plan,) = BELOW["slightly_bent_temperature"], claim.plans(context())
    inputs, setting = plan.inputs["x"], plan.setting
    rows = logits.draft_rows(inputs["hidden"], setting["drafts"])
    base = logits.base_logits(rows, setting["head"], setting["vocabulary"])[:64, 0]
    bias = draft.vanilla(setting["w1"], setting["w2"])(inputs["anchor"][:64])
    heat = inputs["temperature"][:64].double()[:, None]
    bend = one.size(SMALL) / coupled.CHANGED_PER_TILT / abs(math.log(min(claim.HEATS)))
    laws, bent = (torch.softmax((base + bias) / t, -1).numpy() for t in (heat, heat ** (1 + bend)))
    changed = np.mean([planning.changed(p, q) for p, q in zip(laws, bent, strict=True)])
    assert 0 < changed <= one.stated(context()) / 5


def test_leaning_coins_change_lengths_less_than_is_seen() -> None:
    """The chance of each length, enumerated with straight coins and with bent ones."""
    one, (plan, _) = BELOW["leaning_coins"], accept_length.plans(context())
    setting, inputs, goal = plan.setting, plan.inputs["x"], plan.inputs["target"]
    (load, *_) = plan.commands
    assert isinstance(load, Load)
    anchor, heat = int(inputs["anchor"][0]), choice.clamped(inputs["temperature"][:1])
    rows = logits.draft_rows(inputs["hidden"][:1], setting["drafts"])
    base = logits.base_logits(rows, setting["head"], setting["vocabulary"])[0]
    markov = draft.vanilla(setting["w1"], setting["w2"])
    q = law.transitions(base, markov, float(heat), torch.float32)
    many = setting["vocabulary"]
    top_k = torch.full((many,), accept_length.EVERY_ID)
    p = filters.target_law(goal["table"], heat.expand(many), top_k, torch.ones(many))

    def reached(bend: float) -> list[float]:
        accepted = (p / q).clamp(max=1.0) ** (1 / (1 + bend))
        first = q[0, anchor] * accepted[0, anchor]
        return [float(first.sum()), float((first @ (q[1] * accepted[1])).sum())]

    straight, leaning = reached(0.0), reached(one.size(SMALL))
    changes = [there / here - 1 for here, there in zip(straight, leaning, strict=True)]
    assert all(0 < change <= one.stated(context()) / 5 for change in changes)


def test_a_leaning_end_is_no_further_off_than_its_size() -> None:
    """Root chi-square distance of u ** (1 + bend) from a uniform; a token is a function of it."""
    bend = BELOW["leaning_final_draw"].size(SMALL)
    power = bend / (1 + bend)
    u = (np.arange(10**6) + 0.5) / 10**6
    density = (1 - power) * u**-power
    distance = math.sqrt(float(((density - 1) ** 2).mean()))
    assert distance == pytest.approx(power / math.sqrt(1 - 2 * power), rel=0.01)
    assert distance <= bend


def test_pieces_add_up() -> None:
    """Three bfloat16 values make a float32 one, bit for bit; an infinity stays one."""
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    values[0] = torch.inf
    pieces = in_pieces(values)
    assert all(torch.equal(piece, piece.bfloat16().float()) for piece in pieces)
    assert torch.equal(torch.stack(pieces).double().sum(0).float(), values)


def test_every_faint_fault_names_a_check() -> None:
    """And reports of that check can be read."""
    for one in BELOW.values():
        assert one.check == named(one.check).NAME
        assert re.compile(one.says).groups == 1
