"""The accept of sampled rows in three launches: ratios, sums in parts, and one draw a request.

    ratios   r of every target row of a request: 0 where it is not reached
             chain: 1 up to the first draft whose coin * q is not below p
             block: r_0 = 1, r_i = min(r_{i-1} p_i / q_i, 1)
    sums     of a part of a row: max(r p - q, 0), p, and whether q is anywhere
    draw     the accepted length; from the row it ends in, an id is drawn (residual.py). A NaN in a
             row that decides spoils the request, which then commits nothing

Liberties:
1. A row with r = 0 is not read. Its bound is 0 or NaN, and no coin is below either.
2. The sum S of block verification is float64, rounded to float32 once; torch sums it in float32.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from .acceptance import drafts_of, write_commit
from .chain import power_of_two
from .residual import drawn_id, laws_at, remainder

# Ids of a part: one program reads them at once.
PART, PART_MIN, LANES = 4096, 16, 256
SUMS = 3


@triton.jit
def ratios_kernel(
    target: tl.tensor,
    claimed: tl.tensor,
    candidates: tl.tensor,
    coins: tl.tensor,
    ratios: tl.tensor,
    vocabulary: tl.tensor,
    target_row: tl.tensor,
    target_place: tl.tensor,
    claimed_row: tl.tensor,
    claimed_place: tl.tensor,
    DRAFTS: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Write the ratios [K + 1] float32 of one request."""
    row = tl.program_id(0)
    WIDE: tl.constexpr = DRAFTS + 1
    place = tl.arange(0, PLACES)
    laws = (target, claimed, target_row, target_place, claimed_row, claimed_place)
    draft = drafts_of(candidates + row * WIDE, WIDE, PLACES)
    limit = tl.where(place < DRAFTS, vocabulary, 0)
    wanted, offered = laws_at(laws, row, place, draft, limit, DRAFTS)
    if BLOCK:
        tl.store(ratios + row * WIDE, 1.0)
        ratio = tl.full((), 1.0, tl.float32)
        for step in tl.static_range(DRAFTS):
            p = tl.sum(tl.where(place == step, wanted, 0.0))
            q = tl.sum(tl.where(place == step, offered, 0.0))
            possible = q > 0
            ratio = tl.div_rn(ratio * p, tl.where(possible, q, 1.0))
            ratio = tl.where(possible & (ratio == ratio), tl.minimum(ratio, 1.0), 0.0)
            tl.store(ratios + row * WIDE + step + 1, ratio)
    else:
        coin = tl.load(coins + row * WIDE + place, mask=place < DRAFTS, other=0.0)
        taken = (offered > 0) & (coin * offered < wanted)
        accepted = tl.min(tl.where(taken, PLACES, place))
        reached = (place <= accepted).to(tl.float32)
        tl.store(ratios + row * WIDE + place, reached, mask=place < WIDE)


@triton.jit(do_not_specialize=["rows"])
def sums_kernel(
    target: tl.tensor,
    claimed: tl.tensor,
    ratios: tl.tensor,
    sums: tl.tensor,
    vocabulary: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    target_row: tl.tensor,
    target_place: tl.tensor,
    claimed_row: tl.tensor,
    claimed_place: tl.tensor,
    DRAFTS: tl.constexpr,
    WIDE_PART: tl.constexpr,
) -> None:
    """Write three sums of one part of one target row, [3, B (K + 1), parts] float64."""
    line, part = tl.program_id(0), tl.program_id(1)
    WIDE: tl.constexpr = DRAFTS + 1
    laws = (target, claimed, target_row, target_place, claimed_row, claimed_place)
    ratio = tl.load(ratios + line)
    ids = part * WIDE_PART + tl.arange(0, WIDE_PART)
    limit = tl.where(ratio > 0, vocabulary, 0)
    p, q = laws_at(laws, line // WIDE, line % WIDE, ids, limit, DRAFTS)
    at = sums + line.to(tl.int64) * parts + part
    plane = rows.to(tl.int64) * WIDE * parts
    tl.store(at, tl.sum(remainder(p, q, ratio).to(tl.float64)))
    tl.store(at + plane, tl.sum(p.to(tl.float64)))
    tl.store(at + 2 * plane, tl.max((q != 0).to(tl.int32)).to(tl.float64))


@triton.jit
def accepted_block(
    ratio: tl.tensor,
    sums: tl.tensor,
    coins: tl.tensor,
    length: tl.tensor,
    parts: tl.tensor,
    DRAFTS: tl.constexpr,
    PLACES: tl.constexpr,
    PARTS: tl.constexpr,
) -> tl.tensor:
    """Return the longest prefix whose coin is below its ratio and its bound, of ratios [PLACES]."""
    place, part = tl.arange(0, PLACES), tl.arange(0, PARTS)
    inner = place < DRAFTS
    at = sums + place[:, None] * parts + part[None, :]
    rest = tl.load(at, mask=inner[:, None] & (part < parts)[None, :], other=0.0)
    spare = tl.sum(rest, 1).to(tl.float32)
    unknown = spare != spare
    inside = (ratio > 0) & (ratio < 1)
    below = tl.where(inside, spare + 1.0 - ratio, 1.0)
    bound = tl.where(inside | unknown, tl.div_rn(spare, below), ratio)
    # A row that may not be used says nothing: the block then ends before it.
    bound = tl.where(unknown & (place >= length), ratio, bound)
    bound = tl.where(inner, bound, ratio)
    coin = tl.load(coins + place - 1, mask=(place > 0) & (place <= DRAFTS), other=2.0)
    return tl.max(tl.where((coin < ratio) & (coin < bound), place, 0))


@triton.jit(do_not_specialize=["rows"])
def draw_kernel(
    target: tl.tensor,
    claimed: tl.tensor,
    ratios: tl.tensor,
    sums: tl.tensor,
    candidates: tl.tensor,
    coins: tl.tensor,
    verify_len: tl.tensor,
    prefix: tl.tensor,
    correct_len: tl.tensor,
    bonuses: tl.tensor,
    trim: tl.tensor,
    commit: tl.tensor,
    new_seq_lens: tl.tensor,
    out_tokens: tl.tensor,
    flags: tl.tensor,
    vocabulary: tl.tensor,
    rows: tl.tensor,
    parts: tl.tensor,
    target_row: tl.tensor,
    target_place: tl.tensor,
    claimed_row: tl.tensor,
    claimed_place: tl.tensor,
    DRAFTS: tl.constexpr,
    PLACES: tl.constexpr,
    PARTS: tl.constexpr,
    WIDE_PART: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Accept, draw and write what one request commits; see `accept_sampled`."""
    row = tl.program_id(0)
    WIDE: tl.constexpr = DRAFTS + 1
    place, part = tl.arange(0, PLACES), tl.arange(0, PARTS)
    laws = (target, claimed, target_row, target_place, claimed_row, claimed_place)
    plane = rows.to(tl.int64) * WIDE * parts
    own = sums + row.to(tl.int64) * WIDE * parts
    ratio = tl.load(ratios + row * WIDE + place, mask=place < WIDE, other=0.0)
    length = tl.load(verify_len + row).to(tl.int32)
    if BLOCK:
        of_row = coins + row * WIDE
        accepted = accepted_block(ratio, own, of_row, length, parts, DRAFTS, PLACES, PARTS)
    else:
        accepted = tl.sum((ratio > 0).to(tl.int32)) - 1
    whole_at = own + plane + place[:, None] * parts + part[None, :]
    seen = (place < WIDE)[:, None] & (part < parts)[None, :]
    whole = tl.load(whole_at, mask=seen, other=0.0)
    spoilt = tl.max((whole != whole).to(tl.int32), 1) > 0
    decides = (ratio > 0) & (place < length)
    broken = tl.max((spoilt & decides).to(tl.int32)) > 0
    kept = tl.minimum(accepted, tl.maximum(length - 1, 0))
    uniform = tl.load(coins + row * WIDE + DRAFTS)
    share = tl.sum(tl.where(place == accepted, ratio, 0.0))
    where, sizes = (row, accepted), (vocabulary, plane, parts)
    drawn = drawn_id(laws, sums, where, sizes, uniform, share, DRAFTS, PARTS, WIDE_PART)
    draft = drafts_of(candidates + row * WIDE, WIDE, PLACES)
    follower = tl.sum(tl.where(place == kept, draft, 0))
    bonus = tl.where(kept < accepted, follower, drawn.to(tl.int64))
    places = (prefix, correct_len, bonuses, trim, commit, new_seq_lens, out_tokens, flags)
    write_commit(row, places, (length, accepted, kept), broken, (draft, bonus), WIDE, PLACES)


def accept_sampled(
    asked: tuple[Tensor, Tensor, Tensor],
    laws: tuple[Tensor, Tensor],
    coins: Tensor,
    out: Sequence[Tensor],
    *,
    block: bool,
) -> None:
    """Accept drafts by coins, cut, and draw the residual or bonus token.

    asked  candidates [B, K + 1] int64, verify lengths and prefixes [B] int, contiguous
    laws   p [B, K + 1, V] and q [B, K, V] float32, contiguous in their last dimension
    coins  [B, K + 1] float32, contiguous: the accept coins, then the final draw
    out    as in `acceptance.accept_greedy`
    block  block verification in the place of the chain rule
    """
    candidates, *lengths = asked
    target, claimed = laws
    rows, wide = candidates.shape
    vocabulary = target.shape[-1]
    part = max(PART_MIN, min(PART, power_of_two(vocabulary)))
    parts = triton.cdiv(vocabulary, part)
    device = candidates.device
    ratios = torch.empty(rows, wide, dtype=torch.float32, device=device)
    sums = torch.empty(SUMS, rows, wide, parts, dtype=torch.float64, device=device)
    strides = (*target.stride()[:-1], *claimed.stride()[:-1])
    few = {"DRAFTS": wide - 1, "PLACES": power_of_two(wide), "BLOCK": block}
    # A fused product and difference would round once where torch rounds twice.
    plain = {"enable_fp_fusion": False}
    warps = {**plain, "num_warps": max(1, min(8, part // LANES))}
    given = (target, claimed, candidates, coins, ratios, vocabulary, *strides)
    ratios_kernel[(rows,)](*given, **few, **plain, num_warps=1)
    given = (target, claimed, ratios, sums, vocabulary, rows, parts, *strides)
    sums_kernel[(rows * wide, parts)](*given, DRAFTS=wide - 1, WIDE_PART=part, **warps)
    given = (target, claimed, ratios, sums, candidates, coins, *lengths, *out)
    sizes = (vocabulary, rows, parts, *strides)
    counts = {"PARTS": power_of_two(parts), "WIDE_PART": part}
    draw_kernel[(rows,)](*given, *sizes, **few, **counts, **warps)
