"""The greedy accept in two launches: the argmax of every target row, and one program a request.

    argmax of the K + 1 target rows, in parts, into the slots of head.py
    a request reads its K + 1 slots; t runs over them
        accepted = first t whose draft is not the argmax, K when all are
        kept     = what the verify length leaves of them; the bonus is the argmax of row `kept`
        a NaN in a row up to `kept` spoils the request, which then commits nothing
    it writes everything that is committed, and empties its slots

The accept of sampled rows (rejection.py) writes its commits by the same function.

Liberty: comparisons and integers only, so there is no rounding and no order to agree on.
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from . import order
from .chain import power_of_two
from .head import raise_slots

NONE = tl.constexpr(-1)


@triton.jit
def drafts_of(candidates: tl.tensor, WIDE: tl.constexpr, PLACES: tl.constexpr) -> tl.tensor:
    """Return the drafts [PLACES] of the request whose anchor is there; -1 past the last."""
    place = tl.arange(0, PLACES)
    return tl.load(candidates + place + 1, mask=place < WIDE - 1, other=NONE)


@triton.jit
def write_commit(
    row: tl.tensor,
    places: tl.tensor,
    lengths: tl.tensor,
    broken: tl.tensor,
    tokens: tl.tensor,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
) -> None:
    """Write what one request commits.

    places   of prefix, correct length, bonus, trim, commit, new length, out tokens and flags
    lengths  verify length, and accepted drafts before and after the cut
    broken   a NaN decides
    tokens   the drafts [PLACES], and the bonus
    """
    prefix, correct_len, bonuses, trim, commit, new_seq_lens, out_tokens, flags = places
    length, accepted, kept = lengths
    draft, bonus = tokens
    wanted = length > 0
    sound = tl.where(broken, False, wanted)
    committed = tl.where(sound, kept + 1, 0)
    tl.store(correct_len + row, tl.where(sound, kept, 0))
    tl.store(bonuses + row, tl.where(sound, bonus, NONE))
    tl.store(trim + row, tl.where(sound, accepted - kept, 0))
    tl.store(commit + row, committed)
    tl.store(new_seq_lens + row, tl.load(prefix + row) + committed)
    tl.store(flags + row, tl.where(broken, wanted, False).to(tl.uint8))
    place = tl.arange(0, PLACES)
    written = tl.where(place < committed, tl.where(place == kept, bonus, draft), NONE)
    tl.store(out_tokens + row * WIDE + place, written, mask=place < WIDE)


@triton.jit(do_not_specialize=["rows"])
def commit_kernel(
    winners: tl.tensor,
    candidates: tl.tensor,
    verify_len: tl.tensor,
    prefix: tl.tensor,
    correct_len: tl.tensor,
    bonuses: tl.tensor,
    trim: tl.tensor,
    commit: tl.tensor,
    new_seq_lens: tl.tensor,
    out_tokens: tl.tensor,
    flags: tl.tensor,
    rows: tl.tensor,
    WIDE: tl.constexpr,
    PLACES: tl.constexpr,
) -> None:
    """Write what one request commits, and empty its slots; see `accept_greedy`."""
    row = tl.program_id(0)
    place = tl.arange(0, PLACES)
    slots = winners + row + place * rows
    slot = tl.load(slots, mask=place < WIDE, other=order.NOTHING)
    predicted = order.id_of(slot)
    draft = drafts_of(candidates + row * WIDE, WIDE, PLACES)
    accepted = tl.min(tl.where(draft == predicted, PLACES, place))
    length = tl.load(verify_len + row).to(tl.int32)
    kept = tl.minimum(accepted, tl.maximum(length - 1, 0))
    bonus = tl.sum(tl.where(place == kept, predicted, 0))
    spoilt = (order.number_of(slot) == order.MAGNITUDE) & (place <= kept)
    broken = tl.max(spoilt.to(tl.int32)) > 0
    places = (prefix, correct_len, bonuses, trim, commit, new_seq_lens, out_tokens, flags)
    write_commit(row, places, (length, accepted, kept), broken, (draft, bonus), WIDE, PLACES)
    tl.store(slots, tl.full((PLACES,), order.NOTHING, tl.int64), mask=place < WIDE)


def accept_greedy(
    candidates: Tensor,
    target: Tensor,
    lengths: tuple[Tensor, Tensor],
    slots: Tensor,
    out: Sequence[Tensor],
) -> None:
    """Accept leading drafts that equal the target's argmax, cut, and add the bonus.

    candidates [B, K + 1] int64, contiguous: anchor, then the drafts
    target     [B, K + 1, V] float: row t is the law after candidate t
    lengths    [B] int each: rows that may be used, 0 in a pad row; committed before the block
    slots      [2, K + 1, B] int64, empty; empty again afterwards
    out        correct length, bonus, trim, commit, new sequence length [B] int, out tokens
               [B, K + 1] int and flags [B] uint8, all contiguous
    """
    rows, wide = candidates.shape
    raise_slots(target, slots)
    sizes = {"WIDE": wide, "PLACES": power_of_two(wide)}
    commit_kernel[(rows,)](slots, candidates, *lengths, *out, rows, **sizes, num_warps=1)
