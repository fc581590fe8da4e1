"""Clocks: how long a call takes, on a GPU by events and on a CPU by the time of this process.

Cold: nothing of the call is in the cache. Hot: calls back to back. All times are microseconds.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import torch

Run = Callable[[], object]

COLD_ROUNDS, COLD_WARM = 30, 3
HOT_ROUNDS, HOT_CALLS = 7, 10
# Slower calls need fewer rounds for a steady median: their noise is a smaller share.
SLOW, SLOW_ROUNDS, SLOW_CALLS = 4_000.0, 9, 2
EVICTED = 512 * 2**20


class Clock(Protocol):
    """A clock of one device."""

    def cold(self, runs: Sequence[Run]) -> list[float]:
        """The median time of each call with a cold cache; the calls take turns."""

    def hot(self, run: Run) -> float:
        """The median time of a call among others of its kind."""

    def step(self, captured: Run, loose: Run) -> tuple[float, float]:
        """Device time of the captured part, and wall time of a step that waits for both parts."""

    def wait(self) -> None:
        """Return when the device has finished."""


class CudaClock:
    """Events around a call, on the current stream."""

    def __init__(self, evicted: int = EVICTED) -> None:
        self._cache = torch.zeros(evicted // 4, dtype=torch.float32, device="cuda")
        self._seen = torch.zeros((), dtype=torch.float32, device="cuda")

    def cold(self, runs: Sequence[Run]) -> list[float]:
        """As Clock; the cache is evicted by a read, so that no line has to be written back."""
        rounds = [self._rounds(run) for run in runs]
        found: list[list[float]] = [[] for _ in runs]
        for turn in range(max(rounds, default=0)):
            for run, wanted, kept in zip(runs, rounds, found, strict=True):
                if turn < wanted:
                    torch.sum(self._cache, 0, out=self._seen)
                    kept.append(self._timed(run, 1))
        return [statistics.median(times[COLD_WARM:]) for times in found]

    def hot(self, run: Run) -> float:
        """As Clock."""
        slow = self._timed(run, 1) > SLOW
        calls, rounds = (SLOW_CALLS, SLOW_ROUNDS // 3) if slow else (HOT_CALLS, HOT_ROUNDS)
        return statistics.median(self._timed(run, calls) for _ in range(rounds))

    def step(self, captured: Run, loose: Run) -> tuple[float, float]:
        """As Clock."""
        inside, walls = [], []
        for _ in range(COLD_WARM + COLD_ROUNDS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began = time.perf_counter()
            start.record()
            captured()
            end.record()
            loose()
            torch.cuda.synchronize()
            walls.append((time.perf_counter() - began) * 1e6)
            inside.append(start.elapsed_time(end) * 1e3)
        return statistics.median(inside[COLD_WARM:]), statistics.median(walls[COLD_WARM:])

    def wait(self) -> None:
        """As Clock; what an earlier call broke is raised here."""
        torch.cuda.synchronize()

    def _rounds(self, run: Run) -> int:
        run()
        return SLOW_ROUNDS if self._timed(run, 1) > SLOW else COLD_WARM + COLD_ROUNDS

    def _timed(self, run: Run, calls: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) * 1e3 / calls


class HostClock:
    """Processor time of this process; the least of several rounds, since a machine is shared.

    rounds  how often each call is timed; calls a round
    """

    def __init__(self, rounds: int = 5, calls: int = 1) -> None:
        self.rounds, self.calls = rounds, calls

    def cold(self, runs: Sequence[Run]) -> list[float]:
        """As Clock, with whatever the cache holds after the other calls."""
        for run in runs:
            run()
        times = [[self._timed(run) for run in runs] for _ in range(self.rounds)]
        return [min(column) for column in zip(*times, strict=True)]

    def hot(self, run: Run) -> float:
        """As Clock."""
        return min(self._timed(run) for _ in range(self.rounds))

    def step(self, captured: Run, loose: Run) -> tuple[float, float]:
        """As Clock."""
        return self._timed(captured), self._timed(lambda: (captured(), loose()))

    def wait(self) -> None:
        """Nothing is pending on a CPU."""

    def _timed(self, run: Run) -> float:
        began = time.process_time()
        for _ in range(self.calls):
            run()
        return (time.process_time() - began) * 1e6 / self.calls


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock() if device.type == "cuda" else HostClock()
