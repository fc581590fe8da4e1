"""An implementation of one block, ready to run, and how a call is folded into a graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from impl.graph import engine_for

from .clock import Run

WARM_UPS = 2


@dataclass
class Variant:
    """A block that can be run again and again.

    name     what the table calls it
    run      drafts one block; device work is queued and not waited for
    tokens   [B, K] int64: where the drafts are found after a run
    draws    'counter': the noise of the seed that all share. 'own': other noise
    restart  puts the noise back to its start
    loose    the same block outside a graph; None where `run` is that
    note     what a reader should know
    generators  that a graph around `loose` has to register
    """

    name: str
    run: Run
    tokens: Tensor
    draws: str
    restart: Run = field(default=lambda: None)
    loose: Run | None = None
    note: str = ""
    generators: tuple[torch.Generator, ...] = ()


@dataclass(frozen=True)
class Folded:
    """A replay, and the body whose tensors it uses by address: both live as long as this does."""

    replay: Callable[[], None]
    body: Run

    def __call__(self) -> None:
        """Replay."""
        self.replay()


def fold(body: Run, device: torch.device, generators: Sequence[torch.Generator] = ()) -> Folded:
    """Warm a body up, and capture it as a user of torch does.

    On a CPU the emulator records.
    """
    for _ in range(WARM_UPS):
        body()
    if device.type == "cpu":
        engine = engine_for(device)
        recording = engine.record(body, pool=engine.pool(), generators=generators)
        return Folded(recording.replay, body)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        body()
    return Folded(graph.replay, body)
