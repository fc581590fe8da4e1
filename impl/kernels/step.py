"""One draft step in one launch, and one launch that ends the block: K + 1 launches in all.

    programs stride over tiles of the vocabulary; each keeps e = w1[previous] of all its rows
    for a tile:
        bias   = w2[tile] e, summed in float32 in one order, rounded to the dtype of w2
        logits = base + bias, rounded to the step dtype, and stored when they are kept
        keys   = logits, or l / T - log E where drawn: they challenge what stands in registers
    at the end, one atomic maximum a row

`previous` is read from the slots of the step before. Slots are empty between blocks: the end of a
block decodes them, writes tokens and flags, empties them and counts the block.

Liberties:
1. No turn of a program waits for another thread but for the tile itself: keys are compared element
   by element, and reduced when the program is through. Only where noise is pruned do programs
   reduce after their first turn too, so that slots bound what is still worth a logarithm. Slots
   are read a turn ahead, so that no turn waits for them.
2. Odd steps walk the tiles backwards, so that a step begins with what the last one left in L2.
3. Ids lie on the rows of the product, because a draft has fewer rows than an MMA has. Rows are
   padded to 16, 32 or 64, so that every batch compiles to the same instruction with the same order
   of summation, the whole rank in one dot, and a row has the same bits in every batch.
4. The product is turned, and split into the four neighbours of a group, so that elements lie as
   base and kept logits and the words of Philox do: one exchange of 16 bits an element in a turn.
5. Rows may lie in another order within a program: those that draw first, so that whole warps of the
   others leave out the noise. A row has the same bits wherever it lies.
"""

import triton
import triton.language as tl

from . import order
from .contest import INFINITY, STEEP, beside, bounded, challenged, contest, quarters, seen, settle
from .philox import words_of_tile
from .rounding import rounded, widened

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def product(weights: tl.tensor, embedded: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Return weights [WIDE, RANK] times embedded [RANK, ROWS] in float32."""
    if INTERPRETED:
        weights, embedded = widened(weights), widened(embedded)
    return tl.dot(weights, embedded, input_precision="ieee")


@triton.jit
def attended(
    best: tl.tensor,
    winner: tl.tensor,
    held: tl.tensor,
    tile: tl.tensor,
    where: tl.tensor,
    places: tl.tensor,
    lines: tl.tensor,
    noise: tl.tensor,
    counts: tl.tensor,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    EVEN: tl.constexpr,
    NOISE: tl.constexpr,
    PRUNE: tl.constexpr,
    KEPT: tl.constexpr,
    STEP_TYPE: tl.constexpr,
    INTERPRETED: tl.constexpr,
) -> tl.tensor:
    """Return what stands when a tile was there, and its ids, [ROWS, WIDE / 4]; keep its logits.

    The third result is what slots hold then, [ROWS] int32, for the next tile to be tried against.

    held    what they held after the last one
    tile    bias [WIDE, ROWS] and base logits [ROWS, WIDE]
    where   first id, ids, and which elements are there
    noise   key words, block, slope and scale of the rows; looked at where there is NOISE
    counts  step and turn
    """
    bias, given = tile
    first, ids, here = where
    kept_at, keys, edges, vocabulary = places
    row, live, _sampled, temperature = lines
    step, turn = counts
    down = step % 2 == 1
    GROUPS: tl.constexpr = WIDE // 4
    g0, g1, g2, g3 = quarters(given, ROWS, GROUPS)
    b0, b1, b2, b3 = quarters(tl.trans(bias), ROWS, GROUPS)
    s0 = rounded(widened(g0) + widened(b0), STEP_TYPE, INTERPRETED)
    s1 = rounded(widened(g1) + widened(b1), STEP_TYPE, INTERPRETED)
    s2 = rounded(widened(g2) + widened(b2), STEP_TYPE, INTERPRETED)
    s3 = rounded(widened(g3) + widened(b3), STEP_TYPE, INTERPRETED)
    if KEPT:
        stored = tl.reshape(tl.join(tl.join(s0, s2), tl.join(s1, s3)), (ROWS, WIDE))
        tl.store(kept_at[:, None] + ids, stored, mask=here)
    l0, l1, l2, l3 = widened(s0), widened(s1), widened(s2), widened(s3)
    head = (first + tl.arange(0, GROUPS) * 4)[None, :] + tl.zeros((ROWS, GROUPS), tl.int32)
    if not EVEN:
        l0 = tl.where(head < vocabulary, l0, -INFINITY)
        l1 = tl.where(head + 1 < vocabulary, l1, -INFINITY)
        l2 = tl.where(head + 2 < vocabulary, l2, -INFINITY)
        l3 = tl.where(head + 3 < vocabulary, l3, -INFINITY)
    if NOISE:
        k0, k1, counted, slope, scale = noise
        near = beside(head, winner, INTERPRETED)
        words = words_of_tile(near, row, temperature, (step, counted), (k0, k1), INTERPRETED)
        constant = tl.full((ROWS,), INFINITY, tl.float32)
        if PRUNE:
            # By now every program has had its first tile; later turns look one turn ahead.
            held = seen(keys, held, live, turn == 1, INTERPRETED)
            constant = bounded(held, scale)
        # A row that is not there has an exponent of -inf: nothing of it is looked at.
        constant = tl.where(live, constant, -INFINITY)
        over = (slope[:, None], constant[:, None], temperature[:, None], row[:, None], edges)
        best, winner = contest(best, winner, words, (l0, l1, l2, l3), head, over, down, INTERPRETED)
        if PRUNE:
            if turn == 0:
                settle(best, winner, keys, live, vocabulary)
            held = seen(keys, held, live, turn > 0, INTERPRETED)
    else:
        best, winner = challenged(best, winner, (l0, l1, l2, l3), head, down, INTERPRETED)
    return best, winner, held


@triton.jit
def walk(
    places: tl.tensor,
    edges: tl.tensor,
    lines: tl.tensor,
    sizes: tl.tensor,
    embedded: tl.tensor,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    W2_ROW: tl.constexpr,
    RANK: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    TURNS: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
    NOISE: tl.constexpr,
    PRUNE: tl.constexpr,
    KEPT: tl.constexpr,
    STEP_TYPE: tl.constexpr,
    INTERPRETED: tl.constexpr,
) -> None:
    """Walk the tiles of a program, and raise the slots of its rows.

    places  of w2, base, kept, slots, seed key and block; edges is where those of the step begin
    lines   of the rows: number, live, sampled, temperature (below 0 where nothing is sampled)
    sizes   vocabulary, tiles, step
    """
    w2, base_at, kept_at, keys, seed_key, block = places
    _row, live, sampled, temperature = lines
    vocabulary, tiles, step = sizes
    depth = tl.arange(0, DEPTH)
    down = step % 2 == 1
    noise = (0, 0, 0, temperature, temperature)
    if NOISE:
        scale = tl.where(sampled, LOG2E, STEEP)
        slope = tl.where(sampled, 1.4426950408889634 / tl.where(sampled, temperature, 1.0), STEEP)
        k0, k1 = tl.load(seed_key).to(tl.uint32), tl.load(seed_key + 1).to(tl.uint32)
        noise = (k0, k1, tl.load(block), slope, scale)
    GROUPS: tl.constexpr = WIDE // 4
    place = tl.arange(0, WIDE)
    best = tl.full((ROWS, GROUPS), -INFINITY, tl.float32)
    start = tl.where(down, tiles - 1 - tl.program_id(0), tl.program_id(0)) * WIDE
    # Where all keys are -inf, nothing beats what stands: it is the id that came first.
    winner = (start + tl.arange(0, GROUPS) * 4)[None, :] + tl.zeros((ROWS, GROUPS), tl.int32)
    held = tl.full((ROWS,), order.NO_NUMBER, tl.int32)
    for turn in tl.range(0, TURNS, num_stages=STAGES):
        # A program past the end looks at the last tile again, which changes nothing.
        turned = tl.program_id(0) + turn * tl.num_programs(0)
        nth = tl.minimum(turned, tiles - 1)
        first = tl.where(down, tiles - 1 - nth, nth) * WIDE
        ids = (first + place)[None, :]
        weights_at = w2 + first.to(tl.int64) * W2_ROW + (place[:, None] * W2_ROW + depth[None, :])
        here = live[:, None]
        if EVEN and RANK == DEPTH:
            weights = tl.load(weights_at)
        else:
            here = here & (ids < vocabulary)
            inside = (first + place < vocabulary)[:, None] & (depth[None, :] < RANK)
            weights = tl.load(weights_at, mask=inside, other=0.0)
        given = tl.load(base_at[:, None] + ids, mask=here, other=0.0)
        bias = rounded(product(weights, embedded, INTERPRETED), w2.dtype.element_ty, INTERPRETED)
        # Under a branch, arithmetic comes after the next tiles are asked for, not before.
        there: tl.constexpr = True
        if EARLY:
            there = turned < tiles
        if there:
            best, winner, held = attended(
                best, winner, held, (bias, given), (first, ids, here),
                (kept_at, keys, edges, vocabulary), lines, noise, (step, turn), WIDE, ROWS, EVEN,
                NOISE, PRUNE, KEPT, STEP_TYPE, INTERPRETED,
            )  # fmt: skip
    settle(best, winner, keys, live, vocabulary)


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
    anchor_row: tl.tensor,
    w1_row: tl.tensor,
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
    W2_ROW: tl.constexpr,
    RANK: tl.constexpr,
    DEPTH: tl.constexpr,
    EVEN: tl.constexpr,
    TURNS: tl.constexpr,
    STAGES: tl.constexpr,
    EARLY: tl.constexpr,
    DRAWN: tl.constexpr,
    SORTED: tl.constexpr,
    PRUNE: tl.constexpr,
    KEPT: tl.constexpr,
    STEP_TYPE: tl.constexpr,
    INTERPRETED: tl.constexpr,
) -> None:
    """One step of all rows; see `launch_step` for the arguments."""
    weight_type: tl.constexpr = w2.dtype.element_ty
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    if DRAWN and SORTED:
        draws = tl.load(greedy + row, mask=row < rows, other=1) == 0
        row = tl.program_id(1) * ROWS + order.sorted_places(draws, ROWS)
    live = row < rows
    depth = tl.arange(0, DEPTH)
    previous = order.previous_tokens(winners, anchor, anchor_row, row, rows, drafts, step)
    embedded = tl.load(
        w1 + previous[None, :] * w1_row + depth[:, None],
        mask=live[None, :] & (depth[:, None] < RANK),
        other=0.0,
    )
    embedded = rounded(widened(embedded), weight_type, INTERPRETED)
    keys = winners + step * rows + tl.where(live, row, 0)
    base_at = base + step.to(tl.int64) * base_step + row.to(tl.int64) * base_row
    kept_at = kept + step.to(tl.int64) * kept_step + row.to(tl.int64) * kept_row
    places = (w2, base_at, kept_at, keys, seed_key, block)
    lines = (row, live, row < 0, live.to(tl.float32))
    sizes = (vocabulary, tiles, step)
    edges = winners + (drafts + step) * rows
    if DRAWN:
        sampled = tl.load(greedy + row, mask=live, other=1) == 0
        # Not zero, by which a division is slow.
        temperature = tl.load(temperatures + row, mask=sampled, other=-1.0)
        if tl.max(sampled.to(tl.int32)) > 0:
            lines = (row, live, sampled, temperature)
            walk(
                places, edges, lines, sizes, embedded, WIDE, ROWS, W2_ROW, RANK, DEPTH, EVEN,
                TURNS, STAGES, EARLY, True, PRUNE, KEPT, STEP_TYPE, INTERPRETED,
            )  # fmt: skip
        else:
            walk(
                places, edges, lines, sizes, embedded, WIDE, ROWS, W2_ROW, RANK, DEPTH, EVEN,
                TURNS, STAGES, EARLY, False, PRUNE, KEPT, STEP_TYPE, INTERPRETED,
            )  # fmt: skip
    else:
        walk(
            places, edges, lines, sizes, embedded, WIDE, ROWS, W2_ROW, RANK, DEPTH, EVEN,
            TURNS, STAGES, EARLY, False, PRUNE, KEPT, STEP_TYPE, INTERPRETED,
        )  # fmt: skip
