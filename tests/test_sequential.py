"""The stopping rule: always valid, quick on healthy draws, and as strong as it says."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from oracle.judge.bank import log_values, rejects, tilted
from oracle.judge.evidence import Evidence, Law, add, digest_of, on_grid
from oracle.judge.sequential import (
    Rule,
    bank_of,
    decide,
    ended,
    fixed_draws,
    spread,
    strongest,
)
from oracle.judge.significance import Floats
from oracle.judge.verdict import Outcome, Verdict

LAW = np.array([[0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02]])
ONE = np.ones(1)


def peaked(vocabulary: int) -> Floats:
    """The log of a softmax of normal logits, as in the tables of the design."""
    logits = 1.5 * np.random.default_rng(0).standard_normal((1, vocabulary))
    return logits - np.log(np.exp(logits).sum())


def stream(log_law: Floats, drawn: Floats, chunk: int, seed: int, rule: Rule) -> Iterator[Evidence]:
    """Evidence after each chunk of draws from `drawn`, judged against `log_law`."""
    draw = np.random.default_rng(seed)
    bank = bank_of(log_law, 1.0, rule.effect)
    names, digest = tuple(member.name for member in bank), digest_of(log_law)
    total: Evidence | None = None
    for number in range(10_000):
        counts = draw.multinomial(chunk, np.exp(drawn[0]))[None]
        values = on_grid(log_values(counts, bank))
        seeds = frozenset({number})
        fresh = Evidence("c", "s", {}, names, values, (Law(0, digest, counts),), seeds)
        total = add(total, fresh) if total else fresh
        yield total


def judged(log_law: Floats, tilt: float, chunk: int, seed: int, rule: Rule) -> Verdict:
    """The verdict of a whole sequence on draws at a temperature that is `tilt` off."""
    found = (decide(e, rule) for e in stream(log_law, tilted(log_law, tilt), chunk, seed, rule))
    return next(verdict for verdict in found if verdict is not None)


def test_looking_again_and_again_spends_the_alarm_once() -> None:
    """Of 200 correct runs, looked at 50 times, at most alpha and 3 sigma ever reach 1 / alpha.

    The same looks at a chi-square of the same counts reach its level far more often, so the
    sequences do tempt.
    """
    alpha, runs = 0.05, 200
    log_law = np.log(LAW)
    bank = bank_of(log_law, 1.0, 0.02)
    bound = runs * alpha + 3 * math.sqrt(runs * alpha * (1 - alpha))
    crossed = tempted = 0
    for run in range(runs):
        counts = np.random.default_rng([7, run]).multinomial(2000, LAW[0], size=50).cumsum(axis=0)
        crossed += any(rejects(log_values(c[None], bank), alpha) for c in counts)
        expected = counts.sum(axis=1, keepdims=True) * LAW
        squares = ((counts - expected) ** 2 / expected).sum(axis=1)
        tempted += bool((stats.chi2.sf(squares, 7) < alpha).any())
    assert crossed <= bound
    assert tempted > bound


def test_healthy_draws_end_early_and_faulty_ones_earlier_than_planned() -> None:
    """V = 128, alarm 1e-9, effect 1 %: the means of the design, 1.7e5 and 1.2e5, within a third."""
    log_law = peaked(128)
    rule = Rule(1e-9, 0.01)
    plan = fixed_draws(spread(log_law, ONE), 0.01, rule.alarm, 0.05)
    used: dict[float, list[int]] = {0.0: [], 0.02: []}
    for tilt, outcome in ((0.0, Outcome.HOLDS), (0.02, Outcome.VIOLATED)):
        for seed in range(12):
            verdict = judged(log_law, tilt, 5000, seed, rule)
            assert verdict.outcome is outcome
            used[tilt].append(verdict.used)
    # The design's law has a variance of 1.29, and n goes like its inverse.
    scale = 1.29 / spread(log_law, ONE)
    assert np.mean(used[0.0]) == pytest.approx(1.7e5 * scale, rel=1 / 3)
    assert np.mean(used[0.02]) == pytest.approx(1.2e5 * scale, rel=1 / 3)
    assert max(np.mean(used[0.0]), np.mean(used[0.02])) < plan / 2


@pytest.mark.parametrize("tilt", [0.01, -0.01])
def test_a_fault_of_the_stated_size_does_not_hold(tilt: float) -> None:
    """Of 20 samplers that are off by just the effect, none ends as holding (bound: 1 in 1000)."""
    rule = Rule(1e-6, 0.01)
    outcomes = [judged(peaked(128), tilt, 20_000, seed, rule).outcome for seed in range(20)]
    assert set(outcomes) == {Outcome.VIOLATED}


def test_both_signs_have_to_be_refuted() -> None:
    """Draws that refute a hotter sampler alone do not end the run."""
    rule = Rule(1e-6, 0.05)
    log_law = peaked(128)
    half = next(stream(log_law, tilted(log_law, -0.025), 20_000, 0, rule))
    hotter, colder = (half.log_e[half.members.index(name)] for name in rule.names)
    assert hotter < math.log(rule.bound) < colder
    assert decide(half, rule) is None
    assert ended([half], rule, "the time is over")[0].outcome is Outcome.UNKNOWN


def test_a_verdict_prints_draws_strongest_member_and_effect() -> None:
    """All three answers, and one without any draw."""
    rule, log_law = Rule(1e-6, 0.02), peaked(128)
    healthy, hot = judged(log_law, 0.0, 5000, 1, rule), judged(log_law, 0.1, 5000, 1, rule)
    assert (healthy.outcome, hot.outcome) == (Outcome.HOLDS, Outcome.VIOLATED)
    assert "T off by 2 %, missed with probability 0.001 at most" in healthy.effect
    assert "strongest is 'T +10 %'" in hot.reason
    short = next(stream(log_law, log_law, 100, 1, rule))
    late, never = ended([short, None], rule, "60 s are over")
    assert (late.outcome, never.outcome) == (Outcome.UNKNOWN, Outcome.UNKNOWN)
    assert late.used == 100
    for words in ("60 s are over", "T off by 2 %", strongest(short)[0], "required <= -6.908"):
        assert words in late.reason
    assert never.reason == "60 s are over: nothing was drawn"


def test_a_bank_without_the_stated_effect_is_refused() -> None:
    """Evidence of another effect cannot answer for this one."""
    one = next(stream(peaked(16), peaked(16), 1000, 1, Rule(1e-6, 0.02)))
    with pytest.raises(ValueError, match="the bank lacks 'stated effect: T \\+1 %'"):
        decide(one, Rule(1e-6, 0.01))


def test_the_fixed_plan_is_that_of_the_design() -> None:
    """Var(log p) of the V = 8 base law is .37; 1e6 draws see 1.27 % of it, .68 % at 1.29."""
    assert spread(np.log(LAW), ONE) == pytest.approx(0.37, abs=0.005)
    assert fixed_draws(0.37, 0.0127, 1e-9, 0.05) == pytest.approx(1e6, rel=0.02)
    assert fixed_draws(1.29, 0.0068, 1e-9, 0.05) == pytest.approx(1e6, rel=0.02)
    assert spread(np.full((1, 8), -math.log(8)), ONE) == pytest.approx(0, abs=1e-12)
