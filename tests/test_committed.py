"""The enumerated rules of acceptance, worked out by hand for two drafts of three tokens."""

import pytest
import torch

from oracle.reference import committed as laws
from oracle.reference.committed import BLOCK, CHAIN, Rule

Q = torch.tensor([[0.5, 0.25, 0.25], [0.6, 0.2, 0.2]]).double()
P = torch.tensor([[0.25, 0.45, 0.3], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]).double()


def test_the_lengths_and_draws_of_a_chain() -> None:
    """Acceptance chances 1/2 and 1/3; a surplus accepts for certain."""
    assert CHAIN.lengths((0, 0), Q, P).tolist() == pytest.approx([1 / 2, 1 / 3, 1 / 6])
    assert CHAIN.lengths((1, 2), Q, P).tolist() == pytest.approx([0, 0, 1])
    assert CHAIN.lengths((0, 0), Q, P).dtype == torch.float64
    assert CHAIN.bonus(0, (0, 0), Q, P).tolist() == pytest.approx([0, 0.8, 0.2])
    assert CHAIN.bonus(1, (0, 0), Q, P).tolist() == pytest.approx([0, 0.75, 0.25])
    assert CHAIN.bonus(2, (0, 0), Q, P).tolist() == P[2].tolist()
    same = CHAIN.bonus(0, (0, 0), P[:2], P)
    assert same.tolist() == P[0].tolist()


def test_the_lengths_and_draws_of_a_block() -> None:
    """r = 1, 1/2, 1/6; S = 1/20 at length 1, so h = 1/11 there."""
    assert laws.prefix_ratios((0, 0), Q, P) == pytest.approx([1, 1 / 2, 1 / 6])
    assert laws.prefix_ratios((1, 0), Q, P) == pytest.approx([1, 1, 1 / 3])
    found = BLOCK.lengths((0, 0), Q, P)
    assert found.tolist() == pytest.approx([50 / 66, 5 / 66, 1 / 6])
    assert found.dtype == torch.float64
    assert BLOCK.lengths((1, 0), Q, P).tolist() == pytest.approx([0, 2 / 3, 1 / 3])
    assert BLOCK.bonus(0, (0, 0), Q, P).tolist() == pytest.approx([0, 0.8, 0.2])
    assert BLOCK.bonus(1, (0, 0), Q, P).tolist() == pytest.approx([0, 1, 0])
    assert BLOCK.bonus(1, (1, 0), Q, P).tolist() == pytest.approx([0, 0.75, 0.25])
    assert BLOCK.bonus(2, (0, 0), Q, P).tolist() == P[2].tolist()
    assert BLOCK.bonus(0, (0, 0), P[:2], P).tolist() == P[0].tolist()
    # Where both laws agree there is no surplus, and h is r.
    alike = torch.stack([P[0], P[1], P[2]])
    assert BLOCK.lengths((0, 0), alike[:2], alike).tolist() == [0, 0, 1]
    third = (
        torch.tensor([[0.5, 0.5, 0], [1, 0, 0]]).double(),
        torch.tensor([[0.5, 0.5, 0], [1, 0, 0], [1, 0, 0]]).double(),
    )
    assert BLOCK.lengths((0, 0), *third).tolist() == [0, 0, 1]
    never = torch.tensor([[0, 0.5, 0.5], [0.2, 0.5, 0.3], [0.1, 0.2, 0.7]]).double()
    assert BLOCK.lengths((0, 0), Q, never).tolist() == [1, 0, 0]


FIXED = Rule(
    lambda _tokens, _q, _p: torch.tensor([0.4, 0.6]).double(),
    lambda n, _tokens, _q, _p: torch.tensor([[0.1, 0.9], [0.7, 0.3]][n]).double(),
)


def enumerated(drafted: list[float], verified: int) -> laws.Committed:
    """What is committed of one draft of two tokens, by a rule that looks at nothing."""
    law = torch.tensor(drafted).double()
    return laws.committed(
        lambda _: law, lambda _: law, lambda _: law, FIXED, (1, 2), lambda _: verified
    )


def test_every_block_length_and_draw_adds_its_share() -> None:
    """The first token, then both; a cut keeps the draft and draws nothing after it."""
    first = {(0,): 0.25 * (0.04 + 0.6) + 0.75 * 0.04, (1,): 0.25 * 0.36 + 0.75 * (0.36 + 0.6)}
    both = {(0, 0): 0.25 * 0.42, (0, 1): 0.25 * 0.18, (1, 0): 0.75 * 0.42, (1, 1): 0.75 * 0.18}
    whole = enumerated([0.25, 0.75], 2)
    assert whole == pytest.approx({**first, **both})
    assert enumerated([0.25, 0.75], 1) == pytest.approx(first)
    assert laws.expected_length(whole) == pytest.approx(1.6)
    sure = enumerated([0.0, 1.0], 2)
    assert sure == pytest.approx({(0,): 0.04, (1,): 0.96, (1, 0): 0.42, (1, 1): 0.18})


def test_the_laws_are_asked_for_the_prefix_of_each_draft() -> None:
    """p of every prefix, q of every one but the whole block; the cut sees the block."""
    asked: dict[str, set[tuple[int, ...]]] = {"p": set(), "d": set(), "q": set(), "cut": set()}

    def law(name: str, prefix: tuple[int, ...]) -> torch.Tensor:
        asked[name].add(prefix)
        return torch.tensor([0.5, 0.5]).double() * (1 + (name == "q")) ** len(prefix)

    seen = []

    def lengths(tokens: tuple[int, ...], q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        seen.append((tokens, q.tolist(), p.tolist()))
        return torch.tensor([1.0, 0.0, 0.0]).double()

    def bonus(n: int, tokens: tuple[int, ...], q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        assert n in (0, 1, 2)
        assert (tokens, q.tolist(), p.tolist()) == seen[-1]
        return p[0]

    rule = Rule(lengths, bonus)

    def verified(block: tuple[int, ...]) -> int:
        asked["cut"].add(block)
        return 3

    mass = laws.committed(
        lambda prefix: law("p", prefix),
        lambda prefix: law("d", prefix),
        lambda prefix: law("q", prefix),
        rule,
        (2, 2),
        verified,
    )
    ends = {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert asked == {
        "p": {(), (0,), (1,), *ends},
        "d": {(), (0,), (1,)},
        "q": {(), (0,), (1,)},
        "cut": ends,
    }
    assert [tokens for tokens, _, _ in seen] == sorted(ends)
    assert seen[0][1:] == ([[0.5, 0.5], [1.0, 1.0]], [[0.5, 0.5]] * 3)
    assert {tokens: weight for tokens, weight in mass.items() if weight > 0} == pytest.approx(
        {(0,): 0.5, (1,): 0.5}
    )


def test_endings_and_next_laws() -> None:
    """A cut ends with the draft there; laws are normalised, after what can be committed."""
    last = torch.tensor([0.25, 0.75]).double()
    assert laws.endings((1, 0, 1), 1, 1, last) == {(1, 0): 0.25, (1, 1): 0.75}
    assert laws.endings((1, 0, 1), 2, 1, last) == {(1, 0): 1.0}
    assert laws.endings((1, 0, 1), 3, 0, last) == {(1,): 1.0}
    found = laws.next_laws({(0,): 0.2, (1,): 0.6, (0, 1): 0.1, (1, 1): 0.0}, 3)
    assert set(found) == {(), (0,)}
    assert found[()].tolist() == pytest.approx([0.25, 0.75, 0])
    assert found[(0,)].tolist() == [0, 1, 0]
    assert found[()].dtype == torch.float64


def test_target_rows_are_heated_and_filtered() -> None:
    """softmax(l / T), then the two likeliest, then the mass of top-p."""
    weights = torch.tensor([1.0, 4.0, 9.0, 16.0]).double()
    row = laws.target_rows(lambda prefix: weights.log() * (1 + len(prefix)), 2.0, 3, 1.0)
    assert row(()).tolist() == pytest.approx([0, 2 / 9, 3 / 9, 4 / 9])
    assert row((5,)).tolist() == pytest.approx([0, 4 / 29, 9 / 29, 16 / 29])
    narrow = laws.target_rows(lambda _: weights.log(), 2.0, 3, 0.5)
    assert narrow(()).tolist() == pytest.approx([0, 0, 3 / 7, 4 / 7])
    # T is a float64: a third is not that of float32.
    third = laws.target_rows(lambda _: weights.log(), 1 / 3, 4, 1.0)(())
    assert third.tolist() == pytest.approx((weights**3 / (weights**3).sum()).tolist(), rel=1e-12)
