"""One draft step in one launch, and one launch that ends the block: K + 1 launches in all.

    programs stride over tiles of the vocabulary; each keeps e = w1[previous] of all its rows
    for a tile:
        bias   = w2[tile] e, summed in float32 in one order, rounded to the dtype of w2
        logits = base + bias, rounded to the step dtype, and stored when they are kept
        look   : can any element of the tile still win?  most tiles end here
        draw   : Philox words of the tile; can any of them still win?
        settle : key = l / T - log E, winner of the tile, one atomic maximum a row

`previous` is read from the slots of the step before, so nothing between two steps goes through a
launch of its own. Slots are empty between blocks: the end of a block decodes them, writes tokens
and flags, empties them and counts the block.

Liberties:
1. Looking is exact. A slot only grows, so what it held at any moment bounds what must still be
   beaten. Greedy rows compare logits with it. A sampled row compares l with what the smallest
   uniform, whose log E is above -22.9, could add; then, word by word, E >= u turns
   l / T - log E >= best into u <= exp(l / T - best), one exp2 with slack for its rounding. Only an
   element that passes gets logarithms. Which tiles pass depends on how programs race, but what
   wins does not: everything that could win has its key taken, and packed maxima know no order.
2. Odd steps walk the tiles backwards, so that a step begins with what the last one left in L2.
3. Ids lie on the rows of the product, because a draft has fewer rows than an MMA has. Rows are
   padded to 16, 32 or 64, so that every batch compiles to the same instruction with the same order
   of summation, and a row has the same bits in every batch.
4. The whole rank is one dot: no order of partial sums to keep apart.
5. In the interpreter bfloat16 is rounded by integers and multiplied as float32, since its casts
   truncate and its products of 16-bit numbers are those of integers.
"""

import triton
import triton.language as tl

from . import order
from .philox import exponential, log_exponential, uniform, words_of_tile

LOG2E = tl.constexpr(1.4426950408889634)
# Above -log E of the smallest uniform, 2**-33: 22.874.
MOST_NOISE = tl.constexpr(22.9)
# Below every id, those of a turn past the end included.
NO_ID = tl.constexpr(-(2**31) + 1)
SLACK = tl.constexpr(1e-5)
INFINITY = tl.constexpr(float("inf"))
NOT_HELD = tl.constexpr(float("nan"))


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


@triton.jit
def product(weights: tl.tensor, embedded: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Return weights [WIDE, RANK] times embedded [RANK, ROWS] in float32."""
    if INTERPRETED:
        weights, embedded = widened(weights), widened(embedded)
    return tl.dot(weights, embedded, input_precision="ieee")


@triton.jit
def eased(number: tl.tensor, sampled: tl.tensor) -> tl.tensor:
    """Return the keys to beat, [ROWS] float32, given their numbers; a little less where sampled.

    Infinities become NaN here or in what is made of them, and a bound that is no number holds
    nothing back: among infinite keys the logits decide. An empty slot is no number either.
    """
    best = order.unmapped(number)
    return best - tl.where(sampled, SLACK, 0.0) * (tl.abs(best) + 64.0)


@triton.jit
def least_logit(best: tl.tensor, temperature: tl.tensor, sampled: tl.tensor) -> tl.tensor:
    """Return the least logit that may beat a key; the temperature is 1 where nothing is sampled."""
    return best * temperature - tl.where(sampled, MOST_NOISE * temperature, 0.0)


@triton.jit
def least_noise(best: tl.tensor, sampled: tl.tensor) -> tl.tensor:
    """Return c of `u 2**32 <= exp2(l log2(e) / T - c)`; rows that are not sampled have none."""
    constant = best * LOG2E + tl.where(sampled, -32.01, NOT_HELD)
    return constant + 0.0 * constant


@triton.jit
def settle(
    logits: tl.tensor,
    log_noise: tl.tensor,
    ids: tl.tensor,
    inside: tl.tensor,
    temperature: tl.tensor,
    sampled: tl.tensor,
    live: tl.tensor,
    keys: tl.tensor,
    edges: tl.tensor,
    DRAWN: tl.constexpr,
) -> None:
    """Raise the slots of the rows by what a tile holds.

    logits, log_noise [WIDE, ROWS] float32; ids, inside [WIDE, 1]; the others [ROWS], with the
    temperature 1 in rows that are not sampled
    keys, edges       where the slots of the rows are
    """
    key = logits
    if DRAWN:
        scaled = tl.div_rn(logits, temperature[None, :])
        key = tl.where(sampled[None, :], scaled - log_noise, logits)
        beyond = inside & sampled[None, :] & (tl.abs(scaled) == INFINITY)
        if tl.max(beyond.to(tl.int32)) > 0:
            edge = tl.where(beyond, order.packed(order.mapped(logits), ids), order.NOTHING)
            top = tl.max(edge, 0)
            tl.atomic_max(edges, top, mask=live & (top > order.NOTHING), sem="relaxed")
    candidates = tl.where(inside, order.packed(order.mapped(key), ids), order.NOTHING)
    best = tl.max(candidates, 0)
    now = tl.load(keys, mask=live, other=order.NOTHING, cache_modifier=".cg")
    tl.atomic_max(keys, best, mask=live & (best > now), sem="relaxed")


@triton.jit
def contest(
    tile: tl.tensor,
    lines: tl.tensor,
    counters: tl.tensor,
    some: tl.tensor,
    DRAWN: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Draw for a tile that may hold a winner, and settle it when it still may.

    tile      logits, hot [WIDE, ROWS], the keys to beat [ROWS], ids and inside [WIDE, 1]
    lines     of the rows, [ROWS]: number, live, temperature, slope, sampled, slots of both kinds
    counters  first id, step, block, key words; looked at when `some` row is sampled
    """
    logits, hot, best, ids, inside = tile
    row, live, temperature, slope, sampled, keys, edges = lines
    first, step, counted, k0, k1 = counters
    if not DRAWN:
        settle(logits, logits, ids, inside, temperature, sampled, live, keys, edges, False)
    elif some:
        bits = words_of_tile(first, row, step, counted, k0, k1, WIDE, ROWS)
        constant = least_noise(best, sampled)
        most = tl.exp2(tl.fma(logits, slope[None, :], -constant[None, :]))
        if tl.max((hot & ~(bits.to(tl.float32) > most)).to(tl.int32)) > 0:
            log_noise = log_exponential(exponential(uniform(bits)))
            settle(logits, log_noise, ids, inside, temperature, sampled, live, keys, edges, True)
    else:
        settle(logits, logits, ids, inside, temperature, sampled, live, keys, edges, False)


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
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
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
        nth = tl.program_id(0) + turn * tl.num_programs(0)
        # In the last turn some programs are past the end, and touch nothing.
        there = nth < tiles
        first = tl.where(step % 2 == 1, tiles - 1 - nth, nth) * WIDE
        ids = (first + tl.arange(0, WIDE))[:, None]
        inside = ids < tl.where(there, vocabulary, NO_ID)
        if EVEN:
            inside = tl.full((WIDE, 1), nth, tl.int32) < tiles
        number = tl.full((ROWS,), order.NO_NUMBER, tl.int32)
        if turn > 0:
            slot = tl.load(keys, mask=live, other=order.NOTHING, cache_modifier=".cg")
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
        hot = ~(logits < tl.where(live, least, INFINITY)[None, :])
        if there & (tl.max(hot.to(tl.int32)) > 0):
            tile = (logits, hot, best, ids, inside)
            lines = (row, live, temperature, slope, sampled, keys, edges)
            contest(tile, lines, (first, step, counted, k0, k1), some, DRAWN, WIDE, ROWS)


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
