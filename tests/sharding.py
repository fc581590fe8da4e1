"""One block drafted whole and over shards, from the same inputs, for tests of ranks."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from impl.bias import MarkovHead
from impl.buffers import Buffers, Layout
from impl.draft import DflashDraft, Draft, DsparkDraft
from impl.logits import OutputHead, base_logits
from impl.noise import CounterNoise
from impl.ranks import ShardedDflash, ShardedDspark, ShardedLayout, head_of
from impl.sampler import admit
from impl.shapes import Shapes
from impl.shards import Group, Shard
from impl.stages import Stages, stages_for

from .strategies import Shape, grid, parameters, source, spoiled

CPU = torch.device("cpu")
Ranges = tuple[tuple[int, int], ...]
Results = dict[str, torch.Tensor]
READ = ("tokens", "flags", "step_logits")


@dataclass(frozen=True)
class Case:
    """Weights and inputs of one block, and what its base logits are spoiled by."""

    shape: Shape
    family: str
    fold: str
    weight: torch.Tensor
    markov: MarkovHead
    hidden: torch.Tensor
    anchor: torch.Tensor
    heat: torch.Tensor
    top_k: torch.Tensor
    spoil: torch.Tensor
    noise_seed: int

    @property
    def shapes(self) -> Shapes:
        """The sizes as impl knows them."""
        shape = self.shape
        rank = shape.rank if self.family == "dspark" else 0
        sizes = (shape.drafts, shape.vocabulary, shape.stored, shape.hidden, rank)
        return Shapes(*sizes, (shape.rows,), sample_from_anchor=shape.dropped == 0)

    @property
    def stages(self) -> Stages:
        """The arrows, with base logits spoiled by what the case holds."""

        def spoiling(head: OutputHead, hidden: torch.Tensor, out: torch.Tensor) -> None:
            base_logits(head, hidden, out)
            out.add_(self.spoil[..., head.vocab_start : head.vocab_start + head.vocabulary])

        dialect = "counter" if self.family == "dspark" else "none"
        return stages_for("torch", dialect, self.fold)._replace(logits=spoiling)

    @property
    def layout(self) -> Layout:
        """Buffers of the whole vocabulary."""
        dialect = "counter" if self.family == "dspark" else "none"
        step = self.shape.step_dtype
        dtype = self.shape.dtype
        return Layout(self.shapes, self.family, dialect, self.fold, "given", dtype, step)

    def noise(self, block: int = 0) -> CounterNoise:
        """Counter noise of the case's seed, that has drawn some blocks."""
        noise = CounterNoise.seeded(self.shape.vocabulary, self.noise_seed, CPU)
        noise.block.fill_(block)
        return noise


def case(shape: Shape, family: str, fold: str, *, spoil: bool = True) -> Case:
    """Draw the weights and inputs of a shape; equal maxima are common, and so are spoiled rows."""
    draw = source(shape.seed)
    rows, wide, dtype = shape.rows, shape.vocabulary, shape.dtype
    weight = grid(draw, wide, shape.hidden).to(dtype)
    w1, w2 = (grid(draw, wide, shape.rank).to(dtype) for _ in range(2))
    queries = shape.drafts + shape.dropped
    hidden = grid(draw, rows * queries, shape.hidden).to(dtype)
    anchor = torch.randint(0, wide, (rows,), generator=draw)
    heat, top_k = parameters(draw, rows)
    blank = torch.zeros(rows * shape.drafts, wide)
    marks = spoiled(draw, blank) if spoil else blank
    marks = marks.view(rows, shape.drafts, wide).to(dtype)
    inputs = (weight, MarkovHead(w1, w2), hidden, anchor, heat, top_k, marks, shape.seed)
    return Case(shape, family, fold, *inputs)


def whole(given: Case, block: int = 0) -> Results:
    """Draft the block on one rank."""
    head = OutputHead(given.weight, given.shape.vocabulary)
    noise = given.noise(block)
    draft: Draft = DflashDraft(given.shapes, head)
    if given.family == "dspark":
        draft = DsparkDraft(given.shapes, head, given.markov, noise)
    return _run(given, draft, Buffers(given.layout, CPU, noise.state))


def sharded(
    given: Case,
    ranges: Ranges,
    group: Group,
    block: int = 0,
    spoiler: Callable[[Buffers], None] | None = None,
) -> Results:
    """Draft the block on one rank of many; `spoiler` may fill its buffers before."""
    noise = given.noise(block)
    draft, buffers = rank_parts(given, ranges, group, noise)
    if spoiler is not None:
        spoiler(buffers)
    return _run(given, draft, buffers)


def rank_parts(
    given: Case, ranges: Ranges, group: Group, noise: CounterNoise
) -> tuple[Draft, Buffers]:
    """One rank's draft and buffers; the padding of its head would win everywhere."""
    shard = Shard(ranges, group.rank)
    padding = torch.full((given.shape.stored - given.shape.vocabulary, given.shape.hidden), 50.0)
    rows = given.weight[shard.start : shard.end]
    head = head_of(shard, torch.cat([rows, padding.to(rows.dtype)]))
    like = given.layout
    layout = ShardedLayout(
        like.shapes,
        like.family,
        like.dialect,
        like.fold,
        like.forward,
        like.head_dtype,
        like.step_dtype,
        shard=shard,
    )
    draft: Draft = ShardedDflash(given.shapes, head, shard=shard, group=group)
    if given.family == "dspark":
        draft = ShardedDspark(given.shapes, head, given.markov, noise, shard=shard, group=group)
    return draft, Buffers(layout, CPU, noise.state)


def load(given: Case, buffers: Buffers) -> None:
    """Stage the parameters of the case."""
    if "temperature" in buffers:
        admitted = admit(given.heat, given.top_k)
        buffers.load("temperature", admitted.temperature, given.shape.rows)
        buffers.load("greedy", admitted.greedy, given.shape.rows)


def results(buffers: Buffers) -> Results:
    """Copies of what a block leaves to be read."""
    return {name: buffers[name].clone() for name in READ if name in buffers}


def differences(one: Results, two: Results) -> list[str]:
    """Names of the results that differ in a bit; a NaN equals a NaN."""
    if set(one) != set(two):
        return sorted(set(one) ^ set(two))
    return [
        name
        for name in one
        if one[name].dtype != two[name].dtype
        or not torch.equal(one[name].double().nan_to_num(7e77), two[name].double().nan_to_num(7e77))
    ]


def _run(given: Case, draft: Draft, buffers: Buffers) -> Results:
    load(given, buffers)
    draft.block(given.stages, buffers, given.hidden, given.anchor)
    return results(buffers)
