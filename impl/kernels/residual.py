"""Residual of a row, max(r p - q, 0), and one id drawn from it by inverse CDF.

A row is cut into parts whose sums are there already (rejection.py): first the part is found, by
sums of parts, and then the id in it.

Liberty: elements are products and differences of float32 without fusion, as torch takes them one by
one. Sums are float64 in a fixed order, where those of torch run along the row: they differ in the
last bits, and so does the place where one id ends and the next begins.
"""

import triton
import triton.language as tl


@triton.jit
def remainder(p: tl.tensor, q: tl.tensor, ratio: tl.tensor) -> tl.tensor:
    """Return max(r p - q, 0) in float32; NaN where p or q is."""
    rest = ratio * p - q
    return tl.maximum(rest, 0.0, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def laws_at(
    laws: tl.tensor,
    row: tl.tensor,
    place: tl.tensor,
    ids: tl.tensor,
    limit: tl.tensor,
    DRAFTS: tl.constexpr,
) -> tl.tensor:
    """Return p and q, float32, of ids below a limit at a place of a request; 0 for other ids.

    laws  where p and q begin, and what a row and a place are apart in each; after the last draft
          there is no q
    """
    target, claimed, target_row, target_place, claimed_row, claimed_place = laws
    far_p = row.to(tl.int64) * target_row + place.to(tl.int64) * target_place
    far_q = row.to(tl.int64) * claimed_row + place.to(tl.int64) * claimed_place
    p = tl.load(target + far_p + ids, mask=(ids >= 0) & (ids < limit), other=0.0)
    limit = tl.where(place < DRAFTS, limit, 0)
    q = tl.load(claimed + far_q + ids, mask=(ids >= 0) & (ids < limit), other=0.0)
    return p.to(tl.float32), q.to(tl.float32)


@triton.jit
def chosen_of(
    masses: tl.tensor, before: tl.tensor, bar: tl.tensor, SIZE: tl.constexpr
) -> tl.tensor:
    """Return the first place with mass whose cumulated mass is above a bar, and the mass before it.

    Where none is, it is the last place with mass: never one without.
    """
    place = tl.arange(0, SIZE)
    cumulated = before + tl.cumsum(masses)
    present = masses > 0
    first = tl.min(tl.where(present & (cumulated > bar), place, SIZE))
    found = tl.where(first == SIZE, tl.max(tl.where(present, place, 0)), first)
    left = tl.sum(tl.where(place == found - 1, cumulated, 0.0))
    return found, tl.where(found == 0, before, left)


@triton.jit
def drawn_id(
    laws: tl.tensor,
    sums: tl.tensor,
    where: tl.tensor,
    sizes: tl.tensor,
    uniform: tl.tensor,
    ratio: tl.tensor,
    DRAFTS: tl.constexpr,
    PARTS: tl.constexpr,
    WIDE_PART: tl.constexpr,
) -> tl.tensor:
    """Return one id by inverse CDF of the residual of a place, or of p where that has no mass.

    where  row and place of a request; sizes  vocabulary, sums of a plane, parts
    """
    row, place = where
    vocabulary, plane, parts = sizes
    part = tl.arange(0, PARTS)
    at = sums + (row.to(tl.int64) * (DRAFTS + 1) + place) * parts + part
    rest = tl.load(at, mask=part < parts, other=0.0)
    whole = tl.load(at + plane, mask=part < parts, other=0.0)
    claims = tl.load(at + 2 * plane, mask=part < parts, other=0.0)
    # Without a claim the residual is p itself, whatever the ratio.
    left = (tl.max(claims) > 0) & (tl.sum(rest) > 0)
    masses = tl.where(left, rest, whole)
    nothing = tl.full((), 0.0, tl.float64)
    total = tl.sum(tl.where(part == PARTS - 1, tl.cumsum(masses), 0.0))
    bar = uniform.to(tl.float64) * total
    chosen, before = chosen_of(masses, nothing, bar, PARTS)
    ids = chosen * WIDE_PART + tl.arange(0, WIDE_PART)
    p, q = laws_at(laws, row, place, ids, vocabulary, DRAFTS)
    mass = tl.where(left, remainder(p, q, ratio), p).to(tl.float64)
    found, _ = chosen_of(mass, before, bar, WIDE_PART)
    return chosen * WIDE_PART + found
