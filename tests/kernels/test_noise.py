"""Counter noise that a kernel writes: the words and uniforms of torch, whole and over shards."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl import noise
from impl.fused import DrawnNoise
from oracle.judge.margin import ARITHMETIC, UNIT

from .chains import DEVICE, state

# Past one tile, and no multiple of four.
WIDE = 1024 + 70


def near(found: torch.Tensor, wanted: torch.Tensor) -> bool:
    """Whether E differs by no more than what the judge grants both sides."""
    granted = 2 * ARITHMETIC["triton-cuda"].exponential_variable * UNIT
    return bool(((found - wanted).abs() <= granted * wanted).all())


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 3), (3, 64), (2, WIDE)])
@pytest.mark.parametrize("step", [0, 6])
def test_it_is_the_noise_of_torch(rows: int, vocabulary: int, step: int) -> None:
    """Of a block past 2**32 and a key of two words; words that are equal have equal uniforms."""
    held = state(vocabulary)
    found = DrawnNoise()(held, rows, step, None)
    assert found.shape == (rows, vocabulary)
    assert near(found, noise.counter(held, rows, step, None))
    other = noise.counter(held, rows, step + 1, None)
    assert not near(found, other)


@pytest.mark.parametrize(("start", "width"), [(4, 41), (1000, 90), (0, 0)])
def test_a_shard_has_the_bits_of_the_whole(start: int, width: int) -> None:
    """Noise belongs to the global id; an empty shard draws nothing."""
    held = state(WIDE)
    whole = DrawnNoise()(held, 2, 3, None)
    part = DrawnNoise()(held.shard(start, width), 2, 3, None)
    assert torch.equal(part, whole[:, start : start + width])


def test_nothing_outside_is_written() -> None:
    """The last tile ends inside a group of four, and the rows lie side by side."""
    held = state(7)
    memory = torch.full((4, 7), -1.0, device=DEVICE)
    DrawnNoise().draw((held.seed_key, held.block), 0, 0, memory[1:3])
    assert bool((memory[1:3] > 0).all())
    assert bool((memory[::3] == -1.0).all())
