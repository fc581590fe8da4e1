"""Counter noise in memory: the E of one step, for arrows of torch that read it.

A program draws one row of a tile of ids; a call of Philox gives four neighbouring ones. Words and
uniforms are those of torch, E lies within the error of the polynomial in philox.py.
"""

import triton
import triton.language as tl
from torch import Tensor

from .philox import exponential, philox, uniform

# Groups of four ids of a program, and its warps.
FOUR, GROUPS, WARPS = 4, 256, 4


@triton.jit(do_not_specialize=["first", "width", "step"])
def noise_kernel(
    noise: tl.tensor,
    seed_key: tl.tensor,
    block: tl.tensor,
    first: tl.tensor,
    width: tl.tensor,
    step: tl.tensor,
    GROUPS: tl.constexpr,
) -> None:
    """Write E of the ids [first, first + width) of one row.

    noise [B, width] float32, contiguous; seed_key [2] int64; block [1] int64; first a multiple of 4
    """
    row, tile = tl.program_id(0), tl.program_id(1)
    group = tile * GROUPS + tl.arange(0, GROUPS)
    c0 = (first // 4 + group).to(tl.uint32)
    c1, c2, c3 = row.to(tl.uint32), step.to(tl.uint32), tl.load(block).to(tl.uint32)
    k0, k1 = tl.load(seed_key).to(tl.uint32), tl.load(seed_key + 1).to(tl.uint32)
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, k0, k1)
    # The words of a group side by side, so that a store is of neighbouring numbers.
    words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3))
    at = tile * (4 * GROUPS) + tl.arange(0, 4 * GROUPS)
    out = noise + row.to(tl.int64) * width + at
    tl.store(out, exponential(uniform(words)), mask=at < width)


def draw(state: tuple[Tensor, Tensor], first: int, step: int, out: Tensor) -> None:
    """Write E of one step; see `noise.counter`.

    state  [2] int64 and [1] int64: key and block counter
    first  global id of the first column, a multiple of 4
    out    [B, width] float32, contiguous
    """
    rows, width = out.shape
    if not out.numel():
        return
    seed_key, block = state
    tiles = triton.cdiv(width, FOUR * GROUPS)
    noise_kernel[(rows, tiles)](
        out, seed_key, block, first, width, step, GROUPS=GROUPS, num_warps=WARPS
    )
