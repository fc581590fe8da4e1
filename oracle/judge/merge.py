"""Processes that judge together: who they are, and their evidence in one place.

Started by torchrun, several processes are one run: checks of single samplers are shared out among
them, a check of ranks is played by all at once, and every process comes to the same report.
"""

import gc
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from .history import History

# A rank that waits for one that died must end; one that waits for long checks must not.
HANG = timedelta(seconds=60)
PATIENCE = timedelta(hours=24)


@dataclass(frozen=True)
class World:
    """The processes of this run.

    rank  the number of this one
    size  how many there are
    link  the group that their findings travel over, None for one process
    """

    rank: int = 0
    size: int = 1
    link: distributed.ProcessGroup | None = None

    def gather(self, mine: Any) -> list[Any]:
        """What every process has, by rank; all processes have to call it."""
        if self.size == 1:
            return [mine]
        everyone: list[Any] = [None] * self.size
        distributed.all_gather_object(everyone, mine, group=self.link)
        return everyone

    def leave(self) -> None:
        """Part from the other processes, when all of them are done."""
        if self.size > 1:
            # A process that ends with a failure takes the others with it.
            self.gather(None)
            # NCCL waits for ever for graphs that still hold its collectives.
            gc.collect()
            distributed.destroy_process_group()


def enter(device: str) -> World:
    """Meet the other processes when torchrun started this one; else be alone.

    device 'cpu' or 'cuda': over 'cuda' each process takes the GPU of its local rank. ValueError:
    there are more processes than GPUs on this machine.
    """
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        return World()
    backend = "gloo"
    if device == "cuda":
        rank, seen = distributed.get_node_local_rank(), torch.cuda.device_count()
        if rank >= seen:
            raise ValueError(
                f"process {rank} of this machine has no GPU of its own: torch sees {seen}, "
                f"required: at most --nproc-per-node {seen}"
            )
        torch.cuda.set_device(rank)
        backend = "cpu:gloo,cuda:nccl"
    distributed.init_process_group(backend, timeout=HANG)
    link = distributed.new_group(backend="gloo", timeout=PATIENCE)
    return World(distributed.get_rank(), distributed.get_world_size(), link)


def merged(histories: Iterable[History]) -> History:
    """One history of what several ranks saw at the same time: every event says whose it is.

    histories: by rank, of one plan. The first error of a rank, with its number, is the error.
    """
    ranks = list(histories)
    events = [{**event, "rank": n} for n, each in enumerate(ranks) for event in each.events]
    errors = [f"rank {n}: {each.error}" for n, each in enumerate(ranks) if each.error]
    return replace(ranks[0], events=events, error="".join(errors[:1]))


def by_rank(history: History) -> list[History]:
    """The histories of the ranks that a merged history holds."""
    numbers = sorted({event["rank"] for event in history.events})
    return [
        replace(history, events=[e for e in history.events if e["rank"] == n], rank=n)
        for n in numbers
    ]


def added(ledgers: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """What several processes spent, line by line."""
    total: dict[str, float] = {}
    for spent in ledgers:
        for line, probability in spent.items():
            total[line] = total.get(line, 0.0) + probability
    return total
