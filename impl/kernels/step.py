"""One draft step in one launch, and one launch that ends the block: K + 1 launches in all.

    programs stride over tiles of the vocabulary; each keeps e = w1[previous] of all its rows
    for a tile:
        bias   = w2[tile] e, summed in float32 in one order, rounded to the dtype of w2
        logits = base + bias, rounded to the step dtype, and stored when they are kept
        look, draw and settle: the best key of a row so far against the tile

`previous` is read from the slots of the step before, so nothing between two steps goes through a
launch of its own. Slots are empty between blocks: the end of a block decodes them, writes tokens
and flags, empties them and counts the block.

Liberties, besides those of tile.py:
1. Odd steps walk the tiles backwards, so that a step begins with what the last one left in L2.
2. Ids lie on the rows of the product, because a draft has fewer rows than an MMA has. Rows are
   padded to 16, 32 or 64, so that every batch compiles to the same instruction with the same order
   of summation, and a row has the same bits in every batch.
3. The whole rank is one dot: no order of partial sums to keep apart.
"""

import triton
import triton.language as tl

from . import order
from .tile import contest, eased, least_logit, product, rounded, widened

# Below every id, those of a turn past the end included.
NO_ID = tl.constexpr(-(2**31) + 1)
# The slot of a key of 1: rows that are not live have logits of zero, which never reach it.
NOT_LIVE = tl.constexpr(0x3F800000 << 32)


@triton.jit
def previous_tokens(
    winners: tl.tensor,
    anchor: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    step: tl.tensor,
) -> tl.tensor:
    """Return the tokens [ROWS] int64 before this step: the anchors, or what the last step chose."""
    later = row < tl.where(step > 0, rows, 0)
    begins = row < tl.where(step > 0, 0, rows)
    keys = winners + (step - 1) * rows + row
    key = tl.load(keys, mask=later, other=order.NOTHING)
    edge = tl.load(keys + drafts * rows, mask=later, other=order.NOTHING)
    first = tl.load(anchor + row, mask=begins, other=0)
    return tl.where(later, order.winner(key, edge), first)


@triton.jit(do_not_specialize=["rows", "drafts", "step", "tiles"])
def step_kernel(
    w1: tl.tensor,
    w2: tl.tensor,
    base: tl.tensor,
    kept: tl.tensor,
    winners: tl.tensor,
    anchor: tl.tensor,
    temperatures: tl.tensor,
    greedy: tl.tensor,
    seed_key: tl.tensor,
    block: tl.tensor,
    w1_row: tl.tensor,
    w2_row: tl.tensor,
    base_row: tl.tensor,
    base_step: tl.tensor,
    kept_row: tl.tensor,
    kept_step: tl.tensor,
    vocabulary: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    step: tl.tensor,
    tiles: tl.tensor,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    RANK: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    TURNS: tl.constexpr,
    STAGES: tl.constexpr,
    DRAWN: tl.constexpr,
    KEPT: tl.constexpr,
    STEP_TYPE: tl.constexpr,
    INTERPRETED: tl.constexpr,
) -> None:
    """One step of all rows; see `launch_step` for the arguments."""
    weight_type: tl.constexpr = w2.dtype.element_ty
    # Neighbours take the same tiles for other rows, so that one of them finds w2 in L2.
    groups = tl.cdiv(rows, ROWS)
    part, parts = tl.program_id(0) // groups, tl.num_programs(0) // groups
    row = tl.program_id(0) % groups * ROWS + tl.arange(0, ROWS)
    live = row < rows
    depth = tl.arange(0, DEPTH)
    previous = previous_tokens(winners, anchor, row, rows, drafts, step)
    embedded = tl.load(
        w1 + previous[None, :] * w1_row + depth[:, None],
        mask=live[None, :] & (depth[:, None] < RANK),
        other=0.0,
    )
    embedded = rounded(widened(embedded), weight_type, INTERPRETED)
    sampled = row < 0
    if DRAWN:
        sampled = tl.load(greedy + row, mask=live, other=1) == 0
    some = tl.max(sampled.to(tl.int32)) > 0
    temperature = tl.load(temperatures + row, mask=sampled, other=1.0)
    slope = 1.4426950408889634 / temperature
    k0, k1, counted = 0, 0, 0
    if DRAWN:
        k0, k1 = tl.load(seed_key).to(tl.uint32), tl.load(seed_key + 1).to(tl.uint32)
        counted = tl.load(block)
    keys = winners + step * rows + row
    edges = keys + drafts * rows
    base_at = base + step.to(tl.int64) * base_step + row.to(tl.int64) * base_row
    kept_at = kept + step.to(tl.int64) * kept_step + row.to(tl.int64) * kept_row
    for turn in tl.range(0, TURNS, num_stages=STAGES):
        nth = part + turn * parts
        # In the last turn some programs are past the end, and touch nothing.
        there = nth < tiles
        first = tl.where(step % 2 == 1, tiles - 1 - nth, nth) * WIDE
        ids = (first + tl.arange(0, WIDE))[:, None]
        inside = ids < tl.where(there, vocabulary, NO_ID)
        if EVEN:
            inside = tl.full((WIDE, 1), nth, tl.int32) < tiles
        number = tl.full((ROWS,), order.NO_NUMBER, tl.int32)
        if turn > 0:
            slot = tl.load(keys, mask=live, other=NOT_LIVE, cache_modifier=".cg")
            number = order.number_of(slot)
        weights = tl.load(
            w2 + ids.to(tl.int64) * w2_row + depth[None, :],
            mask=inside & (depth[None, :] < RANK),
            other=0.0,
        )
        given = tl.load(base_at[None, :] + ids, mask=inside & live[None, :], other=0.0)
        bias = product(weights, embedded, INTERPRETED)
        bias = widened(rounded(bias, weight_type, INTERPRETED))
        stored = rounded(widened(given) + bias, STEP_TYPE, INTERPRETED)
        if KEPT:
            tl.store(kept_at[None, :] + ids, stored, mask=inside & live[None, :])
        logits = widened(stored)
        best = eased(number, sampled)
        least = least_logit(best, temperature, sampled)
        hot = ~(logits < least[None, :])
        if there & (tl.max(hot.to(tl.int32)) > 0):
            tile = (logits, hot, best, ids, inside)
            lines = (row, live, temperature, slope, sampled, keys, edges)
            contest(
                tile, lines, (first, step, counted, k0, k1), some, DRAWN, WIDE, ROWS, INTERPRETED
            )


@triton.jit(do_not_specialize=["rows", "drafts"])
def finish_kernel(
    winners: tl.tensor,
    tokens: tl.tensor,
    flags: tl.tensor,
    block: tl.tensor,
    tokens_row: tl.tensor,
    flags_row: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    COUNTS: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """Write tokens and flags of a block, empty its slots, and count it."""
    place = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    live = place < rows * drafts
    step, row = place // rows, place % rows
    keys = winners + place
    edges = keys + rows * drafts
    key = tl.load(keys, mask=live, other=order.NOTHING)
    edge = tl.load(edges, mask=live, other=order.NOTHING)
    tl.store(tokens + row.to(tl.int64) * tokens_row + step, order.winner(key, edge), mask=live)
    flag = order.flag(key, edge).to(tl.uint8)
    tl.store(flags + row.to(tl.int64) * flags_row + step, flag, mask=live)
    empty = tl.full((WIDE,), order.NOTHING, tl.int64)
    tl.store(keys, empty, mask=live)
    tl.store(edges, empty, mask=live)
    if COUNTS:
        if tl.program_id(0) == 0:
            tl.store(block, tl.load(block) + 1)
