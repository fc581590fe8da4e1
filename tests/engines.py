"""A graph engine with a pool and tensors on its device, for tests that run on every engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from impl.graph import Engine, Pool, Recording, engine_for

DEVICES = {"emulator": "cpu", "cuda": "cuda"}


@dataclass
class Bench:
    """One engine, one pool, and tensors on the engine's device."""

    name: str
    engine: Engine = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.engine = engine_for(self.device, self.name)
        self.pool = self.engine.pool()

    @property
    def device(self) -> str:
        """Where the engine records."""
        return DEVICES[self.name]

    def tensor(self, *values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Make a tensor on the device."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def host(self, *values: float) -> torch.Tensor:
        """Make a host tensor that a capture may copy from."""
        return torch.tensor(values, pin_memory=self.device == "cuda")

    def generator(self, seed: int) -> torch.Generator:
        """Make a generator on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def record(self, body: Callable[[], Any], *generators: torch.Generator) -> Recording:
        """Record in the bench's pool."""
        return self.engine.record(body, pool=self.pool, generators=generators)
