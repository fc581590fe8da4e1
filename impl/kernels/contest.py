"""Keys against keys: what stands in the registers of a program, and what may still win.

A program keeps a key and its id for each row and each place of four neighbouring ids in its tiles,
which one thread holds. Tiles challenge what stands element by element; rows are reduced once, when
the program is through.

Liberties:
1. What cannot win gets no logarithm, and this is exact. A slot only grows, so what it held at any
   moment bounds what must still be beaten. E >= u turns l / T - log E >= best into
   u <= exp(l / T - best): one exp2, with slack for its rounding, against the upper bits of a word.
   Which elements are looked at depends on how programs race, but what wins does not.
2. Rows that are not sampled have the same test with a slope so steep that only l >= best passes.
3. A warp takes its logarithms, or none, so the test is one vote and one branch: PTX, because no
   branch of a warp can be said otherwise. It writes what the functions beside it say; the
   interpreter runs those.
4. Keys are compared as float32 with one zero and one NaN. Ids ascend while a program walks up, and
   descend while it walks down; then an equal key takes the place of the one that stands.
5. An edge is raised where it is found, by an atomic: only finite logits whose l / T leaves float32,
   and +inf, ever do. Where every key is -inf and no edge is there, the lowest id wins.
"""

import triton
import triton.language as tl

from . import order
from .philox import exponential, log_exponential, log_noise_text, uniform

# What rounding and the exp2 of the hardware may take from a bound, relative and absolute.
SLACK, LEAST_SLACK = tl.constexpr(1.5e-5), tl.constexpr(1e-3)
# Of rows that are not sampled: l below a bound by the least difference comes far below it.
STEEP = tl.constexpr(2.0**20)
INFINITY, GREAT = tl.constexpr(float("inf")), tl.constexpr(1e30)
MAGNITUDE = tl.constexpr(0x7FFFFFFF)
# Neighbouring ids that share a call of Philox.
GROUP = tl.constexpr(4)


def _contest_text() -> str:
    # $0 best and $1 its id; $2 words, $6 logits, $10 slope, $11 constant, $12 temperature,
    # $13 best, $14 its id, $15 first id, $16 row, $17 edges, $18 down; see `contest`.
    lines, four = ["mov.b32 $0, $13", "mov.b32 $1, $14"], range(4)
    for i in four:
        also = ("", "") if i == 0 else (".and", ", p")
        lines += [f"shr.u32 s, ${2 + i}, 9", "or.b32 s, s, 0x3F800000", "mov.b32 u, s"]
        lines += [f"fma.rn.f32 v, ${6 + i}, $10, $11", "ex2.approx.ftz.f32 v, v"]
        lines += ["add.rn.f32 v, v, 0f3F800002", f"setp.gt{also[0]}.f32 p, u, v{also[1]}"]
    lines += ["vote.sync.all.pred p, p, 0xFFFFFFFF", "@p bra.uni NONE"]
    lines += ["setp.gt.f32 d, $12, 0f00000000"]
    for i in four:
        lines += log_noise_text(f"${2 + i}")
        lines += [f"div.rn.f32 u, ${6 + i}, $12", "sub.rn.f32 v, u, v"]
        lines += [f"selp.f32 v, v, ${6 + i}, d", "add.rn.f32 v, v, 0f00000000"]
        if i == 0:
            lines += ["mov.b32 t, v", "mov.b32 j, $15"]
        else:
            lines += ["max.NaN.f32 m, t, v", "mov.b32 a, m", "mov.b32 s, t"]
            lines += ["setp.ne.s32 g, a, s", f"@g add.s32 j, $15, {i}", "mov.b32 t, m"]
        lines += ["abs.f32 u, u", "setp.eq.and.f32 g, u, 0f7F800000, d"]
        lines += [f"setp.neu.and.f32 g, ${6 + i}, 0fFF800000, g", f"@!g bra KEY{i}"]
        lines += [f"add.rn.f32 u, ${6 + i}, 0f00000000", "mov.b32 a, u", "shr.s32 s, a, 31"]
        lines += ["and.b32 s, s, 0x7FFFFFFF", "xor.b32 a, a, s", f"add.s32 s, $15, {i}"]
        lines += ["not.b32 s, s", "mov.b64 w, {s, a}", "mad.wide.s32 x, $16, 8, $17"]
        lines += ["red.global.max.s64 [x], w", f"KEY{i}:"]
    lines += ["max.NaN.f32 m, $0, t", "setp.eq.s32 g, $18, 0"]
    lines += ["mov.b32 s, t", "mov.b32 a, $0", "selp.b32 s, a, s, g", "mov.b32 a, m"]
    lines += ["setp.eq.xor.s32 g, a, s, g", "mov.b32 $0, m", "@g mov.b32 $1, j", "NONE:"]
    registers = [".reg .pred d, g, p", ".reg .b32 a, j, s", ".reg .f32 k, m, o, q, t, u, v"]
    text = [*registers, ".reg .b64 w, x", *lines]
    return "{ " + " ".join(x if x.endswith(":") else x + ";" for x in text) + " }"


CONTEST = tl.constexpr(_contest_text())
CONSTRAINTS = tl.constexpr("=&f,=&r,r,r,r,r,f,f,f,f,f,f,f,f,r,r,r,l,r")
SEEN = tl.constexpr(
    "{ .reg .pred p; setp.ne.s32 p, $3, 0; mov.b32 $0, $2;"
    " @p ld.relaxed.gpu.global.b32 $0, [$1+4]; }"
)


@triton.jit
def bits_of(values: tl.tensor) -> tl.tensor:
    """Return the bits of float32 values as int32."""
    return values.to(tl.int32, bitcast=True)


@triton.jit
def larger(one: tl.tensor, other: tl.tensor) -> tl.tensor:
    """Return the larger of two canonical keys; a NaN is the largest."""
    return tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def canonical(key: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Return float32 keys with one zero and one NaN."""
    key = key + 0.0
    if INTERPRETED:
        key = tl.where(key != key, MAGNITUDE, bits_of(key)).to(tl.float32, bitcast=True)
    return key


@triton.jit
def challenged(
    best: tl.tensor,
    winner: tl.tensor,
    keys: tl.tensor,
    first: tl.tensor,
    down: tl.tensor,
    INTERPRETED: tl.constexpr,
) -> tl.tensor:
    """Return the largest of a key that stands and four others, and its id: of equals the lowest.

    best, winner  float32 and int32
    keys, first   four float32 keys, and the id of the first of these neighbours; it is above
                  every winner so far, or below when tiles come `down`
    """
    top = canonical(keys[0], INTERPRETED)
    leader = first
    for i in tl.static_range(1, GROUP):
        above = larger(top, canonical(keys[i], INTERPRETED))
        leader = tl.where(bits_of(above) == bits_of(top), leader, first + i)
        top = above
    above = larger(best, top)
    same = bits_of(above) == tl.where(down, bits_of(top), bits_of(best))
    return above, tl.where(same == down, leader, winner)


@triton.jit
def drawn_key(
    bits: tl.tensor,
    logits: tl.tensor,
    constant: tl.tensor,
    ids: tl.tensor,
    lines: tl.tensor,
) -> tl.tensor:
    """Return the keys of words and logits, -inf where they cannot win, as `contest` has them."""
    slope, temperature, at = lines
    unheld = constant == INFINITY
    near = tl.minimum(tl.maximum(logits, -10 * GREAT), 10 * GREAT) * slope
    power = tl.minimum(near + tl.where(unheld, 0.0, constant), 64.0)
    most = tl.exp2(power) + (1.0 + 2.0**-22)
    open_ = unheld | ~(((bits >> 9) | 0x3F800000).to(tl.float32, bitcast=True) > most)
    sampled = temperature > 0
    scaled = tl.div_rn(logits, tl.where(sampled, temperature, 1.0) + tl.zeros_like(logits))
    key = tl.where(sampled, scaled - log_exponential(exponential(uniform(bits))), logits)
    beyond = open_ & sampled & (tl.abs(scaled) == INFINITY) & (logits != -INFINITY)
    edge = order.packed(order.mapped(logits), ids)
    tl.atomic_max(at + tl.zeros_like(ids), edge, mask=beyond, sem="relaxed")
    return tl.where(open_, key, -INFINITY)


@triton.jit
def contest(
    best: tl.tensor,
    winner: tl.tensor,
    words: tl.tensor,
    logits: tl.tensor,
    first: tl.tensor,
    lines: tl.tensor,
    down: tl.tensor,
    INTERPRETED: tl.constexpr,
) -> tl.tensor:
    """Let the keys of a tile challenge those that stand; return what stands then, and its ids.

    best, winner   [ROWS, GROUPS]
    words, logits  of the four neighbours of a group, each [ROWS, GROUPS]
    first          their first ids [ROWS, GROUPS]
    lines          slope, constant, temperature, row [ROWS, 1]; where the edges of the step begin
    """
    slope, constant, temperature, row, edges = lines
    if INTERPRETED:
        of_row = (slope, temperature, edges + row)
        k0 = drawn_key(words[0], logits[0], constant, first, of_row)
        k1 = drawn_key(words[1], logits[1], constant, first + 1, of_row)
        k2 = drawn_key(words[2], logits[2], constant, first + 2, of_row)
        k3 = drawn_key(words[3], logits[3], constant, first + 3, of_row)
        best, winner = challenged(best, winner, (k0, k1, k2, k3), first, down, True)
    else:
        place = edges.to(tl.int64)
        w0, w1, w2, w3 = words
        l0, l1, l2, l3 = logits
        best, winner = tl.inline_asm_elementwise(
            CONTEST,
            CONSTRAINTS,
            [
                w0,
                w1,
                w2,
                w3,
                l0,
                l1,
                l2,
                l3,
                slope,
                constant,
                temperature,
                best,
                winner,
                first,
                row,
                place,
                down.to(tl.int32),
            ],
            dtype=(tl.float32, tl.int32),
            is_pure=False,
            pack=1,
        )
    return best, winner


@triton.jit
def settle(
    best: tl.tensor,
    winner: tl.tensor,
    keys: tl.tensor,
    live: tl.tensor,
    vocabulary: tl.tensor,
) -> None:
    """Raise the slots of the rows, [ROWS], by keys that stand and their ids, [ROWS, GROUPS].

    A program that walks all tiles of its rows is alone with their slots; what stands only grows.
    """
    stands = order.packed(order.mapped(best), winner)
    top = tl.max(tl.where(winner < vocabulary, stands, order.NOTHING), 1)
    raised = live & (top > order.NOTHING)
    if tl.num_programs(0) == 1:
        tl.store(keys, top, mask=raised)
    else:
        tl.atomic_max(keys, top, mask=raised, sem="relaxed")


@triton.jit
def seen(
    keys: tl.tensor,
    held: tl.tensor,
    live: tl.tensor,
    wanted: tl.tensor,
    INTERPRETED: tl.constexpr,
) -> tl.tensor:
    """Return the upper halves of the slots of the rows, [ROWS] int32: as they are now, if wanted.

    held  what was seen before, returned unless it is wanted that slots are read
    """
    if INTERPRETED:
        now = order.number_of(tl.load(keys, mask=live, other=order.NOTHING))
        number = tl.where(wanted, now, held)
    else:
        # A load that no pipeline takes into its stages. A row that is not there reads the first's.
        number = tl.inline_asm_elementwise(
            SEEN,
            "=&r,l,r,r",
            [keys.to(tl.int64), held, wanted.to(tl.int32)],
            dtype=tl.int32,
            is_pure=False,
            pack=1,
        )
    return number


@triton.jit
def bounded(number: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Return c of `u <= exp2(l * slope + c)`, [ROWS], from what the slots held.

    Infinity, which holds nothing back, where the slot was empty or its key is too great.
    """
    best = order.unmapped(number)
    held = tl.abs(best) < GREAT
    best = tl.where(held, best, 0.0)
    constant = tl.fma(tl.abs(best), SLACK, tl.fma(best, -scale, LEAST_SLACK))
    return tl.where(held, constant, INFINITY)


@triton.jit
def beside(values: tl.tensor, other: tl.tensor, INTERPRETED: tl.constexpr) -> tl.tensor:
    """Return int32 values, held by the threads that hold the other tensor of their shape.

    What is made of them is then made where it is used, and does not go through shared memory.
    """
    if INTERPRETED:
        return values
    return tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r,r", [values, other], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def quarters(tile: tl.tensor, ROWS: tl.constexpr, GROUPS: tl.constexpr) -> tl.tensor:
    """Return the first, second, third and fourth of each four neighbours [ROWS, GROUPS]."""
    even, odd = tl.split(tl.reshape(tile, (ROWS, GROUPS, 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth
