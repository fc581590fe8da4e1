"""Assembly: weights, a plan and the environment to a captured proposer.

The one place that decides which objects meet; what each of them does is decided in its own file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .acceptor import Acceptor
from .bias import MarkovHead
from .coins import Coins
from .config import Config
from .epilogue import VerifyEpilogue
from .fused import Site
from .graph import engine_for
from .graph.engine import Engine
from .logits import BorrowedHead
from .noise import Noise
from .plan import Plan, Refusal, Surroundings
from .proposer import Proposer
from .ranks import Seat, seat_for
from .runner import Addresses, Forward, Runner, offers_base_logits
from .sampler import (
    DraftSampler,
    build_dflash_sampler,
    build_dspark_sampler,
    draft_for,
    free_bytes,
    layout_for,
    noise_for,
)
from .shards import agree
from .stages import Accept, Stages, accepts_for, stages_for


@dataclass(frozen=True)
class Parts:
    """The types that are put together; a subclass of one replaces it."""

    sampler: type[DraftSampler] = DraftSampler
    runner: type[Runner] = Runner
    proposer: type[Proposer] = Proposer


def _seated(plan: Plan, lm_head: BorrowedHead, config: Config, seed: int) -> Seat | None:
    """Find the place of this process, and see that all ranks build the same."""
    seat = seat_for(plan.group, plan.ranks, lm_head)
    if plan.ranks > 1 and seat is None:
        raise ValueError(
            f"an output head over {plan.ranks} ranks without group or shard ranges; "
            "an eager block needs both too"
        )
    if seat is not None:
        names = ("buckets", "sample_from_anchor", "step_dtype", "forward")
        shared = {name: getattr(plan, name) for name in names}
        shared |= {"config": config, "shard ranges": lm_head.shard_ranges, "noise seed": seed}
        agree(seat.group, shared)
    return seat


def assemble(  # noqa: PLR0913  (what a proposer is made of)
    plan: Plan,
    lm_head: BorrowedHead,
    markov: MarkovHead | None,
    forward: Forward,
    config: Config,
    seed: int,
    *,
    find_engine: Callable[[torch.device, str], Engine | None] = engine_for,
    restage: Callable[[Stages], Stages] = lambda stages: stages,
    parts: Parts = Parts(),
) -> Proposer:
    """Build noise, sampler, runner and proposer, and capture; a refused tail drafts eagerly.

    markov       None for DFLASH
    seed         of the noise that the config names
    find_engine  from a device and the config's engine name to what captures, or to None
    restage      maps the chosen stages to those to use, folded and eager

    ValueError: weights that cannot draft at all, folded or not; ranks that would build differently.
    """
    if lm_head.weight is None:
        raise ValueError("the output head has no dense weight; an eager block needs one too")
    seat = _seated(plan, lm_head, config, seed)
    engine = find_engine(plan.device, config.engine)
    free = free_bytes(plan.device) if config.folded_sampling == "auto" else None
    around = Surroundings(engine, config, free, restage, offers_base_logits(forward))
    noise: Noise | None = None
    tail: DraftSampler | Refusal
    if markov is None:
        tail = build_dflash_sampler(plan, lm_head, around, parts.sampler)
        dialect = "none"
    else:
        noise = noise_for(config.noise, plan.vocabulary, seed, plan.device)
        tail = build_dspark_sampler(plan, lm_head, markov, noise, around, parts.sampler)
        dialect = config.noise
    layout = layout_for(plan, lm_head.weight, markov, dialect, seat)
    greedy = config.greedy_draft
    draft = draft_for(plan, layout.shapes, lm_head.weight, markov, noise, seat, greedy_draft=greedy)
    fold = "greedy" if draft.greedy_draft else "sampled"
    layout = replace(layout, fold=fold)
    site = Site(plan.device, markov, plan.ranks, recorded=engine is not None)
    stages = restage(stages_for(config.stages, draft.dialect, fold, draft.kind, site))

    def weights() -> Mapping[str, Tensor | None]:
        return {**draft.weights(), "head.weight": lm_head.weight}

    runner = None
    if isinstance(tail, DraftSampler):
        own = (engine, layout.shapes, tail.buffers, forward, (tail,))
        runner = parts.runner(*own, noise=noise, weights=weights, strict=config.strict)
        runner.capture()
    addresses = Addresses(lambda: {**forward.weights(), **weights()})
    # A greedy draft leaves its noise where it was: coins beside it would repeat block after block.
    moving = None if draft.greedy_draft else noise
    coins = Coins.beside(moving, plan.vocabulary, seed, plan.device)
    accepts = accepts_for(config.stages, site)
    acceptor = Acceptor(plan.vocabulary, coins, _epilogue(engine, tail, accepts.greedy), accepts)
    return parts.proposer(draft, forward, layout, stages, tail, runner, addresses, acceptor)


def _epilogue(
    engine: Engine | None, tail: DraftSampler | Refusal, accept: Accept
) -> VerifyEpilogue | None:
    if engine is None or isinstance(tail, Refusal):
        return None
    epilogue = VerifyEpilogue(engine, tail.buffers, accept)
    epilogue.capture()
    return epilogue
