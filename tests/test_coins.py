"""The accept functions, their coins integrated by bisection, equal the enumerated rules."""

from collections.abc import Callable
from functools import cache
from itertools import product

import pytest
import torch

from oracle.reference.acceptance import Commit, accept_block, accept_chain
from oracle.reference.committed import BLOCK, CHAIN, Rule, committed, next_laws, target_rows
from oracle.reference.law import Prefix, Rows

from .strategies import source

DRAFTS, VOCABULARY = 2, 3
HALVINGS = 30
RULES = {"chain": (accept_chain, CHAIN), "block": (accept_block, BLOCK)}
FILTERS = {"none": (0.8, 99, 1.0), "top-k": (1.0, 2, 1.0), "top-p": (1.3, 99, 0.7)}

Accept = Callable[..., Commit]


def outcome(
    accept: Accept, tokens: Prefix, q: torch.Tensor, p: torch.Tensor, coins: torch.Tensor
) -> Commit:
    """One block under many coins [N, K + 1], every row verified."""
    rows = coins.shape[0]
    block = torch.tensor(tokens).expand(rows, -1)
    verify_len = torch.full((rows,), DRAFTS + 1)
    marks = torch.zeros(rows, DRAFTS, dtype=torch.uint8)
    laws = (q.expand(rows, -1, -1), p.expand(rows, -1, -1))
    return accept(block, *laws, coins, verify_len, torch.zeros_like(verify_len), marks)


def threshold(holds: Callable[[torch.Tensor], torch.Tensor], count: int) -> torch.Tensor:
    """Where each of many descending conditions on a number in (0, 1) ends, by bisection."""
    low, high = torch.zeros(count).double(), torch.ones(count).double()
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        below = holds(middle)
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def cells(
    accept: Accept, tokens: Prefix, q: torch.Tensor, p: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Coins in the middle of each cell in which nothing changes, its volume and its length."""
    low_before_high = torch.ones(DRAFTS, DRAFTS + 1).double().triu(1)
    own = torch.eye(DRAFTS, DRAFTS + 1, dtype=torch.bool)

    def longer(middle: torch.Tensor) -> torch.Tensor:
        coins = torch.where(own, middle.unsqueeze(1), low_before_high)
        return outcome(accept, tokens, q, p, coins).correct_len > torch.arange(DRAFTS)

    edge = threshold(longer, DRAFTS)
    below = torch.tensor(list(product([True, False], repeat=DRAFTS)))
    volume = torch.where(below, edge, 1 - edge).prod(1)
    coins = torch.nn.functional.pad(torch.where(below, edge / 2, (1 + edge) / 2), (0, 1), value=0.5)
    return coins, volume, outcome(accept, tokens, q, p, coins).correct_len


def integrated(accept: Accept) -> Rule:
    """The rule that an accept function follows, found without looking inside."""

    def lengths(tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        _, volume, length = cells(accept, tokens, q, p)
        return torch.zeros(DRAFTS + 1).double().index_add(0, length, volume)

    def bonus(n: int, tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        coins, volume, length = cells(accept, tokens, q, p)
        size, cell = torch.where(length == n, volume, -1.0).max(0)
        if size <= 0:
            return p[n]
        ids = torch.arange(VOCABULARY - 1)

        def up_to(middle: torch.Tensor) -> torch.Tensor:
            final = coins[cell].expand(len(ids), -1)[:, :-1]
            drawn = outcome(accept, tokens, q, p, torch.cat([final, middle.unsqueeze(1)], 1))
            return drawn.bonus <= ids

        cdf = threshold(up_to, len(ids))
        return torch.nn.functional.pad(cdf, (1, 1), value=0).diff() + torch.eye(VOCABULARY)[-1]

    return Rule(lengths, bonus)


def rows(seed: int) -> Rows:
    """Logits after each prefix, drawn once."""
    draw = source(seed)
    return cache(lambda _: 2 * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64))


def laws(seed: int, kept: str, *, one_hot: bool) -> tuple[Rows, Rows]:
    """A filtered target law and a draft law, sampled or without chance."""
    table = rows(seed + 1)
    peak = cache(lambda prefix: torch.eye(VOCABULARY).double()[table(prefix).argmax()])
    soft = cache(lambda prefix: torch.softmax(table(prefix), -1))
    return cache(target_rows(rows(seed), *FILTERS[kept])), peak if one_hot else soft


@pytest.mark.parametrize("one_hot", [False, True])
@pytest.mark.parametrize("kept", FILTERS)
@pytest.mark.parametrize("rule", RULES)
def test_coins_integrate_to_the_enumerated_law(rule: str, kept: str, *, one_hot: bool) -> None:
    """Every prefix is committed as often as the formulas say, and follows the target."""
    accept, formulas = RULES[rule]
    target, drafted = laws(len(kept), kept, one_hot=one_hot)
    sizes = (DRAFTS, VOCABULARY)
    found, wanted = (
        committed(target, drafted, drafted, each, sizes, lambda _: DRAFTS + 1)
        for each in (integrated(accept), formulas)
    )
    for tokens in found.keys() | wanted.keys():
        assert abs(found.get(tokens, 0.0) - wanted.get(tokens, 0.0)) < 1e-8, tokens
    for before, law in next_laws(wanted, VOCABULARY).items():
        assert torch.allclose(law, target(before), atol=1e-12, rtol=0)


def test_an_accept_of_another_rule_is_noticed() -> None:
    """Integration tells the two rules apart."""
    target, drafted = laws(1, "none", one_hot=False)
    sizes = (DRAFTS, VOCABULARY)
    found, other = (
        committed(target, drafted, drafted, each, sizes, lambda _: DRAFTS + 1)
        for each in (integrated(accept_chain), BLOCK)
    )
    assert sum(other.values()) > sum(found.values()) + 1e-3
