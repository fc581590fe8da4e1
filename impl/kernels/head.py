"""Argmax and flags of rows of logits, of many rows or of few.

many  the library's product is read once: a row is cut into parts, and the program of a part keeps
      the largest number of a lane, and its id; one atomic maximum a part raises the slot of the row
few   the product and its argmax are one launch: a program owns a tile of ids and all rows, and its
      logits never leave registers; one atomic maximum a row and tile

The end of a block (order.py) decodes the slots into tokens and flags, and empties them.

Liberties:
1. Logits that stay in registers are rounded to the dtype of the head before they are compared, as
   those that are stored (P1). Their order of summation is not the library's, so that a row may
   differ in its last bit, and in its token where logits are that near, between few rows and many.
2. Ids lie on the rows of the product, and rows are padded to 16, 32 or 64, as in step.py: every
   batch of few rows sums in the same order.
3. Ids past the vocabulary, and rows past the last, read the last one again and take no part: loads
   then have no mask.
4. Slots are laid out as those of a chain, step by step, so that one launch ends both.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from . import order
from .chain import INTERPRETED, finish, multiprocessors, padded_rows, power_of_two
from .rounding import rounded, widened

# Loads of all parts together have to cover the latency of memory: 8 KiB of 16-bit logits each.
WIDE, WARPS = 4096, 8
# Parts of all rows together, on one multiprocessor.
PARTS = 8
# Rows of a product whose logits are not stored.
FEW = 64


@dataclass(frozen=True)
class Shape:
    """How a product with argmax is compiled; no field changes a bit of what it computes.

    wide    ids of a tile
    depth   of a turn
    warps   of a program
    stages  turns in flight
    """

    wide: int
    depth: int
    warps: int
    stages: int


# padded rows -> shape
SHAPES = {16: Shape(128, 128, 4, 3), 32: Shape(128, 64, 4, 4), 64: Shape(128, 64, 4, 4)}


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


@triton.jit(do_not_specialize=["rows", "drafts"])
def output_kernel(
    weight: tl.tensor,
    hidden: tl.tensor,
    winners: tl.tensor,
    vocabulary: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    DEEP: tl.constexpr,
    WEIGHT_ROW: tl.constexpr,
    WIDE: tl.constexpr,
    DEPTH: tl.constexpr,
    ROWS: tl.constexpr,
    TURNS: tl.constexpr,
    STAGES: tl.constexpr,
    INTERPRETED: tl.constexpr,
) -> None:
    """Raise the slots of all rows by the logits of one tile of ids.

    weight [>= V, D] and hidden [B K, D] of one dtype; winners [2, K, B] int64
    """
    first = tl.program_id(0) * WIDE
    place, depth, row = tl.arange(0, WIDE), tl.arange(0, DEPTH), tl.arange(0, ROWS)
    count = rows * drafts
    line = tl.minimum(place, vocabulary - 1 - first)
    weights_at = weight + first.to(tl.int64) * WEIGHT_ROW
    weights_at += line[:, None] * WEIGHT_ROW + depth[None, :]
    hidden_at = hidden + tl.minimum(row, count - 1)[None, :] * DEEP + depth[:, None]
    total = tl.zeros((WIDE, ROWS), tl.float32)
    for turn in tl.range(0, TURNS, num_stages=STAGES):
        begin = turn * DEPTH
        if DEEP % DEPTH == 0:
            weights = tl.load(weights_at + begin)
            states = tl.load(hidden_at + begin)
        else:
            here = begin + depth < DEEP
            weights = tl.load(weights_at + begin, mask=here[None, :], other=0.0)
            states = tl.load(hidden_at + begin, mask=here[:, None], other=0.0)
        if INTERPRETED:
            weights, states = widened(weights), widened(states)
        total = tl.dot(weights, states, total, input_precision="ieee")
    logits = rounded(total, weight.dtype.element_ty, INTERPRETED)
    ids = (first + place)[:, None]
    number = tl.where(ids < vocabulary, order.mapped(widened(logits)), order.NO_NUMBER)
    slots = winners + (row % drafts) * rows + row // drafts
    tl.atomic_max(slots, order.best_of(number, ids), mask=row < count, sem="relaxed")


def largest_of_product(
    hidden: Tensor,
    weight: Tensor,
    slots: Tensor,
    tokens: Tensor,
    flags: Tensor,
    shape: Shape | None = None,
) -> None:
    """Write the argmax and the flag of every row of a product, and leave the slots empty.

    hidden  [B K, D] float, contiguous, of at most FEW rows
    weight  [V, D] of the same dtype, contiguous in its last dimension
    slots   [2, K, B] int64, empty
    tokens  [B, K] int64, flags [B, K] uint8: written; contiguous in their last dimension
    shape   None takes the one of the batch
    """
    rows, drafts = tokens.shape
    vocabulary, deep = weight.shape
    padded = padded_rows(rows * drafts, FEW)
    found = shape or SHAPES[padded]
    output_kernel[(triton.cdiv(vocabulary, found.wide),)](
        weight,
        hidden,
        slots,
        vocabulary,
        rows,
        drafts,
        DEEP=deep,
        WEIGHT_ROW=weight.stride(0),
        WIDE=found.wide,
        DEPTH=found.depth,
        ROWS=padded,
        TURNS=triton.cdiv(deep, found.depth),
        STAGES=found.stages,
        INTERPRETED=INTERPRETED,
        num_warps=found.warps,
    )
    finish(tokens, flags, slots, None)
