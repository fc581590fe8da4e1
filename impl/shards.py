"""A vocabulary over ranks: shards, the winner over them, and facts that all ranks share.

Every rank finds the best ids of its own shard, all candidates travel to all ranks, and each rank
takes the largest value and of equal ones the lowest id. Keys are a matter of each id alone, so the
result is that of the whole vocabulary, and no rank has to be told it.

Gathers read and write memory given by the caller, so that a recording can hold them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import torch
from torch import Tensor, distributed

from .choice import counter_keys, flags_of, is_drawn, largest

IDS = 2**31
# The newer name of one collective; not every supported version of torch has it.
_all_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
FIELDS = 2
ABSENT = "absent"
LEAST = "free_bytes"


@dataclass(frozen=True)
class Shard:
    """The ids of one rank, among those of all ranks.

    ranges  ((start, end), ...) of the ranks: contiguous, ascending, from 0 to V; some may be empty
    rank    which of them is this one

    ValueError: ranges that leave a gap, overlap, or hold no id; a rank that has no range.
    """

    ranges: tuple[tuple[int, int], ...]
    rank: int

    def __post_init__(self) -> None:
        expected = 0
        for rank, (start, end) in enumerate(self.ranges):
            if start != expected or end < start:
                raise ValueError(
                    f"the shard of rank {rank} is [{start}, {end}); it should start at {expected}, "
                    "where the one before it ends, and not end before it starts"
                )
            expected = end
        if not 0 < expected < IDS:
            raise ValueError(f"the shards hold {expected} ids; they should hold 1 to {IDS - 1}")
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank {self.rank} has no shard; there are {self.ranks}")

    @property
    def ranks(self) -> int:
        """How many ranks share the vocabulary."""
        return len(self.ranges)

    @property
    def vocabulary(self) -> int:
        """V, the ids of all shards."""
        return self.ranges[-1][1]

    @property
    def start(self) -> int:
        """The first global id of this shard."""
        return self.ranges[self.rank][0]

    @property
    def end(self) -> int:
        """The global id after the last one of this shard."""
        return self.ranges[self.rank][1]

    @property
    def width(self) -> int:
        """The ids of this shard."""
        return self.end - self.start

    @property
    def widest(self) -> int:
        """The ids of the largest shard: what a gather of equal sizes has to hold."""
        return max(end - start for start, end in self.ranges)


def even_ranges(vocabulary: int, ranks: int, multiple: int = 4) -> tuple[tuple[int, int], ...]:
    """Cut [0, V) into equal shards that start at multiples; the last ones may be short or empty."""
    wide = -(-vocabulary // (ranks * multiple)) * multiple
    edges = [min(rank * wide, vocabulary) for rank in range(ranks + 1)]
    return tuple(pairwise(edges))


class Group(Protocol):
    """The ranks that share a vocabulary; every rank makes the same calls in the same order.

    rank  the number of this one
    size  how many there are
    """

    @property
    def rank(self) -> int:
        """The number of this rank."""
        ...

    @property
    def size(self) -> int:
        """How many ranks there are."""
        ...

    def gather(self, mine: Tensor, everyone: Tensor) -> None:
        """Write what every rank has, rank after rank.

        mine     [n] any dtype, contiguous: of the same n on every rank
        everyone [ranks * n] the same dtype, contiguous
        """
        ...

    def exchange(self, fact: Any) -> list[Any]:
        """Return the facts of all ranks, by rank; host values, so never inside a recording."""
        ...


@dataclass(frozen=True)
class ProcessGroup:
    """Ranks that are processes.

    group  a process group that is initialised, on a backend of the device; None is the default one
    """

    group: distributed.ProcessGroup | None = None

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return distributed.get_rank(self.group)

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return distributed.get_world_size(self.group)

    def gather(self, mine: Tensor, everyone: Tensor) -> None:
        """Write what every rank has, rank after rank; see Group."""
        # Bytes, because not every backend gathers every dtype.
        out, own = everyone.view(torch.uint8), mine.view(torch.uint8)
        _all_gather(out, own, group=self.group)

    def exchange(self, fact: Any) -> list[Any]:
        """Return the facts of all ranks, by rank."""
        facts: list[Any] = [None] * self.size
        distributed.all_gather_object(facts, fact, group=self.group)
        return facts


def agree(group: Group, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts that are the same on every rank: the least free memory, and the others as given.

    Ranks that fold differently wait for one another for ever, so a gate is asked only about these,
    and its answer is compared in the same way. None is memory without a limit.

    ValueError, on every rank: another fact differs; the fact, the ranks and their values.
    """
    everywhere = group.exchange(dict(facts))
    names = dict.fromkeys(name for other in everywhere for name in other)
    for name in names:
        for rank, other in enumerate(everywhere):
            one, two = everywhere[0].get(name, ABSENT), other.get(name, ABSENT)
            if name != LEAST and one != two:
                raise ValueError(
                    f"{name} is {one!r} on rank 0 and {two!r} on rank {rank}; "
                    "every rank should have the same"
                )
    agreed = dict(facts)
    if LEAST in names:
        limits = [other[LEAST] for other in everywhere if other.get(LEAST) is not None]
        agreed[LEAST] = min(limits, default=None)
    return agreed


def candidate(values: Tensor, shard: Shard, out: Tensor) -> None:
    """Write the largest value of this shard and its global id.

    values [n, width] float
    out    [2, n] int32: the value as the bits of a float32, and the id

    An empty shard has no candidate: -inf at an id that no rank holds, so that it loses every tie.
    """
    value, ids = out[0].view(torch.float32), out[1]
    if not shard.width:
        value.fill_(-torch.inf)
        ids.fill_(shard.vocabulary)
        return
    at = largest(values)
    value.copy_(values.gather(-1, at[:, None])[:, 0])
    ids.copy_(at + shard.start)


def winner(gathered: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest value over the ranks, and of equal ones the lowest id; NaN is largest.

    gathered [ranks, 2, n] int32: candidates
    result   [n] float32, [n] int32
    """
    values, ids = gathered[:, 0].view(torch.float32), gathered[:, 1]
    top = values.amax(0)
    best = (values == top) | values.isnan()
    return top, torch.where(best, ids, IDS - 1).amin(0)


@dataclass(frozen=True)
class ShardedChoice:
    """The choice arrow over ranks: local candidates, one gather, the winner.

    With noise rows may be drawn, and a second candidate, the one of the best key, travels too.

    shard       the ids of this rank
    group       the ranks
    candidates  [>= kinds * 2 * n] int32: what this rank sends
    gathered    [>= ranks * kinds * 2 * n] int32: what all ranks sent
    """

    shard: Shard
    group: Group
    candidates: Tensor
    gathered: Tensor

    def __call__(
        self,
        logits: Tensor,
        temperature: Tensor | None,
        greedy: Tensor | None,
        noise: Tensor | None,
        tokens: Tensor,
        flags: Tensor,
    ) -> None:
        """Write the global ids that win, and the flags; shapes as in choice.py, V the shard's."""
        flat = logits.flatten(0, -2)
        values = [flat]
        if noise is not None:
            scaled = flat.float() / _given(temperature)[:, None]
            values.append(counter_keys(scaled, noise))
        tops, ids = zip(*self._contest(values), strict=True)
        chosen = ids[0]
        if noise is not None:
            # Division by T keeps the order, so this is the largest l / T of the whole row.
            drawn = is_drawn(_given(greedy), tops[0] / _given(temperature))
            chosen = torch.where(drawn, ids[1], chosen)
        tokens.copy_(chosen.view(tokens.shape))
        flags.copy_(flags_of(tops[0]).view(flags.shape))

    def _contest(self, values: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
        kinds, rows = len(values), values[0].shape[0]
        size = kinds * FIELDS * rows
        mine, everyone = self.candidates[:size], self.gathered[: self.group.size * size]
        for own, sent in zip(values, mine.view(kinds, FIELDS, rows), strict=True):
            candidate(own, self.shard, sent)
        self.group.gather(mine, everyone)
        came = everyone.view(self.group.size, kinds, FIELDS, rows)
        return [winner(came[:, kind]) for kind in range(kinds)]


def _given(parameter: Tensor | None) -> Tensor:
    if parameter is None:
        raise ValueError("noise came without temperature or greedy; a drawn row needs all three")
    return parameter
