"""Are the tokens of a block right? Asked before anything is timed.

Every draft is judged by the keys of its own step, given the token before it: it has to come within
rounding of the largest. So a near tie in one step excuses that step and not the ones after it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from impl import noise as fast_noise
from impl.choice import counter_keys
from oracle.reference import noise as slow_noise

from .problem import SEED, Problem
from .variant import Variant

# Two roundings to bfloat16 on each of two logits: at most this share of the largest of them.
SLACK = 4 * 2.0**-8
NEAR = 1e-3


@dataclass(frozen=True)
class Parity:
    """Whether the drafts stand, the share judged by keys, and what was wrong."""

    good: bool
    judged: float
    complaint: str = ""


def noise_agrees(problem: Problem) -> bool:
    """Whether the noise that keys are judged with is the reference's, at step 0 of row 0."""
    case = problem.case
    drawn = _noise(problem, 1, 0)[0].double().cpu()
    expected = slow_noise.counter_noise(1, 1, case.vocabulary, 0, SEED)[0, 0]
    return bool(torch.allclose(drawn, expected, rtol=NEAR, atol=0.0))


def judged(variant: Variant, problem: Problem) -> Parity:
    """Run one block from the start of the noise and judge its drafts."""
    variant.restart()
    variant.run()
    tokens = variant.tokens.clone()
    outside = (tokens < 0) | (tokens >= problem.case.vocabulary)
    if bool(outside.any()):
        return Parity(good=False, judged=0.0, complaint=f"{int(outside.sum())} ids outside")
    by_keys = problem.greedy | (variant.draws == "counter")
    previous, wrong = problem.anchor, 0
    for step in range(problem.case.drafts):
        behind = _behind(problem, previous, tokens[:, step], step)
        wrong += int((by_keys & behind).sum())
        previous = tokens[:, step]
    share = float(by_keys.float().mean())
    count = tokens.numel()
    return Parity(wrong == 0, share, f"{wrong} of {count} drafts are no winner" if wrong else "")


def same(one: Tensor, two: Tensor) -> float:
    """The share of equal tokens."""
    return float((one == two).float().mean())


def _behind(problem: Problem, previous: Tensor, chosen: Tensor, step: int) -> Tensor:
    """Whether the key of the chosen token is clearly below the largest, a row."""
    bias = functional.linear(functional.embedding(previous, problem.w1), problem.w2)
    logits = (problem.base[:, step].float() + bias.float()).to(bias.dtype).float()
    heat = problem.temperature.where(~problem.greedy, 1.0)[:, None]
    keys = logits / heat
    if problem.case.samples:
        drawn = _noise(problem, problem.case.rows, step)
        keys = torch.where(problem.greedy[:, None], keys, counter_keys(keys, drawn))
    slack = logits.abs().amax(-1) / heat[:, 0] * SLACK + NEAR
    return keys.amax(-1) - keys.gather(1, chosen[:, None])[:, 0] > slack


def _noise(problem: Problem, rows: int, step: int) -> Tensor:
    source = fast_noise.CounterNoise.seeded(problem.case.vocabulary, SEED, problem.device)
    return fast_noise.counter(source, rows, step, None)
