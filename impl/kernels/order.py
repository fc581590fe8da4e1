"""Keys as integers: a total order in which the largest wins, and of equal ones the lowest id.

    mapped   int32 of a float32 key: a larger key has a larger number, -0 equals +0, and every NaN
             is the largest number of all
    packed   int64, mapped above and 2**32 - 1 - id below: the maximum of packed numbers is the
             winner, in whatever order atomics or programs arrive

A row has two packed slots. `key` is the winner of the keys. `edge` is the largest logit among ids
whose l / T left float32, for there keys no longer compare: when the winning key is infinite, the
row takes the edge. A block ends by decoding its slots.
"""

import triton
import triton.language as tl

NOTHING, NO_NUMBER = tl.constexpr(-(2**63)), tl.constexpr(-(2**31))
ID_MASK = tl.constexpr(0xFFFFFFFF)
MAGNITUDE = tl.constexpr(0x7FFFFFFF)
ABOVE, BELOW = tl.constexpr(0x7F800000), tl.constexpr(0xFF800000 - 2**32 ^ 0x7FFFFFFF)
NAN, EMPTY = tl.constexpr(1), tl.constexpr(2)


@triton.jit
def mapped(values: tl.tensor) -> tl.tensor:
    """Return the numbers of float32 keys."""
    # Adding zero makes -0 and +0 one; a NaN of any sign and payload becomes the one largest number.
    bits = (values + 0.0).to(tl.int32, bitcast=True)
    bits = bits ^ ((bits >> 31) & MAGNITUDE)
    return tl.where(values != values, MAGNITUDE, bits)


@triton.jit
def unmapped(number: tl.tensor) -> tl.tensor:
    """Return the float32 keys of numbers; NaN for the largest number and for an empty slot."""
    bits = number ^ ((number >> 31) & MAGNITUDE)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def packed(number: tl.tensor, ids: tl.tensor) -> tl.tensor:
    """Return numbers int32 and ids int32 as one int64."""
    return (number.to(tl.int64) << 32) | (-ids.to(tl.int64) + ID_MASK)


@triton.jit
def best_of(number: tl.tensor, ids: tl.tensor) -> tl.tensor:
    """Return the packed winners [ROWS] of numbers [WIDE, ROWS] int32 with ids [WIDE, 1] int32.

    Two reductions of words are cheaper than one of pairs. An id that takes no part has NO_NUMBER.
    """
    top = tl.max(number, 0)
    lowest = tl.min(tl.where(number == top[None, :], ids, MAGNITUDE), 0)
    return tl.where(top == NO_NUMBER, NOTHING, packed(top, lowest))


@triton.jit
def sorted_places(first: tl.tensor, SIZE: tl.constexpr) -> tl.tensor:
    """Return the places [SIZE] int32 of a mask, those where it is set first; each kind in order."""
    place, counted = tl.arange(0, SIZE), first.to(tl.int32)
    before = tl.cumsum(counted) - counted
    goes = tl.where(first, before, tl.sum(counted) + place - before)
    return tl.sum(tl.where(goes[None, :] == place[:, None], place[None, :], 0), 1)


@triton.jit
def number_of(slot: tl.tensor) -> tl.tensor:
    """Return the number of a packed slot."""
    return (slot >> 32).to(tl.int32)


@triton.jit
def id_of(slot: tl.tensor) -> tl.tensor:
    """Return the id of a packed slot, int64."""
    return -(slot & ID_MASK) + ID_MASK


@triton.jit
def winner(key: tl.tensor, edge: tl.tensor) -> tl.tensor:
    """Return the id, int64, that wins a row of two slots."""
    number = number_of(key)
    beyond = ((number == ABOVE) | (number == BELOW)) & (edge != NOTHING)
    return id_of(tl.where(beyond, edge, key))


@triton.jit
def flag(key: tl.tensor, edge: tl.tensor) -> tl.tensor:
    """Return the flag of a row of two slots: 1 for a NaN, 2 when no logit is above -inf."""
    number = number_of(key)
    logits_too = (edge == NOTHING) | (number_of(edge) == BELOW)
    empty = (number == BELOW) & logits_too
    return tl.where(number == MAGNITUDE, NAN, tl.where(empty, EMPTY, 0))


@triton.jit
def previous_tokens(
    winners: tl.tensor,
    anchor: tl.tensor,
    anchor_row: tl.tensor,
    row: tl.tensor,
    rows: tl.tensor,
    drafts: tl.tensor,
    step: tl.tensor,
) -> tl.tensor:
    """Return the tokens [ROWS] int64 before this step: the anchors, or what the last step chose."""
    later = row < tl.where(step > 0, rows, 0)
    begins = row < tl.where(step > 0, 0, rows)
    keys = winners + (step - 1) * rows + row
    key = tl.load(keys, mask=later, other=NOTHING)
    edge = tl.load(keys + drafts * rows, mask=later, other=NOTHING)
    first = tl.load(anchor + row * anchor_row, mask=begins, other=0)
    return tl.where(later, winner(key, edge), first)


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
    key = tl.load(keys, mask=live, other=NOTHING)
    edge = tl.load(edges, mask=live, other=NOTHING)
    tl.store(tokens + row.to(tl.int64) * tokens_row + step, winner(key, edge), mask=live)
    found = flag(key, edge).to(tl.uint8)
    tl.store(flags + row.to(tl.int64) * flags_row + step, found, mask=live)
    empty = tl.full((WIDE,), NOTHING, tl.int64)
    tl.store(keys, empty, mask=live)
    # Edges are few, and most of them are empty as they are.
    tl.store(edges, empty, mask=live & (edge != NOTHING))
    if COUNTS:
        if tl.program_id(0) == 0:
            tl.store(block, tl.load(block) + 1)
