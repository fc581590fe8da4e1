"""Losslessness, proved by enumeration: committed tokens follow the target's law, for every rule."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.reference.committed import (
    BLOCK,
    CHAIN,
    Committed,
    Rule,
    committed,
    expected_length,
    next_laws,
    target_rows,
)
from oracle.reference.law import Prefix, Rows

from .strategies import source

DRAFTS, VOCABULARY = 3, 3
RULES = {"chain": CHAIN, "block": BLOCK}
FILTERS = {"none": (0.8, 99, 1.0), "top-k": (1.0, 2, 1.0), "top-p": (1.3, 99, 0.7)}
FILTERS["both"] = (0.6, 2, 0.9)

seeds = st.integers(0, 2**32 - 1)


def whole(_block: Prefix) -> int:
    """Every row is verified."""
    return DRAFTS + 1


def logits_table(seed: int) -> Rows:
    """Logits after each prefix, drawn once."""
    draw = source(seed)

    @cache
    def row(prefix: Prefix) -> torch.Tensor:
        del prefix
        return 2 * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64)

    return row


def softened(table: Rows, temperature: float = 1.0) -> Rows:
    """The draft law softmax(l / T)."""
    return cache(lambda prefix: torch.softmax(table(prefix) / temperature, -1))


def one_hot(table: Rows) -> Rows:
    """The draft law of a block of argmaxes."""
    return cache(
        lambda prefix: torch.nn.functional.one_hot(table(prefix).argmax(), VOCABULARY).double()
    )


def filtered(seed: int, name: str = "none") -> Rows:
    """The target law under one of the filters."""
    return cache(target_rows(logits_table(seed), *FILTERS[name]))


def run(
    target: Rows,
    drafted: Rows,
    rule: Rule,
    claimed: Rows | None = None,
    verify_len: Callable[[Prefix], int] = whole,
) -> Committed:
    """The law of what is committed; the claimed law is the true one unless told otherwise."""
    claim = drafted if claimed is None else claimed
    return committed(target, drafted, claim, rule, (DRAFTS, VOCABULARY), verify_len)


def distance(mass: Committed, target: Rows) -> float:
    """The largest deviation of a committed token's law from the target's, over all prefixes."""
    laws = next_laws(mass, VOCABULARY)
    return max(float((law - target(before)).abs().max()) for before, law in laws.items())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kept", FILTERS)
@settings(max_examples=20)  # an example enumerates every block
@given(seed=seeds)
def test_a_sampled_draft_is_lossless(rule: str, kept: str, seed: int) -> None:
    """Any draft law, every filter on the target."""
    target, drafted = filtered(seed, kept), softened(logits_table(seed + 1))
    mass = run(target, drafted, RULES[rule])
    assert distance(mass, target) < 1e-12
    assert abs(sum(w for y, w in mass.items() if len(y) == 1) - 1) < 1e-12


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("kept", FILTERS)
@settings(max_examples=20)  # an example enumerates every block
@given(seed=seeds)
def test_a_one_hot_draft_is_lossless(rule: str, kept: str, seed: int) -> None:
    """A draft without chance, accepted as such."""
    target, drafted = filtered(seed, kept), one_hot(logits_table(seed + 1))
    assert distance(run(target, drafted, RULES[rule]), target) < 1e-12


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=20)  # an example enumerates every block
@given(seed=seeds)
def test_a_cut_that_depends_on_the_prefix_alone_is_lossless(rule: str, seed: int) -> None:
    """Whether a row is verified is known from the drafts before it."""
    target, drafted = filtered(seed), softened(logits_table(seed + 1))

    def verify_len(block: Prefix) -> int:
        stops = [t + 1 for t in range(DRAFTS) if t > 0 and block[t - 1] == 1]
        return min(stops, default=DRAFTS + 1)

    mass = run(target, drafted, RULES[rule], verify_len=verify_len)
    assert max(map(len, mass)) == DRAFTS + 1
    assert distance(mass, target) < 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_a_cut_that_looks_at_the_token_it_cuts_is_noticed(rule: str) -> None:
    """The enumerator sees a verify length that depends on discarded tokens."""
    target, drafted = filtered(5), softened(logits_table(6))
    mass = run(target, drafted, RULES[rule], verify_len=lambda block: 1 + (block[1] == 1))
    assert distance(mass, target) > 1e-3


@settings(max_examples=20)  # an example enumerates every block
@given(seed=seeds)
def test_block_verification_commits_no_less(seed: int) -> None:
    """The expected committed length of the block rule is at least that of the chain."""
    target, drafted = filtered(seed), softened(logits_table(seed + 1))
    chain, block = (expected_length(run(target, drafted, rule)) for rule in (CHAIN, BLOCK))
    assert block >= chain - 1e-12


def test_block_verification_commits_more_where_it_can() -> None:
    """The two rules are not one rule."""
    target, drafted = filtered(1), softened(logits_table(2))
    chain, block = (expected_length(run(target, drafted, rule)) for rule in (CHAIN, BLOCK))
    assert block > chain + 1e-3


def p_itself(rule: Rule) -> Rule:
    """A rejected draft is replaced from p, not from the residual."""
    return Rule(rule.lengths, lambda n, _tokens, _q, p: p[n])


def row_before_the_last(rule: Rule) -> Rule:
    """The draw after a whole block is from the row of its last draft."""
    return Rule(
        rule.lengths,
        lambda n, tokens, q, p: p[n - 1] if n == DRAFTS else rule.bonus(n, tokens, q, p),
    )


@pytest.mark.parametrize("falsehood", [p_itself, row_before_the_last])
@pytest.mark.parametrize("rule", RULES)
def test_a_wrong_final_draw_is_noticed(rule: str, falsehood: Callable[[Rule], Rule]) -> None:
    """Each falsehood moves some law by more than a thousandth."""
    target, drafted = filtered(3), softened(logits_table(4))
    assert distance(run(target, drafted, falsehood(RULES[rule])), target) > 1e-3


@pytest.mark.parametrize("rule", RULES)
def test_a_claim_at_another_temperature_is_noticed(rule: str) -> None:
    """Drafts drawn at T = 1 and accepted as if drawn at 1.2."""
    table = logits_table(4)
    mass = run(filtered(3), softened(table), RULES[rule], claimed=softened(table, 1.2))
    assert distance(mass, filtered(3)) > 1e-3


@pytest.mark.parametrize("rule", RULES)
def test_a_sampled_draft_accepted_as_one_hot_is_noticed(rule: str) -> None:
    """A token drawn from a softmax is not certain."""
    table = logits_table(4)

    def certain(n: int, tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        del q
        at_token = torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).double()
        return RULES[rule].bonus(n, tokens, at_token, p)

    def lengths(tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
        del q
        at_token = torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).double()
        return RULES[rule].lengths(tokens, at_token, p)

    mass = run(filtered(3), softened(table), Rule(lengths, certain))
    assert distance(mass, filtered(3)) > 1e-3
