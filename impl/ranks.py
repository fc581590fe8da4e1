"""The draft block over ranks: each holds some columns of the output head and drafts every token.

Hidden states, anchors, parameters, the Markov head and the noise state are the same on every rank.
A step costs one gather of a few numbers a row; kept step logits travel once, after the last step.
ShardedChoice stands in for the choice arrow of the stages.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from . import gate
from .buffers import Buffers, Layout, Spec
from .draft import DflashDraft, DsparkDraft, queries, rated, zeroed
from .gate import BuildFacts, Decision
from .logits import DENSE, BorrowedHead, OutputHead
from .noise import CounterNoise
from .shards import FIELDS, Group, Shard, ShardedChoice, agree
from .stages import Stages


@dataclass(frozen=True)
class ShardHead(OutputHead):
    """One rank's rows of the output head; fields as in OutputHead, no real row among the allowed.

    ValueError: a weight of another dtype or rank, or fewer rows than the shard.
    """

    def __post_init__(self) -> None:
        dtype, shape = self.weight.dtype, tuple(self.weight.shape)
        if dtype not in DENSE or len(shape) != 2 or not 0 <= self.vocabulary <= shape[0]:
            raise ValueError(
                f"the shard at id {self.vocab_start} has a head of shape {shape} and {dtype}; it "
                f"should be [>= {self.vocabulary}, D] and float16, bfloat16 or float32"
            )


def head_of(shard: Shard, weight: Tensor, mup: float = 1.0) -> ShardHead:
    """Return the head of a shard; weight [W, D]: the rank's own rows, those past it are padding."""
    return ShardHead(weight, shard.width, shard.start, mup)


@dataclass(frozen=True, kw_only=True)
class ShardedLayout(Layout):
    """Buffers of one rank: logits of its shard, and what travels between the ranks.

    shard  the ids of this rank

    ValueError: noise that depends on more than the id; shards of another vocabulary.
    """

    shard: Shard

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dialect == "race":
            raise ValueError(
                "race noise over shards: its keys need the softmax over all ids; "
                "the dialect should be 'counter'"
            )
        if self.shard.vocabulary != self.shapes.vocabulary:
            raise ValueError(
                f"the shards hold {self.shard.vocabulary} ids; they should hold the vocabulary "
                f"of {self.shapes.vocabulary}"
            )

    def specs(self) -> tuple[Spec, ...]:
        """Every buffer of this layout, in the order of the pipeline."""
        return (*super().specs(), *self._travel())

    def nbytes(self) -> int:
        """Bytes of the rank with the most columns, so that every rank asks for the same."""
        idle = self.shapes.rows_max * (self.shard.widest - self.shard.width)
        missing = idle * self.shapes.drafts * self.head_dtype.itemsize
        if self.family == "dspark" and self.fold == "greedy":
            missing += idle * self.step_dtype.itemsize
        return super().nbytes() + missing

    def _block(self) -> Iterator[Spec]:
        top, drafts = self.shapes.rows_max, self.shapes.drafts
        columns = (top, drafts, self.shard.width)
        yield Spec("base_logits", columns, self.head_dtype, "scratch")
        yield Spec("tokens", (top, drafts), torch.int64, "output")
        yield Spec("flags", (top, drafts), torch.uint8, "output")

    def _sampling(self) -> Iterator[Spec]:
        top, drafts, step = self.shapes.rows_max, self.shapes.drafts, self.step_dtype
        if self.fold == "greedy":
            yield Spec("step_scratch", (top, self.shard.width), step, "scratch")
            return
        yield Spec("step_logits", (top, drafts, self.shapes.vocabulary), step, "output")
        wide = self.shard.widest
        yield Spec("shard_logits", (top, drafts, wide), step, "scratch")
        columns = self.shard.ranks * top * drafts * wide
        yield Spec("gathered_logits", (columns,), step, "scratch", rows=False)

    def _travel(self) -> Iterator[Spec]:
        # DFLASH chooses all positions at once.
        choices = self.shapes.rows_max * (self.shapes.drafts if self.family == "dflash" else 1)
        size = choices * FIELDS * (2 if self.fold == "sampled" else 1)
        yield Spec("candidates", (size,), torch.int32, "scratch", rows=False)
        yield Spec("gathered", (self.shard.ranks * size,), torch.int32, "scratch", rows=False)


@dataclass(frozen=True, kw_only=True)
class ShardedDflash(DflashDraft):
    """DFLASH over ranks; fields as in DflashDraft, the head being the rank's own.

    shard, group  the ids of this rank, and the ranks
    """

    shard: Shard
    group: Group

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.shard, self.group, self.head)

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block; as DflashDraft, with the same tokens on every rank."""
        rows = anchor.shape[0]
        base, asked = buffers["base_logits"][:rows], queries(self.shapes, hidden)
        stages.logits(self.head, asked, base)
        choice = _choice(self.shard, self.group, buffers)
        choice(base, None, None, None, buffers["tokens"][:rows], buffers["flags"][:rows])
        if self.confidence is not None:
            stages.rate(self.confidence, (asked,), *rated(buffers, rows))


@dataclass(frozen=True, kw_only=True)
class ShardedDspark(DsparkDraft):
    """DSPARK over ranks; fields as in DsparkDraft, the head being the rank's own.

    markov        the whole Markov head; of w2 the rows of the shard are used
    noise         counter noise of the whole vocabulary, of one seed on all ranks
    shard, group  the ids of this rank, and the ranks

    ValueError: race noise; a shard that starts at no multiple of 4; ranks that are not the shards'.
    """

    shard: Shard
    group: Group

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self.shard, self.group, self.head)
        self._own_noise()

    def block(self, stages: Stages, buffers: Buffers, hidden: Tensor, anchor: Tensor) -> None:
        """Draft one block; as DsparkDraft, with the same tokens and kept logits on every rank."""
        rows, shard = anchor.shape[0], self.shard
        temperature, greedy = buffers["temperature"][:rows], buffers["greedy"][:rows]
        tokens, flags = buffers["tokens"][:rows], buffers["flags"][:rows]
        base = buffers["base_logits"][:rows]
        markov = replace(self.markov, w2=self.markov.w2[shard.start : shard.end])
        noise, choice = self._own_noise(), _choice(shard, self.group, buffers)
        asked = queries(self.shapes, hidden)
        stages.logits(self.head, asked, base)
        state, previous = zeroed(buffers.get("markov_state"), rows), anchor
        for step in range(self.shapes.drafts):
            column = _column(shard, buffers, rows, step)
            bias, after = stages.bias(markov, previous, asked[:, step], state)
            if state is not None and after is not None:
                state.copy_(after)
            stages.step(base[:, step], bias, column)
            drawn = stages.noise(noise, rows, step, None)
            choice(column, temperature, greedy, drawn, tokens[:, step], flags[:, step])
            previous = tokens[:, step]
        if "step_logits" in buffers:
            self._keep(buffers, rows)
        stages.advance(self.noise)
        self.rate(stages, buffers, asked, anchor)

    def _own_noise(self) -> CounterNoise:
        if not isinstance(self.noise, CounterNoise):
            raise ValueError(  # noqa: TRY004  (a dialect that cannot be honoured, not a wrong type)
                f"{self.noise.dialect} noise over shards: its keys need the softmax over all ids; "
                "the dialect should be 'counter'"
            )
        return self.noise.shard(self.shard.start, self.shard.width)

    def _keep(self, buffers: Buffers, rows: int) -> None:
        mine = buffers["shard_logits"][:rows]
        everyone = buffers["gathered_logits"][: self.group.size * mine.numel()]
        self.group.gather(mine.view(-1), everyone)
        came = everyone.view(self.group.size, *mine.shape)
        for part, (start, end) in zip(came, self.shard.ranges, strict=True):
            buffers["step_logits"][:rows, :, start:end].copy_(part[:, :, : end - start])


@dataclass(frozen=True)
class Seat:
    """The place of one process among those that share a vocabulary."""

    shard: Shard
    group: Group

    def layout(self, like: Layout) -> ShardedLayout:
        """Return the buffers that this rank needs where one rank alone would need `like`."""
        own = {field.name: getattr(like, field.name) for field in fields(like)}
        return ShardedLayout(**own, shard=self.shard)

    def draft(self, whole: DflashDraft | DsparkDraft) -> ShardedDflash | ShardedDspark:
        """Return what this rank drafts from where one rank alone would draft from `whole`.

        whole: its head holds the rank's own rows
        """
        shapes, confidence = whole.shapes, whole.confidence
        head = head_of(self.shard, whole.head.weight, whole.head.mup)
        if isinstance(whole, DflashDraft):
            return ShardedDflash(shapes, head, confidence, shard=self.shard, group=self.group)
        rest = (whole.markov, whole.noise, confidence, whole.greedy_draft)
        return ShardedDspark(shapes, head, *rest, shard=self.shard, group=self.group)

    def stored(self, rows: int) -> int:
        """Rows that all heads store for V, seen from this one with `rows`: V unless some lack."""
        return self.shard.vocabulary + min(0, rows - self.shard.width)


def seat_for(group: Group | None, ranks: int, lm_head: BorrowedHead | None) -> Seat | None:
    """Return the place of this process; None when it has no group, or the head says no ranges.

    ValueError: a group or ranges of another number of ranks; ranges that are no shards.
    """
    if group is not None and group.size != ranks:
        raise ValueError(f"the group has {group.size} ranks; the plan says {ranks}")
    ranges = None if lm_head is None else lm_head.shard_ranges
    if group is None or ranges is None:
        return None
    if len(ranges) != ranks:
        raise ValueError(f"the output head says {len(ranges)} ranges; it should say {ranks}")
    return Seat(Shard(ranges, group.rank), group)


def asked(group: Group | None, facts: BuildFacts) -> Decision:
    """Ask the gate about a build; in a group about facts that are the same on every rank.

    ValueError, on every rank: the ranks differ in another fact than free memory, or in the answer.
    """
    if group is None:
        return gate.build(facts)
    decision = gate.build(BuildFacts(**agree(group, vars(facts))))
    agree(group, vars(decision))
    return decision


def _choice(shard: Shard, group: Group, buffers: Buffers) -> ShardedChoice:
    return ShardedChoice(shard, group, buffers["candidates"], buffers["gathered"])


def _column(shard: Shard, buffers: Buffers, rows: int, step: int) -> Tensor:
    if "shard_logits" in buffers:
        return buffers["shard_logits"][:rows, step, : shard.width]
    return buffers["step_scratch"][:rows]


def _check(shard: Shard, group: Group, head: OutputHead) -> None:
    ours, theirs = (shard.rank, shard.ranks), (group.rank, group.size)
    if ours != theirs:
        raise ValueError(
            f"the shard is number {ours[0]} of {ours[1]}; as its rank it should be number "
            f"{theirs[0]} of {theirs[1]}"
        )
    if (head.vocab_start, head.vocabulary) != (shard.start, shard.width):
        raise ValueError(
            f"the head holds {head.vocabulary} ids from {head.vocab_start}; it should hold the "
            f"{shard.width} of the shard from {shard.start}"
        )
