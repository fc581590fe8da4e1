"""The noise of the counter dialect (README N2, N3) and the two transforms of a uniform.

Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch

Words = npt.NDArray[np.uint64]
Uniform = Callable[[Words], npt.NDArray[np.float64]]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (np.uint64(0x9E3779B9), np.uint64(0xBB67AE85))
LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
LARGEST_UNIFORM = 1.0 - 2.0**-24
COIN_DOMAIN = 0x9E3779B97F4A7C15


def philox(counter: Sequence[Words], seed_key: int) -> tuple[Words, Words, Words, Words]:
    """Ten rounds of Philox4x32.

    counter: four arrays of words below 2^32, broadcast together; seed_key: 64 bits, low word first.
    Returns four arrays of output words.
    """
    c0, c1, c2, c3 = (word & LOW for word in counter)
    k0 = np.uint64(seed_key & 0xFFFFFFFF)
    k1 = np.uint64((seed_key >> 32) & 0xFFFFFFFF)
    for _ in range(10):
        first = MULTIPLIERS[0] * c0
        second = MULTIPLIERS[1] * c2
        c0 = (second >> HALF) ^ c1 ^ k0
        c1 = second & LOW
        c2 = (first >> HALF) ^ c3 ^ k1
        c3 = first & LOW
        k0 = (k0 + WEYL[0]) & LOW
        k1 = (k1 + WEYL[1]) & LOW
    return c0, c1, c2, c3


def words(ids: Words, row: Words, step: Words, block: int, seed_key: int) -> Words:
    """The word of each token id: number id mod 4 of the call at (id div 4, row, step, block)."""
    quarter = ids // np.uint64(4)
    block_word = np.uint64(block % 2**32)
    shape = np.broadcast_shapes(ids.shape, row.shape, step.shape)
    counter = [np.broadcast_to(part, shape) for part in (quarter, row, step, block_word)]
    outputs = philox(counter, seed_key)
    chosen = np.broadcast_to(ids % np.uint64(4), shape).astype(np.int64)
    return np.choose(chosen, outputs)


def uniform(bits: Words) -> npt.NDArray[np.float64]:
    """u = (bits + 1/2) 2^-32 rounded to float32, at most 1 - 2^-24: open at both ends."""
    exact = (bits.astype(np.float64) + 0.5) * 2.0**-32
    as_float32 = exact.astype(np.float32).astype(np.float64)
    return np.minimum(as_float32, LARGEST_UNIFORM)


def unbounded_uniform(bits: Words) -> npt.NDArray[np.float64]:
    """u = (float32(bits) + 1/2) 2^-32 in float32 throughout: the 128 largest words give 1."""
    half, scale = np.float32(0.5), np.float32(2.0**-32)
    return ((bits.astype(np.float32) + half) * scale).astype(np.float64)


def exponential(u: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """E = -log(1 - u), distributed Exp(1)."""
    return np.asarray(-torch.log1p(-torch.from_numpy(u)).numpy())


def gumbel(e: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """G = -log E, distributed as a standard Gumbel variable."""
    return -np.log(e)


def floored(e: torch.Tensor) -> torch.Tensor:
    """Race noise as it is used: an E of zero becomes the smallest normal float32."""
    return e.to(torch.float64).clamp(min=SMALLEST_NORMAL)


def counter_noise(
    rows: int,
    drafts: int,
    vocabulary: int,
    block: int,
    seed_key: int,
    vocab_start: int = 0,
    law: Uniform = uniform,
) -> torch.Tensor:
    """The exponential variables of one block in the counter dialect.

    rows B; drafts K; vocabulary V; block the block counter before the block; seed_key 64 bits;
    vocab_start the global id of column 0; law the uniform of a word. Returns [B, K, V] float64.
    """
    first, last = vocab_start // 4, -(-(vocab_start + vocabulary) // 4)
    quarters = np.arange(first, last, dtype=np.uint64)[None, None, :]
    row = np.arange(rows, dtype=np.uint64)[:, None, None]
    step = np.arange(drafts, dtype=np.uint64)[None, :, None]
    shape = (rows, drafts, last - first)
    counter = (quarters, row, step, np.uint64(block % 2**32))
    # One call of the function gives the words of four neighbouring ids.
    bits = np.stack(philox([np.broadcast_to(part, shape) for part in counter], seed_key), -1)
    skipped = vocab_start - 4 * first
    mine = bits.reshape(rows, drafts, -1)[:, :, skipped : skipped + vocabulary]
    return torch.from_numpy(exponential(law(mine)))


def counter_coins(rows: int, drafts: int, block: int, seed_key: int) -> torch.Tensor:
    """The uniforms of one accept in the counter dialect: coins 0 to K - 1, then the final draw.

    Coin k of a row is word k mod 4 of the call at (k div 4, row, 0, block), under a key of its own,
    so that no coin shares a word with the noise of a draft. rows B; drafts K; block the block
    counter before the block; seed_key 64 bits. Returns [B, K + 1] float64 holding float32 values.
    """
    places = np.arange(drafts + 1, dtype=np.uint64)[None, :]
    row = np.arange(rows, dtype=np.uint64)[:, None]
    bits = words(places, row, np.zeros((1, 1), dtype=np.uint64), block, seed_key ^ COIN_DOMAIN)
    return torch.from_numpy(uniform(bits))
