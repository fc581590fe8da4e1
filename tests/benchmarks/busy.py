"""What the profiler sees of one block: launches, and the share of its span that kernels fill."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

from .clock import Run

SHOWN, NAME = 4, 48


@dataclass(frozen=True)
class Profile:
    """launches a block; busy and span in microseconds; the kernels with the most time, by name."""

    launches: int
    busy: float
    span: float
    top: dict[str, float]

    @property
    def share(self) -> float:
        """The part of the span in which some kernel runs."""
        return self.busy / self.span if self.span else 0.0


def prime() -> None:
    """Start the profiler once: kernels of a graph are seen only if it was there at capture."""
    profiled(lambda: torch.zeros(1, device="cuda"))


def profiled(run: Run) -> Profile:
    """Profile one call, after one that is not profiled."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        run()
        torch.cuda.synchronize()
    return summed(
        (event.name, event.time_range.start, event.time_range.end)
        for event in seen.events()
        if event.device_type.name == "CUDA" and event.time_range.end > event.time_range.start
    )


def summed(events: Iterable[tuple[str, float, float]]) -> Profile:
    """Put device events (name, start, end) together; what overlaps counts once."""
    ordered = sorted(events, key=lambda event: event[1])
    spent: dict[str, float] = {}
    busy, reached = 0.0, float("-inf")
    for name, start, end in ordered:
        spent[name[:NAME]] = spent.get(name[:NAME], 0.0) + end - start
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    span = reached - ordered[0][1] if ordered else 0.0
    most = sorted(spent.items(), key=lambda item: -item[1])[:SHOWN]
    return Profile(len(ordered), busy, span, dict(most))
