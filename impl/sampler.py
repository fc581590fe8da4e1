"""DraftSampler: admission and staging of sampling parameters, the tail hook, and reading a block.

A builder gathers facts from the objects it is given, asks the gate, and returns a DraftSampler or
a Refusal. Nothing is allocated for a sampler that the gate refuses.
"""

from dataclasses import dataclass, replace
from math import isfinite

import torch
from torch import Tensor

from .bias import MarkovHead
from .buffers import Buffers, Layout
from .draft import DflashDraft, Draft, DsparkDraft
from .epilogue import epilogue_bytes
from .fused import Site
from .gate import BuildFacts, Decision
from .logits import BorrowedHead, OutputHead
from .noise import CounterNoise, Noise, RaceNoise
from .plan import Plan, Refusal, Surroundings
from .ranks import Seat, asked, head_of, seat_for
from .shapes import Shapes
from .stages import Stages, stages_for

TEMPERATURE_MIN = 1e-5
GREEDY_BELOW = 1e-6
RATED = ("confidence", "confidence_raw", "confidence_flags")
READ = ("tokens", "flags", "step_logits", "temperature", "greedy", *RATED)


@dataclass(frozen=True)
class Admitted:
    """Sampling parameters after admission; every tensor is a private copy.

    temperature  [B] float32, at least 1e-5
    greedy       [B] bool: the row takes the argmax
    sampled_rows a host flag derived from `greedy`: some row samples
    top_k        [B] int64: as requested; the draft ignores it, the target law does not
    """

    temperature: Tensor
    greedy: Tensor
    sampled_rows: bool
    top_k: Tensor


def admit(temperature: Tensor, top_k: Tensor) -> Admitted:
    """Validate the parameters of a batch and clamp its temperatures, once.

    temperature [B] float: as requested, finite and not negative
    top_k       [B] int: top_k <= 1 or temperature < 1e-6 makes the row greedy

    Waits for the device; call it when a batch is admitted. ValueError: a temperature that is
    negative, NaN or infinite, with its row and value; tensors that are not [B] of one length.
    """
    if temperature.dim() != 1 or temperature.shape != top_k.shape:
        raise ValueError(
            f"temperature has shape {tuple(temperature.shape)} and top_k {tuple(top_k.shape)}; "
            "both should be [B]"
        )
    for row, value in enumerate(temperature.tolist()):
        if not isfinite(value) or value < 0:
            raise ValueError(f"row {row} has temperature {value}; it should be finite and >= 0")
    greedy = (top_k <= 1) | (temperature < GREEDY_BELOW)
    clamped = temperature.float().clamp(min=TEMPERATURE_MIN)
    return Admitted(clamped, greedy, not bool(greedy.all()), top_k.long().clone())


class DraftSampler:
    """The sampling tail over static buffers, appended to what a runner captures.

    draft     what is drafted from: heads and noise state
    stages    the arrows, chosen for the dialect and the fold
    buffers   every static tensor
    decision  the fold and the reason that the gate gave
    """

    def __init__(self, draft: Draft, stages: Stages, buffers: Buffers, decision: Decision) -> None:
        self.draft = draft
        self.stages = stages
        self.buffers = buffers
        self.decision = decision

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Copy the parameters of this step into the buffers; pad rows become greedy at T = 1.

        Called before every block: equal objects may hold other values than last time.
        """
        if "temperature" in self.buffers:
            self.buffers.load("temperature", admitted.temperature, padded)
            self.buffers.load("greedy", admitted.greedy, padded)

    def __call__(self, hidden: Tensor, input_ids: Tensor) -> None:
        """Draft one block; the tail hook that is captured.

        hidden    [Bp * Q, D]: draft hidden states of the padded rows
        input_ids [Bp, Q] int64: column 0 is the anchor, the rest is not read
        """
        self.draft.block(self.stages, self.buffers, hidden, input_ids[:, 0])

    def read(self, rows: int) -> dict[str, Tensor]:
        """Return copies of the results of the live rows; the next block does not change them."""
        return {name: self.buffers[name][:rows].clone() for name in READ if name in self.buffers}


def free_bytes(device: torch.device) -> int | None:
    """Free bytes of a CUDA device after its cache is emptied; None for any other device."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def noise_for(dialect: str, vocabulary: int, seed: int, device: torch.device) -> Noise:
    """Build the noise state of a dialect, 'race' or 'counter'. ValueError: another dialect."""
    kinds: dict[str, type[RaceNoise | CounterNoise]]
    kinds = {"race": RaceNoise, "counter": CounterNoise}
    if dialect not in kinds:
        raise ValueError(f"the noise dialect is {dialect!r}; it should be one of {list(kinds)}")
    return kinds[dialect].seeded(vocabulary, seed, device)


def layout_for(
    plan: Plan, weight: Tensor, markov: MarkovHead | None, dialect: str, seat: Seat | None = None
) -> Layout:
    """Lay out the buffers of a block that samples what its family can sample."""
    shapes = Shapes(
        drafts=plan.drafts,
        vocabulary=plan.vocabulary,
        stored_columns=weight.shape[0] if seat is None else seat.stored(weight.shape[0]),
        hidden=weight.shape[1],
        rank=0 if markov is None else markov.rank,
        buckets=plan.buckets,
        sample_from_anchor=plan.sample_from_anchor,
    )
    layout = Layout(
        shapes=shapes,
        family="dflash" if markov is None else "dspark",
        dialect=dialect,
        fold="greedy" if markov is None else "sampled",
        forward=plan.forward,
        head_dtype=weight.dtype,
        step_dtype=plan.step_dtype,
        recurrent=markov is not None and markov.kind == "rnn",
        confidence=plan.confidence is not None,
    )
    return layout if seat is None else seat.layout(layout)


def need_bytes(
    plan: Plan, weight: Tensor, markov: MarkovHead | None, dialect: str, seat: Seat | None = None
) -> int:
    """Bytes of all static tensors of a sampler: its buffers, and those of its verify epilogue.

    The epilogue is allocated after the decision, but free memory is measured before it.
    """
    layout = layout_for(plan, weight, markov, dialect, seat)
    return layout.nbytes() + epilogue_bytes(layout.shapes)


def draft_for(
    plan: Plan,
    shapes: Shapes,
    weight: Tensor,
    markov: MarkovHead | None,
    noise: Noise | None,
    seat: Seat | None = None,
    *,
    greedy_draft: bool,
) -> Draft:
    """Put together what is drafted from: DSPARK with a Markov head and noise, else DFLASH."""
    head: OutputHead
    if seat is None:
        head = OutputHead(weight, shapes.vocabulary, mup=plan.mup)
    else:
        head = head_of(seat.shard, weight, plan.mup)
    draft: Draft
    if markov is None or noise is None:
        draft = DflashDraft(shapes, head, plan.confidence)
    else:
        draft = DsparkDraft(shapes, head, markov, noise, plan.confidence, greedy_draft)
    return draft if seat is None else seat.draft(draft)


def decide(
    family: str,
    plan: Plan,
    lm_head: BorrowedHead | None,
    markov: MarkovHead | None,
    dialect: str,
    around: Surroundings,
) -> Decision:
    """Gather the facts of a build from the objects themselves and ask the gate.

    Over ranks the facts are made the same first, so that every rank gets the same answer.
    """
    weight = None if lm_head is None else lm_head.weight
    config, seat = around.config, seat_for(plan.group, plan.ranks, lm_head)
    rows = 0 if weight is None else weight.shape[0]
    facts = BuildFacts(
        family=family,
        drafts=plan.drafts,
        engine_available=around.engine is not None,
        switched_off=config.eager_draft if family == "dflash" else not config.folded_proposal,
        has_head=lm_head is not None,
        has_weight=weight is not None,
        weight_dtype=None if weight is None else str(weight.dtype).removeprefix("torch."),
        added_vocabulary=0 if lm_head is None else lm_head.added_vocabulary,
        vocabulary=plan.vocabulary,
        stored_rows=rows if seat is None else seat.stored(rows),
        ranks=plan.ranks,
        has_shard_ranges=lm_head is not None and lm_head.shard_ranges is not None,
        has_markov_head=markov is not None,
        sharded_dflash=config.sharded_dflash,
        has_base_logits=around.base_logits,
        mode=config.folded_sampling,
    )
    decision = asked(plan.group, facts)
    if config.greedy_draft and decision.fold != "eager":
        # Nothing is sampled, so memory for sampling is no question.
        return Decision("greedy", "folded")
    if decision.fold != "sampled" or weight is None:
        return decision
    # Memory is the last row of the table: its need is known only for a sampler that could exist.
    need = need_bytes(plan, weight, markov, dialect, seat)
    return asked(plan.group, replace(facts, free_bytes=around.free_bytes, need_bytes=need))


def build_dflash_sampler(
    plan: Plan,
    lm_head: BorrowedHead | None,
    around: Surroundings,
    sampler_type: type[DraftSampler] = DraftSampler,
) -> DraftSampler | Refusal:
    """Build the greedy tail of DFLASH, or say why it cannot be folded.

    ValueError: a head over several ranks without their group.
    """
    decision = decide("dflash", plan, lm_head, None, "none", around)
    if decision.fold == "eager" or lm_head is None or lm_head.weight is None:
        return Refusal(decision.reason)
    return _built(plan, lm_head, lm_head.weight, None, None, decision, around, sampler_type)


def build_dspark_sampler(
    plan: Plan,
    lm_head: BorrowedHead | None,
    markov: MarkovHead | None,
    noise: Noise,
    around: Surroundings,
    sampler_type: type[DraftSampler] = DraftSampler,
) -> DraftSampler | Refusal:
    """Build the tail of DSPARK, sampled or greedy-only, or say why it cannot be folded.

    ValueError: a head over several ranks without their group.
    """
    decision = decide("dspark", plan, lm_head, markov, noise.dialect, around)
    if decision.fold == "eager" or lm_head is None or lm_head.weight is None:
        return Refusal(decision.reason)
    return _built(plan, lm_head, lm_head.weight, markov, noise, decision, around, sampler_type)


def _built(
    plan: Plan,
    lm_head: BorrowedHead,
    weight: Tensor,
    markov: MarkovHead | None,
    noise: Noise | None,
    decision: Decision,
    around: Surroundings,
    sampler_type: type[DraftSampler],
) -> DraftSampler:
    seat = seat_for(plan.group, plan.ranks, lm_head)
    if plan.ranks > 1 and seat is None:
        raise ValueError(f"an output head over {plan.ranks} ranks; their group should be given")
    dialect = "none" if noise is None else noise.dialect
    layout = replace(layout_for(plan, weight, markov, dialect, seat), fold=decision.fold)
    config, shapes = around.config, layout.shapes
    draft = draft_for(plan, shapes, weight, markov, noise, seat, greedy_draft=config.greedy_draft)
    site = Site(plan.device, markov, plan.ranks, recorded=around.engine is not None)
    stages = stages_for(config.stages, draft.dialect, decision.fold, draft.kind, site)
    state = {} if noise is None else noise.state
    buffers = Buffers(layout, plan.device, state)
    return sampler_type(draft, around.restage(stages), buffers, decision)
