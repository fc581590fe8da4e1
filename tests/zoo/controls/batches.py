"""Folded samplers that handle batches, buckets, recordings and results in another way."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from impl.assembly import Parts
from impl.buffers import Buffers
from impl.draft import Draft
from impl.gate import Decision
from impl.sampler import DraftSampler
from impl.stages import Stages
from impl.subject import factory

from ..memory import ReadsViews
from ..specimen import Modest, Wrapped

Setting = Mapping[str, Any]
Results = dict[str, Tensor]


class Permutes(Modest):
    """Drafts the rows of a batch in an order of its own, and puts them back."""

    def __init__(self, inside: Any) -> None:
        """Rows read the noise of other rows than their own: the noise is not shown."""
        super().__init__(inside, "NOISE")
        self.loaded = self.ran = torch.zeros(0, dtype=torch.int64)

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Shuffle, and load."""
        self.loaded = shuffled(len(inputs["anchor"]))
        self.inside.load({name: value[self.loaded] for name, value in inputs.items()})

    def replay(self) -> None:
        """Run the block."""
        self.inside.replay()
        self.ran = self.loaded

    def read(self) -> Results:
        """Results in the order that was asked."""
        return put_back(self.inside.read(), self.loaded)

    def eager(self, inputs: Mapping[str, Tensor]) -> Results:
        """The same, outside the recording."""
        self.ran = shuffled(len(inputs["anchor"]))
        moved = {name: value[self.ran] for name, value in inputs.items()}
        return put_back(self.inside.eager(moved), self.ran)

    def accept(self, target: Mapping[str, Any]) -> Results:
        """Accept rows where they are, and put the commits back."""
        moved = {
            name: value[self.ran] if isinstance(value, Tensor) else value
            for name, value in target.items()
        }
        return put_back(self.inside.accept(moved), self.ran)


def shuffled(rows: int) -> Tensor:
    """An order of so many rows, always the same one."""
    return torch.randperm(rows, generator=torch.Generator().manual_seed(rows))


def put_back(results: Results, order: Tensor) -> Results:
    """Rows that were taken in an order, where they came from."""
    back = order.argsort()
    return {name: value[back] for name, value in results.items()}


def permuted_rows(setting: Setting) -> Any:
    """Rows are shuffled on their way in, and put back on their way out."""
    return Permutes(factory(setting))


def more_buckets(setting: Setting) -> Any:
    """A recording of half of each row count too, so that other buckets hold most batches."""
    asked = setting["buckets"]
    halves = {-(-rows // 2) for rows in asked}
    return factory({**setting, "buckets": tuple(sorted({*asked, *halves}))})


class RunsEagerly(Modest):
    """Answers every replay with an eager block of what was loaded."""

    def __init__(self, inside: Any) -> None:
        """Nothing is replayed, and no static buffer is used."""
        super().__init__(inside, "REPLAYS", "BUFFERS")
        self.inputs: Results = {}
        self.outputs: Results = {}

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Copy the inputs."""
        self.inputs = {name: value.clone() for name, value in inputs.items()}

    def replay(self) -> None:
        """Compute the block anew, over temporary buffers."""
        self.outputs = self.inside.eager(self.inputs)

    def read(self) -> Results:
        """The last block."""
        return self.outputs


def eager_every_time(setting: Setting) -> Any:
    """Recordings are made and never used: each block is computed eagerly, and said to be."""
    return RunsEagerly(factory(setting))


class TakesNotes(DraftSampler):
    """Writes tensors beside the block: the tokens once more, and the spread of the base logits."""

    def __init__(self, draft: Draft, stages: Stages, buffers: Buffers, decision: Decision) -> None:
        """Allocate the tensors."""
        super().__init__(draft, stages, buffers, decision)
        self.echo = torch.zeros_like(buffers["tokens"])
        self.spread = torch.zeros(self.echo.shape, dtype=torch.float32)

    def __call__(self, hidden: Tensor, input_ids: Tensor) -> None:
        """Draft, and write."""
        super().__call__(hidden, input_ids)
        rows = len(input_ids)
        base = self.buffers["base_logits"][:rows].float()
        self.echo[:rows].copy_(self.buffers["tokens"][:rows])
        self.spread[:rows].copy_(base.amax(-1) - base.amin(-1))


class ListsNotes(Wrapped):
    """Lists the tensors that are written beside the block."""

    def buffers(self) -> dict[str, dict[str, Any]]:
        """All buffers of the subject inside, and two more."""
        held: dict[str, dict[str, Any]] = self.inside.buffers()
        tail = self.inside.proposer.tail
        if not isinstance(tail, TakesNotes):
            return held
        entry = {"pad": "undefined", "rows": True}
        echo = {**entry, "tensor": tail.echo, "role": "output"}
        return {**held, "echo": echo, "spread": {**entry, "tensor": tail.spread, "role": "scratch"}}


def extra_buffers(setting: Setting) -> Any:
    """The recording writes two tensors that nobody reads."""
    return ListsNotes(factory(setting, parts=Parts(sampler=TakesNotes)))


class ReadsElsewhere(Wrapped):
    """Reads and accepts on another thread than the one that replays."""

    def __init__(self, inside: Any) -> None:
        """Start the thread."""
        super().__init__(inside)
        self.reader = ThreadPoolExecutor(1)

    def read(self) -> Results:
        """Wait for copies that the reader made."""
        return self.reader.submit(self.copied).result()

    def copied(self) -> Results:
        """Copies of the results."""
        return {name: value.clone() for name, value in self.inside.read().items()}

    def accept(self, target: Mapping[str, Any]) -> Results:
        """Wait for a commit of the reader."""
        return self.reader.submit(self.inside.accept, target).result()


def read_elsewhere(setting: Setting) -> Any:
    """Results are copied, and blocks accepted, on another thread than the one that replays."""
    return ReadsElsewhere(factory(setting))


class CopiesColumns(Wrapped):
    """Copies results column by column: equal values, other strides."""

    def read(self) -> Results:
        """Copies whose last dimension is the outermost in memory."""
        return {
            name: value.transpose(0, -1).clone(memory_format=torch.contiguous_format)
            .transpose(0, -1)
            for name, value in self.inside.read().items()
        }  # fmt: skip


def copied_at_the_border(setting: Setting) -> Any:
    """The sampler reads views of its buffers, and they are copied last, in another memory order."""
    return CopiesColumns(factory(setting, parts=Parts(sampler=ReadsViews)))


def greedy_drafts(setting: Setting) -> Any:
    """Every row drafts its argmax, and is accepted with all mass of q at it; nothing is drawn."""
    return factory({**setting, "greedy_draft": setting["family"] == "dspark"})
