"""Sampled acceptance in the reference: cuts, flags, NaN, empty residuals, mixed batches."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.reference.acceptance import (
    Commit,
    accept_block,
    accept_chain,
    accept_greedy,
    accept_mixed,
    claimed_law,
    drawn,
)

from .strategies import grid, source

RULES = {"chain": accept_chain, "block": accept_block}
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(2, 5), st.integers(0, 2**32))
Accept = Callable[..., Commit]


class Case(NamedTuple):
    """The arguments of an accept function."""

    tokens: torch.Tensor
    q: torch.Tensor
    p: torch.Tensor
    coins: torch.Tensor
    verify_len: torch.Tensor
    prefix_len: torch.Tensor
    marks: torch.Tensor


def case(sizes: tuple[int, int, int, int]) -> Case:
    """Drafts with mass in q, laws with zeros in p, every row verified."""
    rows, drafts, vocabulary, seed = sizes
    draw = source(seed)
    q = torch.softmax(grid(draw, rows, drafts, vocabulary).double(), -1)
    p = torch.softmax(grid(draw, rows, drafts + 1, vocabulary, largest=6).double(), -1)
    sparse = torch.where(p < 0.1, 0.0, p)
    tokens = torch.randint(0, vocabulary, (rows, drafts), generator=draw)
    coins = torch.rand(rows, drafts + 1, generator=draw)
    whole = torch.full((rows,), drafts + 1)
    marks = torch.zeros(rows, drafts, dtype=torch.uint8)
    return Case(tokens, q, sparse / sparse.sum(-1, keepdim=True), coins, whole, whole + 7, marks)


@pytest.mark.parametrize("rule", RULES)
@given(sizes=SIZES)
def test_a_commit_is_drafts_then_a_token_the_target_allows(
    rule: str, sizes: tuple[int, int, int, int]
) -> None:
    """Lengths agree, the tail is -1, and no committed id has p = 0."""
    parts = case(sizes)
    commit = RULES[rule](*parts)
    for row, length in enumerate(commit.correct_len.tolist()):
        tokens = commit.out_tokens[row].tolist()
        assert tokens[:length] == parts.tokens[row, :length].tolist()
        assert tokens[length] == int(commit.bonus[row])
        assert tokens[length + 1 :] == [-1] * (sizes[1] - length)
        assert all(float(parts.p[row, t, v]) > 0 for t, v in enumerate(tokens[: length + 1]))
    assert torch.equal(commit.commit_len, commit.correct_len + 1)
    assert torch.equal(commit.new_seq_len, parts.prefix_len + commit.commit_len)


@pytest.mark.parametrize("rule", RULES)
@given(sizes=SIZES, verified=st.integers(0, 6))
def test_a_cut_commits_a_prefix_of_the_whole(
    rule: str, sizes: tuple[int, int, int, int], verified: int
) -> None:
    """The token at the cut is the draft accepted there; verify length 0 commits nothing."""
    parts = case(sizes)
    verify_len = torch.full_like(parts.verify_len, min(verified, sizes[1] + 1))
    whole, cut = RULES[rule](*parts), RULES[rule](*parts._replace(verify_len=verify_len))
    length = torch.minimum(whole.commit_len, verify_len)
    slots = torch.arange(sizes[1] + 1)
    assert torch.equal(cut.commit_len, length)
    assert torch.equal(cut.out_tokens, torch.where(slots < length[:, None], whole.out_tokens, -1))
    if verified > 0:
        assert torch.equal(cut.correct_len + cut.trim, whole.correct_len)
    else:
        assert cut.bonus.eq(-1).all()
        assert torch.equal(cut.new_seq_len, parts.prefix_len)


@pytest.mark.parametrize("rule", RULES)
@given(sizes=SIZES, place=st.integers(0, 4))
def test_a_flagged_draft_ends_the_block_with_a_draw_from_p(
    rule: str, sizes: tuple[int, int, int, int], place: int
) -> None:
    """The same as a block that is shorter by the flagged draft and what follows it."""
    parts, flagged = case(sizes), place % sizes[1]
    marks = parts.marks.clone()
    marks[:, flagged] = 1
    q = parts.q.clone()
    q[::2, flagged] = torch.nan  # a one-hot claim stays sound under a flag
    commit = RULES[rule](*parts._replace(marks=marks, q=q))
    final = parts.coins[:, -1:]
    shorter = RULES[rule](
        parts.tokens[:, :flagged],
        parts.q[:, :flagged],
        parts.p[:, : flagged + 1],
        torch.cat([parts.coins[:, :flagged], final], 1),
        torch.full_like(parts.verify_len, flagged + 1),
        parts.prefix_len,
        parts.marks[:, :flagged],
    )
    assert torch.equal(commit.correct_len, shorter.correct_len)
    assert torch.equal(commit.bonus, shorter.bonus)


@pytest.mark.parametrize("rule", RULES)
def test_nan_in_a_deciding_target_row_commits_nothing(rule: str) -> None:
    """Row 0 always decides."""
    parts = case((3, 2, 4, 1))
    p = parts.p.clone()
    p[1, 0] = torch.nan
    commit = RULES[rule](*parts._replace(p=p))
    assert commit.flags.tolist() == [False, True, False]
    assert (int(commit.commit_len[1]), int(commit.bonus[1])) == (0, -1)
    assert commit.out_tokens[1].tolist() == [-1, -1, -1]


def test_nan_behind_the_end_decides_where_a_prefix_can_reach_it() -> None:
    """A chain never looks past its end; a block reads every verified row that it may still keep."""
    parts = case((1, 2, 4, 1))
    token, coins = parts.tokens[0, 0], torch.ones_like(parts.coins) * 0.999
    p = parts.p.clone()
    p[:, 0, token] = 1e-3 * parts.q[:, 0, token]
    p[:, 2] = torch.nan
    spoilt = parts._replace(p=p, coins=coins)
    assert not bool(accept_chain(*spoilt).flags)
    assert bool(accept_block(*spoilt).flags)
    # What is not verified, and what no prefix reaches, is not looked at.
    cut = spoilt._replace(verify_len=torch.tensor([2]))
    assert not bool(accept_block(*cut).flags)
    p[:, 0, token] = 0
    assert not bool(accept_block(*spoilt).flags)


@given(SIZES)
def test_one_draft_is_the_same_under_both_rules(sizes: tuple[int, int, int, int]) -> None:
    """With K = 1 block verification is the chain, coin for coin."""
    parts = case((sizes[0], 1, *sizes[2:]))
    for field, other in zip(accept_chain(*parts), accept_block(*parts), strict=True):
        assert torch.equal(field, other)


@given(SIZES)
def test_a_one_hot_draft_is_kept_with_the_chance_the_target_gives_it(
    sizes: tuple[int, int, int, int],
) -> None:
    """Accepted iff coin < p; a rejected id is never the token in its place."""
    parts = case(sizes)
    hot = torch.ones(sizes[0], dtype=torch.bool)
    heat = torch.ones(sizes[0]).double()
    q = claimed_law(torch.zeros_like(parts.q), heat, parts.tokens, hot)
    commit = accept_chain(*parts._replace(q=q))
    chance = parts.p[:, :-1].gather(2, parts.tokens[..., None])[..., 0]
    keeps = parts.coins[:, :-1].double() < chance
    assert torch.equal(commit.correct_len, keeps.long().cumprod(1).sum(1))
    for row, length in enumerate(commit.correct_len.tolist()):
        if length < sizes[1]:
            assert int(commit.bonus[row]) != int(parts.tokens[row, length])


def test_the_inverse_cdf_never_draws_an_id_without_mass() -> None:
    """Both ends, a gap, and the law that stands in for an empty residual."""
    mass = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]]).double().expand(4, -1)
    u = torch.tensor([0.0, 0.2499, 0.25, 1.0])
    assert drawn(mass, mass, u).tolist() == [1, 1, 3, 3]
    empty = torch.zeros(1, 5).double()
    assert drawn(empty, mass[:1], torch.tensor([0.1])).tolist() == [1]


def test_the_claimed_law_follows_the_temperature_of_its_row() -> None:
    """softmax(l / T) on sampled rows, the token on the others."""
    logits = torch.tensor([[[0.0, 1.0]], [[0.0, 1.0]]]).double()
    one_hot, heat = torch.tensor([False, True]), torch.tensor([0.5, 0.5]).double()
    q = claimed_law(logits, heat, torch.tensor([[0], [0]]), one_hot)
    assert torch.equal(q[0, 0], torch.softmax(torch.tensor([0.0, 2.0]).double(), -1))
    assert q[1, 0].tolist() == [1, 0]


@given(SIZES)
def test_greedy_rows_of_a_mixed_batch_are_greedy(sizes: tuple[int, int, int, int]) -> None:
    """Each row of every field comes whole from one of the two commits."""
    parts = case(sizes)
    candidates = torch.cat([torch.zeros(sizes[0], 1).long(), parts.tokens], 1)
    argmax = accept_greedy(candidates, parts.p.log(), parts.verify_len, parts.prefix_len)
    coins = accept_chain(*parts)
    greedy = torch.arange(sizes[0]) % 2 == 0
    for mixed, own, other in zip(accept_mixed(argmax, coins, greedy), argmax, coins, strict=True):
        assert torch.equal(mixed[greedy], own[greedy])
        assert torch.equal(mixed[~greedy], other[~greedy])
