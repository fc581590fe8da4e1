"""One tile of step logits against the best keys so far: look, draw, settle.

    look    can any element of the tile still win?  most tiles end here
    draw    Philox words of the tile; can any of them still win?
    settle  key = l / T - log E, winner of the tile, one atomic maximum a row

Liberties:
1. Looking is exact. A slot only grows, so what it held at any moment bounds what must still be
   beaten. Greedy rows compare logits with it. A sampled row compares l with what the smallest
   uniform, whose -log E is below 22.9, could add; then, word by word, E >= u turns
   l / T - log E >= best into u <= exp(l / T - best), one exp2 with slack for its rounding. Only an
   element that passes gets logarithms. Which tiles pass depends on how programs race, but what
   wins does not: everything that could win has its key taken, and packed maxima know no order.
2. In the interpreter bfloat16 is rounded by integers and multiplied as float32, since its casts
   truncate and its products of 16-bit numbers are those of integers.
"""

import triton
import triton.language as tl

from . import order
from .philox import exponential, log_exponential, uniform, words_of_tile

LOG2E = tl.constexpr(1.4426950408889634)
# Above -log E of the smallest uniform, 2**-33: 22.874.
MOST_NOISE = tl.constexpr(22.9)
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
def exp2(x: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Return 2**x, subnormal results flushed to zero: one instruction of the device."""
    if INTERPRETED:
        return tl.exp2(x)
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


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
            edge = tl.where(beyond, order.mapped(logits), order.NO_NUMBER)
            top = order.best_of(edge, ids)
            tl.atomic_max(edges, top, mask=live & (top > order.NOTHING), sem="relaxed")
    best = order.best_of(tl.where(inside, order.mapped(key), order.NO_NUMBER), ids)
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
    INTERPRETED: tl.constexpr,
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
        most = exp2(tl.fma(logits, slope[None, :], -constant[None, :]), INTERPRETED)
        if tl.max((hot & ~(bits.to(tl.float32) > most)).to(tl.int32)) > 0:
            log_noise = log_exponential(exponential(uniform(bits)))
            settle(logits, log_noise, ids, inside, temperature, sampled, live, keys, edges, True)
    else:
        settle(logits, logits, ids, inside, temperature, sampled, live, keys, edges, False)
