"""Rounding to a dtype and back, compiled and interpreted.

Liberty: in the interpreter bfloat16 is rounded by integers and multiplied as float32, since its
casts truncate and its products of 16-bit numbers are those of integers.
"""

import triton
import triton.language as tl


@triton.jit
def rounded(values: tl.tensor, dtype: tl.constexpr, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Round float32 values to the nearest number of a dtype, ties to even."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = values.to(tl.uint32, bitcast=True)
        even = bits + 0x7FFF + ((bits >> 16) & 1)
        quiet = tl.where(values != values, 0x7FC00000, even) & 0xFFFF0000
        values = quiet.to(tl.float32, bitcast=True)
    return values.to(dtype)


@triton.jit
def widened(values: tl.tensor) -> tl.tensor:
    """Return values as float32."""
    return values.to(tl.float32)
