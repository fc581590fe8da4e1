"""Coins: the uniforms of an accept, never words of the draft noise.

counter  the counters of the draft's row 0 step, under a key of their own: coins of a block can be
         drawn again. A family without noise counts its own blocks
race     one buffer from the generator of the draft, drawn after the block's noise
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .noise import CounterNoise, Noise, RaceNoise, uniforms

DOMAIN = (0x7F4A7C15, 0x9E3779B9)


def counter_coins(noise: CounterNoise, rows: int, wide: int) -> Tensor:
    """Return the coins of the block that `noise.block` says.

    wide   K + 1: the accept coins, then the final draw
    result [rows, K + 1] float32 in (0, 1): word k mod 4 of (k div 4, row, 0, block)
    """
    low, high = (noise.seed_key[part] ^ DOMAIN[part] for part in range(2))
    key = torch.stack((low, high))
    return uniforms(replace(noise, vocabulary=wide, seed_key=key), rows, 0)


def race_coins(noise: RaceNoise, rows: int, wide: int) -> Tensor:
    """Draw the coins of one accept; result [rows, K + 1] float32 in [0, 1)."""
    coins = torch.empty(rows, wide, dtype=torch.float32, device=noise.generator.device)
    return coins.uniform_(generator=noise.generator)


@dataclass(frozen=True)
class Coins:
    """Where a proposer's coins come from.

    noise  the noise of its drafts; for a family that draws none, a counter that nobody else moves
    counts True when blocks must be counted here, because no draft does
    """

    noise: Noise
    counts: bool = False

    @classmethod
    def beside(
        cls, noise: Noise | None, vocabulary: int, seed: int, device: torch.device
    ) -> "Coins":
        """Coins of drafts with this noise, or of drafts that draw none."""
        if noise is None:
            return cls(CounterNoise.seeded(vocabulary, seed, device), counts=True)
        return cls(noise)

    def mark(self) -> Noise:
        """Say where the next block is drawn; to be called before it is."""
        if isinstance(self.noise, RaceNoise):
            return self.noise
        noise = self.noise
        marked = replace(noise, seed_key=noise.seed_key.clone(), block=noise.block.clone())
        if self.counts:
            noise.block.add_(1)
        return marked


def draw_coins(marked: Noise, rows: int, wide: int) -> Tensor:
    """Return the coins of the block that was marked, [rows, K + 1] float32."""
    if isinstance(marked, RaceNoise):
        return race_coins(marked, rows, wide)
    return counter_coins(marked, rows, wide)
