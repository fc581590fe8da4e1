"""Our block as variants: eager and folded, with the stages that a configuration names.

The chain stands alone: its base logits are given, and the arrow that would make them does nothing.
With a head the whole block runs.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from impl.bias import MarkovHead
from impl.config import Config
from impl.graph import engine_for
from impl.logits import BorrowedHead, OutputHead
from impl.noise import Noise, preserved
from impl.plan import Plan, Refusal, Surroundings
from impl.sampler import (
    DraftSampler,
    admit,
    build_dflash_sampler,
    build_dspark_sampler,
    noise_for,
)
from impl.stages import Stages

from .clock import Run
from .problem import SEED, UNLIMITED, Case, Problem
from .variant import WARM_UPS, Folded, Variant

THIN = 16


class NoStagesError(RuntimeError):
    """The implementation has no arrows for the case."""


def ours(
    problem: Problem, stages: str, dialect: str, head: Tensor | None = None
) -> tuple[Variant, Variant]:
    """The block of a Markov head, eager and folded.

    stages   an implementation of the arrows
    dialect  'counter' or 'race'
    head     [V, D] output head; None leaves the base logits as given

    NoStagesError: no arrows. RuntimeError: the sampler is refused, with the reason.
    """
    case = problem.case
    noise = noise_for(dialect, case.vocabulary, SEED, problem.device)
    weight = problem.w2.new_zeros(case.vocabulary, THIN) if head is None else head
    around = _around(problem.device, stages, case, given=head is None, dialect=dialect)
    markov = MarkovHead(problem.w1, problem.w2)
    build = partial(build_dspark_sampler, _plan(case, problem.base), BorrowedHead(weight), markov)
    tail = _built(lambda: build(noise, around))
    if head is None:
        tail.buffers["base_logits"].copy_(problem.base)
    else:
        tail.buffers["hidden"].normal_()
    heat = problem.temperature.masked_fill(problem.greedy, 0.0)
    everything = torch.full((case.rows,), UNLIMITED, device=problem.device)
    tail.stage_sampling_params(admit(heat, everything), case.rows)
    ids = tail.buffers["input_ids"]
    ids[:, 0].copy_(problem.anchor)
    name = f"ours {stages}" + ("" if dialect == "counter" else f" {dialect}")
    return _pair(tail, noise, name, "counter" if dialect == "counter" else "own")


def dflash(
    case: Case, weight: Tensor, hidden: Tensor, stages: str = "torch", *, stored: bool = False
) -> tuple[Variant, Variant]:
    """The block without a bias: head and argmax, eager and folded.

    hidden [B, K + 1, D] bf16: row 0 predicts nothing
    stored no arrow stands for both: the logits of few rows are written and read too
    """
    around = _around(weight.device, stages, case, given=False, dialect="counter")
    if stored:
        around = replace(around, restage=_stored)
    plan = _plan(case, weight, from_anchor=False)
    tail = _built(lambda: build_dflash_sampler(plan, BorrowedHead(weight), around))
    tail.buffers["hidden"].copy_(hidden)
    name = f"ours {stages}, stored" if stored else f"ours {stages}"
    return _pair(tail, None, name, "own")


def _plan(case: Case, like: Tensor, *, from_anchor: bool = True) -> Plan:
    return Plan(
        drafts=case.drafts,
        vocabulary=case.vocabulary,
        buckets=(case.rows,),
        sample_from_anchor=from_anchor,
        step_dtype=like.dtype,
        device=like.device,
    )


def _around(
    device: torch.device, stages: str, case: Case, *, given: bool, dialect: str
) -> Surroundings:
    config = Config(
        stages=stages, noise=dialect, folded_sampling="force", greedy_draft=not case.samples
    )
    restage = _as_given if given else _unchanged
    return Surroundings(engine_for(device), config, None, restage)


def _unchanged(stages: Stages) -> Stages:
    return stages


def _as_given(stages: Stages) -> Stages:
    return stages._replace(logits=_keep)


def _stored(stages: Stages) -> Stages:
    return stages._replace(output=None)


def _keep(head: OutputHead, hidden: Tensor, out: Tensor) -> None:
    del head, hidden, out


def _built(build: Callable[[], DraftSampler | Refusal]) -> DraftSampler:
    try:
        tail = build()
    except ValueError as error:
        if "no stages" in str(error):
            raise NoStagesError("no stages") from error
        raise
    if isinstance(tail, Refusal):
        raise RuntimeError(  # noqa: TRY004  (a type is how a build answers)
            f"not folded: {tail.reason}"
        )
    return tail


def _pair(
    tail: DraftSampler, noise: Noise | None, name: str, draws: str
) -> tuple[Variant, Variant]:
    device = tail.buffers["tokens"].device
    hidden = tail.buffers["hidden"].flatten(0, 1)
    body: Run = partial(_block, tail, hidden, tail.buffers["input_ids"])
    engine = engine_for(device)
    generators = () if noise is None else noise.generators
    with preserved(noise):
        for _ in range(WARM_UPS):
            body()
        recording = engine.record(body, pool=engine.pool(), generators=generators)
    folded = Folded(recording.replay, body)
    restart: Run = (lambda: None) if noise is None else partial(noise.reseed, SEED)
    tokens = tail.buffers["tokens"]
    return (
        Variant(f"{name}, eager", body, tokens, draws, restart),
        Variant(f"{name}, folded", folded, tokens, draws, restart, body, "", generators),
    )


def _block(tail: DraftSampler, hidden: Tensor, ids: Tensor) -> None:
    with torch.no_grad():
        tail(hidden, ids)
