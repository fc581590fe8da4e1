"""The rules of acceptance, one row at a time in plain Python, against the reference."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.reference import acceptance
from oracle.reference.acceptance import Commit

from .strategies import grid, source

Row = Sequence[float]
SIZES = st.tuples(st.integers(1, 4), st.integers(2, 3), st.integers(0, 2**32))
ROWS = 24


def laid_out(
    tokens: list[int], accepted: int, bonus: int, verified: int, prefix: int, *, broken: bool
) -> list[object]:
    """The fields of a commit."""
    empty = [-1] * (len(tokens) + 1)
    if verified == 0 or broken:
        return [0, -1, 0, 0, prefix, empty, broken and verified > 0]
    kept = min(accepted, verified - 1)
    out = [*tokens[:kept], bonus, *empty][: len(empty)]
    return [kept, bonus, accepted - kept, kept + 1, prefix + kept + 1, out, False]


def has_nan(row: Row) -> bool:
    """Whether a row holds a NaN."""
    return any(math.isnan(value) for value in row)


def argmax(row: Row) -> int:
    """The first NaN, else the lowest id of the largest value."""
    nans = [v for v, value in enumerate(row) if math.isnan(value)]
    return nans[0] if nans else list(row).index(max(row))


def greedy(tokens: list[int], target: list[Row], verified: int, prefix: int) -> list[object]:
    """Drafts are kept while they are the argmax."""
    wanted = [argmax(row) for row in target]
    accepted = next((t for t, d in enumerate(tokens) if d != wanted[t]), len(tokens))
    kept = min(accepted, max(verified - 1, 0))
    broken = any(has_nan(row) for row in target[: kept + 1])
    return laid_out(tokens, accepted, wanted[kept], verified, prefix, broken=broken)


def draw(mass: Row, otherwise: Row, u: float) -> int:
    """Inverse CDF over the ids that have mass."""
    used = mass if any(value > 0 for value in mass) else otherwise
    level, total = 0.0, sum(used)
    for v, value in enumerate(used):
        level += value
        if value > 0 and level > u * total:
            return v
    return max((v for v, value in enumerate(used) if value > 0), default=0)


def claims(q: list[Row], marks: list[int], vocabulary: int) -> list[list[float]]:
    """q, zero where it is no probability or the draft is flagged, and a row of zeros."""
    rows = [
        [value if 0 <= value <= 1 and not mark else 0.0 for value in row]
        for row, mark in zip(q, marks, strict=True)
    ]
    return [*rows, [0.0] * vocabulary]


def by_coins(
    rule: str,
    tokens: list[int],
    q: list[Row],
    p: list[Row],
    coins: list[float],
    verified: int,
    prefix: int,
    marks: list[int],
) -> list[object]:
    """Chain or block verification of one row."""
    drafts, claim = len(tokens), claims(q, marks, len(p[0]))
    ratio = [1.0]
    for t, token in enumerate(tokens):
        over = p[t][token] / claim[t][token] if claim[t][token] > 0 else 0.0
        reached = ratio[-1] * over
        ratio.append(reached if math.isnan(reached) else min(1.0, reached))
    scale = ratio if rule == "block" else [1.0] * (drafts + 1)
    excess = [
        [max(scale[t] * a - b, 0.0) for a, b in zip(p[t], claim[t], strict=True)]
        for t in range(drafts + 1)
    ]
    if rule == "chain":
        keeps = [
            claim[t][token] > 0 and coins[t] * claim[t][token] < p[t][token]
            for t, token in enumerate(tokens)
        ]
        accepted = next((t for t, kept in enumerate(keeps) if not kept), drafts)
        reached = min(accepted, max(verified - 1, 0))
        broken = any(has_nan(row) for row in p[: reached + 1])
    else:
        heights = [
            sum(excess[i]) / (sum(excess[i]) + 1 - ratio[i]) if 0 < ratio[i] < 1 else ratio[i]
            for i in range(drafts + 1)
        ]
        kept = [i for i in range(1, drafts + 1) if coins[i - 1] < heights[i]]
        accepted = max(kept, default=0)
        broken = any(has_nan(p[t]) and ratio[t] > 0 for t in range(verified))
    final = draw(excess[accepted], p[accepted], coins[-1])
    cut = max(verified - 1, 0)
    bonus = tokens[cut] if accepted > cut else final
    return laid_out(tokens, accepted, bonus, verified, prefix, broken=broken)


def rows_of(commit: Commit) -> list[list[object]]:
    """A commit, one list a row."""
    return [list(row) for row in zip(*(field.tolist() for field in commit), strict=True)]


def lengths(made: torch.Generator, drafts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that were verified, from none to all, and the tokens before the block."""
    verified = torch.randint(0, drafts + 2, (ROWS,), generator=made)
    return verified, torch.randint(0, 99, (ROWS,), generator=made)


def spoilt(made: torch.Generator, values: torch.Tensor, share: float) -> torch.Tensor:
    """Values of which a share is NaN."""
    return torch.where(torch.rand(values.shape, generator=made) < share, torch.nan, values)


@given(SIZES)
def test_greedy_rows(sizes: tuple[int, int, int]) -> None:
    """Cuts, ties, and NaN before and behind the end."""
    drafts, vocabulary, seed = sizes
    made = source(seed)
    target = spoilt(made, grid(made, ROWS, drafts + 1, vocabulary, largest=1), 0.03)
    tokens = torch.randint(0, vocabulary, (ROWS, drafts + 1), generator=made)
    verified, prefix = lengths(made, drafts)
    found = acceptance.accept_greedy(tokens, target, verified, prefix)
    parts = (tokens[:, 1:], target, verified, prefix)
    columns = (part.tolist() for part in parts)
    assert rows_of(found) == [greedy(*row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("rule", ["chain", "block"])
@given(sizes=SIZES)
def test_rows_decided_by_coins(rule: str, sizes: tuple[int, int, int]) -> None:
    """Sharp and blunt laws, flags, claims and targets that are no laws, and every cut."""
    drafts, vocabulary, seed = sizes
    made = source(seed)
    q = torch.softmax(2 * grid(made, ROWS, drafts, vocabulary, largest=6).double(), -1)
    p = torch.softmax(2 * grid(made, ROWS, drafts + 1, vocabulary, largest=6).double(), -1)
    p = torch.where(p < 0.1, 0.0, p)
    q, p = spoilt(made, q, 0.03), spoilt(made, p / p.sum(-1, keepdim=True), 0.02)
    tokens = torch.randint(0, vocabulary, (ROWS, drafts), generator=made)
    coins = torch.rand(ROWS, drafts + 1, generator=made)
    verified, prefix = lengths(made, drafts)
    marks = (torch.rand(ROWS, drafts, generator=made) < 0.1).to(torch.uint8)
    accept = getattr(acceptance, f"accept_{rule}")
    parts = (tokens, q, p, coins, verified, prefix, marks)
    columns = (part.tolist() for part in parts)
    wanted = [by_coins(rule, *row) for row in zip(*columns, strict=True)]
    assert rows_of(accept(*parts)) == wanted


def decided(rule: str, q: Sequence[Row], p: Sequence[Row], coins: Row, tokens: list[int]) -> int:
    """How many drafts of one row are kept."""
    accept = getattr(acceptance, f"accept_{rule}")
    whole = torch.tensor([len(tokens) + 1])
    laws = torch.tensor([q]).double(), torch.tensor([p]).double()
    marks = torch.zeros(1, len(tokens), dtype=torch.uint8)
    commit = accept(torch.tensor([tokens]), *laws, torch.tensor([coins]), whole, whole, marks)
    return int(commit.correct_len)


def test_a_coin_at_the_bound_rejects() -> None:
    """p / q of a chain; h = 1/4 / (1/4 + 1/4) below r = 3/4 of a block, and r = h = 1/2."""
    half, even = [0.5, 0.5], [0.25, 0.75]
    for coin, kept in ((0.5, 0), (0.4999, 1)):
        assert decided("chain", [half], [even, half], [coin, 0.5], [0]) == kept
        assert decided("block", [half], [even, half], [coin, 0.5], [0]) == kept
        p = [[0.375, 0.625], [1.0, 0.0], half]
        assert decided("block", [half, half], p, [coin, 0.5, 0.5], [0, 1]) == kept


def test_a_draft_that_was_never_claimed_ends_a_block_where_both_laws_agree() -> None:
    """r = 1 and nothing in excess: h is 1, so the draft before is kept whatever its coin."""
    sure, half = [1.0, 0.0], [0.5, 0.5]
    assert decided("block", [half, sure], [half, sure, half], [0.999, 0.0, 0.5], [0, 1]) == 1
    # A claim that is no probability is none.
    assert decided("chain", [[1.5, 0.0]], [sure, half], [0.0, 0.5], [0]) == 0
    assert decided("chain", [[1.0, 0.0]], [sure, half], [0.999, 0.5], [0]) == 1


def test_ratios_never_rise_above_one() -> None:
    """r of a block falls, and a later surplus does not restore it beyond 1."""
    q, p = torch.tensor([[0.5, 0.25, 0.5]]), torch.tensor([[0.25, 0.75, 0.25]])
    ratio = acceptance.prefix_ratio(q.double(), p.double())
    assert ratio.dtype == torch.float64
    assert ratio.tolist() == [[1.0, 0.5, 1.0, 0.5]]
    assert all(later <= 1 for _, later in pairwise(ratio[0].tolist()))


def test_the_last_id_with_mass_is_drawn_where_rounding_leaves_none() -> None:
    """Also where that is id 0; a row without mass, or of NaN, yields 0."""
    mass = torch.tensor([[0.25, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]).double()
    assert acceptance.drawn(mass, mass, torch.ones(3)).tolist() == [0, 1, 0]
    nothing = torch.full((1, 3), torch.nan).double()
    assert acceptance.drawn(nothing, nothing, torch.tensor([0.5])).tolist() == [0]
    # A row without mass takes its own stand-in, whatever the others have.
    mixed, stand_in = torch.tensor([[0.5, 0.5], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    tenth = torch.full((2,), 0.1)
    assert acceptance.drawn(mixed.double(), stand_in.double(), tenth).tolist() == [0, 1]
