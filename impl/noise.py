"""Exponential noise of sampled rows: E ~ Exp(1), float32, drawn afresh in every step.

race     one buffer, redrawn from the generator that was given at build
counter  Philox4x32-10 of (id, row, step, block counter): bucket and batch mates cannot change it

Consumption depends on shapes alone. Greedy rows draw and discard.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
MULTIPLY = (0xD2511F53, 0xCD9E8D57)
BUMP = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORDS = 4
SEEDS = 2**64
EXPONENTIAL_MIN = torch.finfo(torch.float32).tiny
UNIFORM_MAX = 1.0 - 2.0**-24


@dataclass(frozen=True)
class RaceNoise:
    """Draws from a generator of the device; every recording registers it.

    vocabulary  V
    generator   torch.Generator on the device, never the default one
    """

    vocabulary: int
    generator: torch.Generator
    dialect: ClassVar[str] = "race"

    @classmethod
    def seeded(cls, vocabulary: int, seed: int, device: torch.device) -> "RaceNoise":
        """Build the generator on `device` from `seed`."""
        generator = torch.Generator(device)
        generator.manual_seed(_checked(seed))
        return cls(vocabulary, generator)

    @property
    def state(self) -> dict[str, Tensor]:
        """Device tensors that carry the state; the generator carries this one."""
        return {}

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generators that a recording has to register."""
        return (self.generator,)

    def reseed(self, seed: int) -> None:
        """Start the stream of `seed`; the next replay draws from it."""
        self.generator.manual_seed(_checked(seed))


@dataclass(frozen=True)
class CounterNoise:
    """Draws from counters; the state is on the device and moves inside the recording.

    vocabulary   ids that are drawn for: V, or those of one shard
    seed_key     [2] int64: the 64-bit key, low word first
    block        [1] int64: blocks drawn so far
    vocab_start  global id of the first of them; noise belongs to the global id

    ValueError: a start that is no multiple of 4.
    """

    vocabulary: int
    seed_key: Tensor
    block: Tensor
    vocab_start: int = 0
    dialect: ClassVar[str] = "counter"

    def __post_init__(self) -> None:
        if self.vocab_start % WORDS:
            raise ValueError(
                f"the shard starts at id {self.vocab_start}; with counter noise, which draws for "
                f"{WORDS} ids at once, it should start at a multiple of {WORDS}"
            )

    @classmethod
    def seeded(cls, vocabulary: int, seed: int, device: torch.device) -> "CounterNoise":
        """Allocate the key of `seed` and a block counter of zero on `device`."""
        key = torch.zeros(2, dtype=torch.int64, device=device)
        block = torch.zeros(1, dtype=torch.int64, device=device)
        noise = cls(vocabulary, key, block)
        noise.reseed(seed)
        return noise

    @property
    def state(self) -> dict[str, Tensor]:
        """Device tensors that carry the state."""
        return {"seed_key": self.seed_key, "block": self.block}

    @property
    def generators(self) -> tuple[torch.Generator, ...]:
        """The generators that a recording has to register: none."""
        return ()

    def shard(self, start: int, width: int) -> "CounterNoise":
        """The noise of the global ids [start, start + width), over the same state."""
        # An empty shard draws nothing, so where it would begin does not matter.
        return CounterNoise(width, self.seed_key, self.block, start if width else 0)

    def reseed(self, seed: int) -> None:
        """Set the key to `seed` and the block counter to zero, in place."""
        self.seed_key[0].fill_(_checked(seed) & WORD)
        self.seed_key[1].fill_(seed >> 32)
        self.block.zero_()


Noise: TypeAlias = RaceNoise | CounterNoise


def _checked(seed: int) -> int:
    if not 0 <= seed < SEEDS:
        raise ValueError(f"the noise seed is {seed}; it should be in [0, 2**64)")
    return seed


def race(noise: RaceNoise, rows: int, step: int, buffer: Tensor | None) -> Tensor:
    """Redraw the buffer.

    buffer [Bmax, V] float32: the static buffer; None draws into the recording's own memory
    result [rows, V] float32, at least the smallest normal number

    A zero would let a token of probability zero win through 0 / 0.
    """
    del step
    if buffer is None:
        device = noise.generator.device
        out = torch.empty(rows, noise.vocabulary, dtype=torch.float32, device=device)
    else:
        out = buffer[:rows]
    return out.exponential_(generator=noise.generator).clamp_(min=EXPONENTIAL_MIN)


def counter(noise: CounterNoise, rows: int, step: int, buffer: Tensor | None) -> Tensor:
    """Return E = -log1p(-u) of the uniforms of one step.

    result [rows, V] float32
    """
    del buffer
    return -torch.log1p(-uniforms(noise, rows, step))


def uniforms(noise: CounterNoise, rows: int, step: int) -> Tensor:
    """Return u of the counters (id // 4, row, step, block mod 2**32), word id % 4.

    result [rows, V] float32 in (0, 1): V and id as the noise says, id global

    u = (bits + 1/2) 2**-32 is exact in float64, rounded once to float32, and kept below 1: its
    largest words would give an infinite E, and with it a token of probability zero.
    """
    device = noise.block.device
    first = noise.vocab_start // WORDS
    last = first - (-noise.vocabulary // WORDS)
    group = torch.arange(first, last, device=device)[None, :]
    row = torch.arange(rows, device=device)[:, None]
    words = (group, row, torch.full_like(row, step), (noise.block & WORD)[:, None])
    bits = torch.stack(philox(words, (noise.seed_key[0], noise.seed_key[1])), -1).flatten(1)
    uniform = (bits[:, : noise.vocabulary].double() + 0.5) * 2.0**-32
    return uniform.float().clamp(max=UNIFORM_MAX)


def philox(counters: tuple[Tensor, ...], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 on 32-bit words held in int64.

    counters four tensors int64 that broadcast
    key      two tensors int64 of one element, low word first
    result   four tensors int64 of the broadcast shape

    A product wraps modulo 2**64, so its high word is exact after shift and mask. Words 0 and 2 are
    kept clean, because they are multiplied; words 1 and 3 may carry high bits until the end.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counters)
    even, odd = torch.stack((c0, c2)), torch.stack((c1, c3))
    column = (2, *(1 for _ in c0.shape))
    keys = torch.stack(key).view(column)
    # Filled on the device: a recording may copy nothing from the host.
    multiplier, bump = (
        torch.stack([torch.full_like(key[0], word) for word in pair]).view(column)
        for pair in (MULTIPLY, BUMP)
    )
    for _ in range(ROUNDS):
        product = (even * multiplier).flip(0)
        even, odd = ((product >> 32) ^ odd ^ keys) & WORD, product
        keys = keys + bump
    odd = odd & WORD
    return even[0], odd[0], even[1], odd[1]


def unused(noise: CounterNoise, rows: int, step: int, buffer: Tensor | None) -> None:
    """Draw nothing: counters of a block that samples no row need not be evaluated."""
    del noise, rows, step, buffer


def advance_counter(noise: CounterNoise) -> None:
    """Count one block, on the device."""
    noise.block.add_(1)


def advance_race(noise: RaceNoise) -> None:
    """Count nothing: the generator has moved with its draws."""
    del noise


@contextmanager
def preserved(noise: Noise | None) -> Iterator[None]:
    """Put the noise state back on exit, so that what runs inside consumes nothing."""
    if noise is None:
        yield
        return
    tensors = [(tensor, tensor.clone()) for tensor in noise.state.values()]
    generators = [(generator, generator.get_state()) for generator in noise.generators]
    try:
        yield
    finally:
        for tensor, before in tensors:
            tensor.copy_(before)
        for generator, state in generators:
            generator.set_state(state)
