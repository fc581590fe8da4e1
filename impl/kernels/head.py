"""Argmax and flags of rows of logits: one launch that reads them once, and one that writes.

    a row is cut into parts; the program of a part keeps the largest number of a lane, and its id
    one atomic maximum a part raises the slot of the row
    the end of a block (step.py) decodes the slots into tokens and flags, and empties them

Liberties:
1. The product that makes the logits stays with the library, in every batch. A kernel that keeps it
   in registers saves the logits' way to memory and back, at most a tenth for few rows; but its
   order of summation is another one, and a row would change its bits with the size of its batch.
2. Slots are laid out as those of a chain, step by step, so that one launch ends both.
"""

import triton
import triton.language as tl
from torch import Tensor

from . import order
from .chain import finish, multiprocessors, power_of_two
from .step import widened

# Loads of all parts together have to cover the latency of memory: 8 KiB of 16-bit logits each.
WIDE, WARPS = 4096, 8
# Parts of all rows together, on one multiprocessor.
PARTS = 8


@triton.jit(do_not_specialize=["rows", "drafts"])
def largest_kernel(
    logits: tl.tensor,
    winners: tl.tensor,
    logits_row: tl.tensor,
    logits_step: tl.tensor,
    vocabulary: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    TURNS: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """Raise the slot of one row by the largest of one part of its logits.

    logits [B, K, V] float; winners [2, K, B] int64; a grid of B K rows by parts: rows may be many,
    and the second dimension of a grid ends at 65,535
    """
    row, step = tl.program_id(0) // drafts, tl.program_id(0) % drafts
    at = logits + row.to(tl.int64) * logits_row + step.to(tl.int64) * logits_step
    best = tl.full((WIDE,), order.NO_NUMBER, tl.int32)
    where = tl.full((WIDE,), 0, tl.int32)
    for turn in tl.range(0, TURNS):
        ids = (tl.program_id(1) * TURNS + turn) * WIDE + tl.arange(0, WIDE)
        inside = ids < vocabulary
        values = widened(tl.load(at + ids, mask=inside, other=0.0))
        number = tl.where(inside, order.mapped(values), order.NO_NUMBER)
        # Ids of a lane ascend, so an equal number comes too late.
        where = tl.where(number > best, ids, where)
        best = tl.maximum(best, number)
    most = tl.max(order.packed(best, where), 0)
    tl.atomic_max(winners + step * rows + row, most, sem="relaxed")


def raise_slots(logits: Tensor, slots: Tensor) -> None:
    """Put the largest logit of every row into its slot.

    logits [B, K, V] float, its last dimension contiguous
    slots  [2, K, B] int64, empty: only the first of the two kinds is used
    """
    rows, drafts, vocabulary = logits.shape
    tiles = triton.cdiv(vocabulary, WIDE)
    parts = max(1, PARTS * multiprocessors(logits.device) // (rows * drafts))
    # A power of two, so that few kernels serve all batches.
    turns = power_of_two(triton.cdiv(tiles, min(tiles, parts)))
    largest_kernel[(rows * drafts, triton.cdiv(tiles, turns))](
        logits,
        slots,
        logits.stride(0),
        logits.stride(1),
        vocabulary,
        rows,
        drafts,
        TURNS=turns,
        WIDE=WIDE,
        num_warps=WARPS,
    )


def largest(logits: Tensor, slots: Tensor, tokens: Tensor, flags: Tensor) -> None:
    """Write the argmax and the flag of every row, and leave the slots empty.

    logits, slots  as in `raise_slots`
    tokens         [B, K] int64, flags [B, K] uint8: written; contiguous in their last dimension
    """
    raise_slots(logits, slots)
    finish(tokens, flags, slots, None)
