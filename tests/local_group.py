"""A group of ranks that are threads of this process, for tests: no backend and no network."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

Result = TypeVar("Result")


class _Meeting:
    """Where the ranks of one process meet: a place a rank, and a barrier."""

    def __init__(self, size: int) -> None:
        self.places: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)


@dataclass(frozen=True)
class LocalGroup:
    """Ranks that are threads of one process: no backend, no network. Start them with `together`."""

    rank: int
    size: int
    meeting: _Meeting

    @classmethod
    def together(cls, size: int, body: "Callable[[LocalGroup], Result]") -> list[Result]:
        """Run `body` on every rank at once and return the results by rank.

        The first error of a rank is raised; the other ranks are let go.
        """
        meeting, results, errors = _Meeting(size), {}, []

        def run(rank: int) -> None:
            try:
                results[rank] = body(cls(rank, size, meeting))
            except threading.BrokenBarrierError:
                pass
            except BaseException as error:  # noqa: BLE001  (raised again by the caller's thread)
                errors.append(error)
                meeting.barrier.abort()

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]
        return [results[rank] for rank in range(size)]

    def gather(self, mine: Tensor, everyone: Tensor) -> None:
        """Write what every rank has, rank after rank; see impl.shards.Group."""
        parts = everyone.view(self.size, -1)
        for part, tensor in zip(parts, self.exchange(mine.clone()), strict=True):
            part.copy_(tensor)

    def exchange(self, fact: Any) -> list[Any]:
        """Return the facts of all ranks, by rank."""
        self.meeting.places[self.rank] = fact
        self.meeting.barrier.wait()
        facts = list(self.meeting.places)
        # Nobody may post the next fact before everybody has read this one.
        self.meeting.barrier.wait()
        return facts
