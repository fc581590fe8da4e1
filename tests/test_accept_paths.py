"""Accept paths: chain, block, one-hot, filters, cut and flags equal plain loops; edges by name."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.acceptance import RULES, Commit, accept_greedy
from impl.claim import point_law
from impl.filters import target_law
from impl.residual import inverse_cdf

from .accepting import (
    ALL,
    NAMES,
    Requests,
    fold,
    fold_laws,
    mixed,
    plain_accept,
    plain_law,
    requests,
)
from .strategies import source

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(2, 6), st.integers(0, 2**32))
UNIFORM_MAX = 1 - 2.0**-24
both_rules = pytest.mark.parametrize("rule", list(RULES))


def row_of(commit: Commit, row: int) -> list[object]:
    """One row of every field."""
    return [getattr(commit, name)[row].tolist() for name in NAMES]


def one_request(laws: list[list[float]], drafts: list[int], coins: list[float]) -> Requests:
    """One request whose target laws are given; the whole block may be used."""
    made = requests(1, len(drafts), len(laws[0]), 0)
    made.candidates = torch.tensor([[0, *drafts]])
    made.coins = torch.tensor([coins])
    made.target = torch.tensor([laws]).log()
    made.verify_len = torch.tensor([len(drafts) + 1])
    made.prefix = torch.tensor([10])
    return made


@both_rules
@given(sizes=SIZES)
def test_sampled_accepts_equal_the_plain_loops(rule: str, sizes: tuple[int, int, int, int]) -> None:
    """Every field: masks, filters, flags, one-hot rows, cuts, NaN rows and pad rows included."""
    asked = requests(*sizes)
    commit = fold(rule, asked)
    for row in range(sizes[0]):
        assert row_of(commit, row) == plain_accept(rule, asked, row)


@both_rules
def test_the_plain_loops_see_every_branch(rule: str) -> None:
    """Thousands of requests reach every length, cut, flag and empty commit."""
    asked = requests(4000, 3, 4, 5)
    commit = fold(rule, asked)
    assert [row_of(commit, row) for row in range(4000)] == [
        plain_accept(rule, asked, row) for row in range(4000)
    ]
    assert set(commit.correct_len.tolist()) == {0, 1, 2, 3}
    assert set(commit.trim.tolist()) == {0, 1, 2, 3}
    assert set(commit.flags.tolist()) == {0, 1}
    assert set(commit.commit.tolist()) == {0, 1, 2, 3, 4}


@given(sizes=SIZES)
def test_filters_equal_the_plain_loop(sizes: tuple[int, int, int, int]) -> None:
    """Temperature, exactly k, nucleus, renormalised; rows without a law are NaN throughout."""
    asked = requests(*sizes)
    law = target_law(asked.target, asked.temperature, asked.top_k, asked.top_p)
    for row in range(sizes[0]):
        heat, keep = float(asked.temperature[row]), int(asked.top_k[row])
        for step, logits in enumerate(asked.target[row].tolist()):
            wanted = plain_law(logits, heat, keep, float(asked.top_p[row]))
            if wanted is None:
                assert bool(law[row, step].isnan().all())
            else:
                assert law[row, step].tolist() == pytest.approx(wanted, rel=1e-5, abs=1e-30)


@pytest.mark.parametrize(
    ("top_k", "top_p", "wanted"),
    [
        (1, 1.0, [0.0, 1.0, 0.0, 0.0]),
        (2, 1.0, [0.0, 0.5, 0.5, 0.0]),
        (3, 1.0, [0.25, 0.375, 0.375, 0.0]),
        (4, 1.0, [0.2, 0.3, 0.3, 0.2]),
        (ALL, 1.0, [0.2, 0.3, 0.3, 0.2]),
        (ALL, 0.25, [0.0, 1.0, 0.0, 0.0]),
        (ALL, 0.55, [0.0, 0.5, 0.5, 0.0]),
        (ALL, 0.65, [0.25, 0.375, 0.375, 0.0]),
        (3, 0.7, [0.0, 0.5, 0.5, 0.0]),
    ],
)
def test_filters_break_ties_by_the_lowest_id(top_k: int, top_p: float, wanted: list[float]) -> None:
    """Exactly k of equal ids; the nucleus is taken of what top-k left and renormalised."""
    logits = torch.tensor([[[0.2, 0.3, 0.3, 0.2]]]).log()
    law = target_law(logits, torch.ones(1), torch.tensor([top_k]), torch.tensor([top_p]))
    assert law.flatten().tolist() == pytest.approx(wanted, abs=1e-6)


def test_a_small_temperature_does_not_overflow_the_law() -> None:
    """Logits near the end of float32 at T = 1e-5 give a point mass, not NaN."""
    logits = torch.tensor([[[-3e38, 3e38, 2.9e38]]])
    law = target_law(logits, torch.tensor([1e-5]), torch.tensor([ALL]), torch.ones(1))
    assert law.flatten().tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("mass", "uniform", "token"),
    [
        ([0.0, 0.25, 0.0, 0.75, 0.0], 0.0, 1),
        ([0.0, 0.25, 0.0, 0.75, 0.0], 0.25, 3),
        ([0.0, 0.25, 0.0, 0.75, 0.0], 0.2499, 1),
        ([0.0, 0.25, 0.0, 0.75, 0.0], UNIFORM_MAX, 3),
        ([0.0, 0.25, 0.0, 0.75, 0.0], 1.0, 3),
        ([0.0, 2.0, 6.0, 0.0, 0.0], 0.5, 2),
        ([1.0, 1e-30, 0.0, 0.0, 0.0], 1.0, 1),
    ],
)
def test_the_final_draw_at_both_ends(mass: list[float], uniform: float, token: int) -> None:
    """Strictly above u times the sum; the last id with mass when none is; never one without."""
    assert inverse_cdf(torch.tensor([mass]), torch.tensor([uniform])).tolist() == [token]


@both_rules
def test_a_coin_equal_to_the_ratio_rejects(rule: str) -> None:
    """Acceptance is strict, and coin 0 does not commit a draft of probability 0."""
    half, none = [0.5, 0.25, 0.25], [0.0, 0.5, 0.5]
    for law, coin, length in ((half, 0.5, 0), (half, 0.4999, 1), (none, 0.0, 0)):
        asked = one_request([law, half], [0], [coin, 0.0])
        laws = torch.tensor([[law, half]])
        commit = fold_laws(rule, asked, laws, point_law(asked.candidates[:, 1:], 3))
        assert commit.correct_len.tolist() == [length]
        assert length or commit.bonus.tolist() == [1]


def test_without_residual_mass_the_bonus_follows_p() -> None:
    """A q above p everywhere leaves nothing: the draw is from p, not the last id."""
    asked = one_request([[0.5, 0.5, 0.0]] * 2, [0], [0.9, 0.1])
    claim = torch.tensor([[[1.0, 0.5, 0.0]]])
    commit = fold_laws("chain", asked, torch.tensor([[[0.5, 0.5, 0.0]] * 2]), claim)
    assert (commit.correct_len.tolist(), commit.bonus.tolist()) == ([0], [0])


@both_rules
def test_a_flag_ends_the_block_and_its_bonus_follows_p(rule: str) -> None:
    """Drafts that would surely pass are dropped from the flag on, and may be drawn again."""
    sure = [1.0, 0.0, 0.0]
    for place in range(3):
        asked = one_request([sure] * 4, [0, 0, 0], [0.5, 0.5, 0.5, 0.5])
        asked.step_logits = torch.tensor([[sure] * 3]).log()
        asked.flags = torch.zeros(1, 3, dtype=torch.uint8)
        asked.flags[0, place] = 2
        commit = fold(rule, asked)
        assert commit.correct_len.tolist() == [place]
        assert commit.bonus.tolist() == [0]


@both_rules
def test_a_cut_commits_the_accepted_draft_as_bonus(rule: str) -> None:
    """No draw is made at a cut, and what lies behind it is not looked at, NaN included."""
    laws = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    asked = one_request(laws, [1, 2], [0.5, 0.5, 0.0])
    asked.one_hot, asked.flags = torch.tensor([True]), torch.zeros(1, 2, dtype=torch.uint8)
    asked.verify_len = torch.tensor([1])
    asked.target[0, 1:] = torch.nan
    assert row_of(fold(rule, asked), 0) == [0, 1, 1, 1, 11, [1, -1, -1], 0]
    asked.verify_len = torch.tensor([2])
    assert row_of(fold(rule, asked), 0) == [0, -1, 0, 0, 10, [-1] * 3, 1]


@both_rules
@given(sizes=SIZES)
def test_a_mask_selects_rows_of_a_mixed_batch(rule: str, sizes: tuple[int, int, int, int]) -> None:
    """A greedy row equals the greedy accept, a sampled one the rule, whatever its mates are."""
    asked = requests(*sizes)
    drawn = fold(rule, asked)
    plain = drawn.clone()
    lengths = (asked.verify_len, asked.prefix)
    accept_greedy(asked.candidates, asked.target.flatten(0, 1), *lengths, plain)
    greedy = torch.rand(sizes[0], generator=source(sizes[3])) < 0.5
    found = mixed(greedy, plain, drawn)
    for row in range(sizes[0]):
        assert row_of(found, row) == row_of(plain if greedy[row] else drawn, row)


def drawn_from(law: torch.Tensor, draw: torch.Generator) -> torch.Tensor:
    """One id of every row of a law."""
    return (law / torch.empty_like(law).exponential_(generator=draw)).argmax(-1)


def largest_deviation(rule: str, *, one_hot: bool) -> float:
    """How far the first two tokens of 40,000 rows of one request are from p, in sigmas.

    What was committed is continued by p; looked at are 25 cells and 5 margins.
    """
    rows, wide, draw = 40_000, 5, source(17)
    laws = [1.2 * torch.randn(wide**step, wide, generator=draw) for step in range(3)]
    offers = [logits + 0.8 * torch.randn(logits.shape, generator=draw) for logits in laws[:2]]
    kept = [offers[0].expand(rows, wide)]
    one = torch.full((rows,), 2) if one_hot else drawn_from(kept[0].softmax(-1), draw)
    kept.append(offers[1][one])
    two = (one + 1) % wide if one_hot else drawn_from(kept[1].softmax(-1), draw)

    asked = requests(rows, 2, wide, 0)
    asked.candidates = torch.stack((torch.zeros_like(one), one, two), 1)
    targets = (laws[0].expand(rows, wide), laws[1][one], laws[2][one * wide + two])
    asked.target, asked.step_logits = torch.stack(targets, 1), torch.stack(kept, 1)
    for field, value in (("flags", 0), ("temperature", 1), ("top_k", ALL), ("top_p", 1)):
        getattr(asked, field).fill_(value)
    asked.one_hot.fill_(one_hot)
    asked.verify_len.fill_(3)

    tokens, after = fold(rule, asked).out_tokens, laws[1].softmax(-1)
    begun = tokens[:, 0]
    follower = torch.where(tokens[:, 1] < 0, drawn_from(after[begun], draw), tokens[:, 1])
    joint = laws[0].softmax(-1).T.double() * after.double()
    found = torch.bincount(begun * wide + follower, minlength=wide**2).view(wide, wide)
    pairs = ((joint, found), (joint.sum(1), found.sum(1)))
    return max(
        float(((count - rows * law).abs() / (rows * law * (1 - law)).sqrt()).max())
        for law, count in pairs
    )


@both_rules
@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.statistical
def test_committed_tokens_follow_the_target(rule: str, *, one_hot: bool) -> None:
    """Below 5 sigma everywhere; a right accept fails for one seed in 50,000."""
    assert largest_deviation(rule, one_hot=one_hot) < 5


@both_rules
@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.statistical
def test_a_bonus_from_p_is_seen(
    monkeypatch: pytest.MonkeyPatch, rule: str, *, one_hot: bool
) -> None:
    """The commonest mistake, a bonus that ignores q, is far outside those 5 sigma."""
    monkeypatch.setattr("impl.acceptance.residual", lambda *laws: laws[0])
    assert largest_deviation(rule, one_hot=one_hot) > 20
