"""The mathematics of the block law: tables by enumeration, planned against measured power."""

import math

import numpy as np
import pytest
import torch

from oracle.judge import bank
from oracle.judge.binding import bound_head
from oracle.judge.binomial import log_both, pairs_needed, rate_seen
from oracle.judge.chain import (
    Chain,
    chain,
    counted,
    foreign_base,
    foreign_token,
    joint,
    late_tilt,
    of_every_step,
    own_faults,
)
from oracle.judge.checks import accept_length, block_law
from oracle.judge.context import as_inputs, constant, query_rows
from oracle.judge.protocol import Setting, Tensors
from oracle.judge.significance import Counts, Floats, most_hits, pairs_seen
from oracle.reference import choice, law, logits

from .judging import context

TYPES, DRAFTS, VOCABULARY = block_law.TYPES, block_law.DRAFTS, block_law.VOCABULARY
HEADS = ("vanilla", "rnn")


def case(markov: str) -> tuple[Setting, Tensors, Chain]:
    """Setting, inputs of one row a type, and the laws that the check uses."""
    base = context()
    material, setting = block_law.setting_of(base, markov)
    rows = base.workload.rows(0, material, TYPES, query_rows(setting), sharpen=False)
    inputs = as_inputs(setting, *rows, *constant(TYPES, 1.0, 2**30))
    return setting, inputs, chain(setting, inputs, TYPES)


def sample(laws: Chain, seed: int, replays: int, rows: int, share: float = 0.0) -> Counts:
    """Blocks [replays, rows, K]; in a share of them the previous token is that of the next row."""
    draw = np.random.default_rng(seed)
    kind = np.broadcast_to(np.arange(rows) % laws.types, (replays, rows))
    prefix = np.zeros((replays, rows), dtype=np.int64)
    previous, blocks = laws.anchors[kind], []
    wrong = draw.random((replays, rows)) < share
    for k in range(DRAFTS):
        read = np.where(wrong & (k > 0), np.roll(previous, -1, 1), previous)
        heap = np.exp(laws.steps[k][kind, prefix, read]).cumsum(-1)
        picked = (heap <= draw.random(kind.shape)[..., None] * heap[..., -1:]).sum(-1)
        blocks.append(picked)
        prefix, previous = prefix * laws.vocabulary + picked, picked
    return np.stack(blocks, -1)


@pytest.mark.parametrize("markov", HEADS)
def test_the_tables_are_those_of_the_enumerated_block(markov: str) -> None:
    """Prefix masses times steps equal the joint law of the reference, for any head."""
    setting, inputs, laws = case(markov)
    rows = logits.draft_rows(inputs["hidden"], DRAFTS)
    base = logits.base_logits(rows, setting["head"], VOCABULARY)
    whole = laws.prefixes(DRAFTS)
    for one in range(TYPES):
        head = bound_head(setting, rows[one : one + 1])
        heat = float(choice.clamped(inputs["temperature"])[one])
        anchor = int(inputs["anchor"][one])
        block = law.block_law(base[one], head, anchor, heat, torch.float32)
        assert np.allclose(whole[one], block.flatten().numpy(), atol=1e-12)


def test_counts_and_laws_stand_in_the_same_order() -> None:
    """The shares of many drawn contexts and tokens are those that `joint` gives, with a neighbour.

    At most five standard errors off in any cell that expects ten draws.
    """
    _, _, laws = case("vanilla")
    tokens = sample(laws, 1, 40, 4000)
    for turn in (0, 1, -1):
        law_of, seen = joint(laws, turn), counted(laws, tokens, turn)
        assert law_of.sum() == pytest.approx(DRAFTS)
        assert seen.sum() == tokens.size
        expected = law_of * tokens.shape[0] * tokens.shape[1]
        plain = expected >= 10
        assert (np.abs(seen - expected)[plain] <= 6 * np.sqrt(expected[plain])).all()


@pytest.mark.parametrize("markov", HEADS)
def test_each_member_has_mean_one_under_the_truth(markov: str) -> None:
    """Each row of each member is a law, so that the product over draws is an e-value."""
    _, _, laws = case(markov)
    everyone: list[tuple[Floats, bank.Member]] = []
    for turn, group in block_law.bank_of(laws, 0.01):
        true = joint(laws, turn)
        weights = true.sum(-1, keepdims=True)
        given = np.divide(true, weights, out=np.zeros_like(true), where=weights > 0)
        everyone += [(given, one) for one in group]
    for given, one in everyone:
        mean = (given * np.exp(one.log_ratio)).sum(-1)
        assert np.allclose(mean[given.sum(-1) > 0.5], 1.0, atol=1e-9), one.name


def rejected(laws: Chain, tokens: Counts, share: float, alarm: float) -> bool:
    """What the bank half of the check decides."""
    groups = block_law.bank_of(laws, share)
    values = [bank.log_values(counted(laws, tokens, turn), group) for turn, group in groups]
    return bank.rejects(np.concatenate(values), alarm)


def test_a_neighbours_token_is_found_as_often_as_planned() -> None:
    """At the planned number of blocks, 95 % asked; 33 of 40 is below it at 1e-3."""
    _, _, laws = case("vanilla")
    share, alarm = 0.05, block_law.alarm_of(1e-6)
    how_many = block_law.number(laws, share)
    blocks = block_law.blocks_needed(laws, share, how_many, 1e-6)
    replays = math.ceil(blocks / 256)
    found = [rejected(laws, sample(laws, s, replays, 256, share), share, alarm) for s in range(40)]
    assert sum(found) > 33
    few = [
        rejected(laws, sample(laws, s, replays, 256, share / 4), share, alarm) for s in range(10)
    ]
    assert sum(few) <= 3


def test_the_truth_is_not_rejected() -> None:
    """Twenty honest runs at an alarm of 1e-2: two or more have probability 0.02."""
    _, _, laws = case("rnn")
    assert sum(rejected(laws, sample(laws, s, 8, 256), 0.05, 1e-2) for s in range(20)) <= 1


def test_a_bank_without_the_foreign_token_does_not_see_it() -> None:
    """Marginals of a step given its own prefix move too little: the neighbour must be looked at."""
    _, _, laws = case("vanilla")
    tokens = sample(laws, 3, 64, 512, 0.03)
    own = (*own_faults(laws), late_tilt(laws, 0.05), foreign_base(laws, 1, 0.03))
    assert not bank.rejects(bank.log_values(counted(laws, tokens), own), 1e-8)
    beside = [foreign_token(laws, 1, 0.03)]
    assert bank.rejects(bank.log_values(counted(laws, tokens, 1), beside), 1e-8)


def test_the_faults_are_told_apart() -> None:
    """Blocks that read the token of step k - 2 are called just that."""
    _, _, laws = case("vanilla")
    faults = own_faults(laws)
    (late,) = [one for one in faults if one.name == "previous token of step k - 2"]
    truth = of_every_step(laws, laws.true)
    draw = np.random.default_rng(4)
    weights = joint(laws).sum(-1)
    rows = np.exp(truth + late.log_ratio)
    pairs = zip(weights, rows, strict=True)
    counts = np.stack([draw.multinomial(round(3000 * w), row / row.sum()) for w, row in pairs])
    values = bank.log_values(counts, faults)
    assert faults[int(values.argmax())] is late


def test_two_sides_are_exact() -> None:
    """Against direct sums of the binomial law."""
    draws, rate = 30, 0.3
    mass = [math.comb(draws, k) * rate**k * (1 - rate) ** (draws - k) for k in range(draws + 1)]
    for hits in range(draws + 1):
        direct = min(1.0, 2 * min(sum(mass[: hits + 1]), sum(mass[hits:])))
        seen = float(log_both(np.array(hits), np.array(draws), np.array(rate)))
        assert seen == pytest.approx(math.log(direct), abs=1e-9)


def test_a_changed_rate_is_found_as_often_as_stated() -> None:
    """2,000 binomial samples at the stated change, to each side: 95 % within four errors."""
    draws, rate, alarm = 5000, 0.2, 1e-6
    change = rate_seen(draws, rate, alarm)
    draw = np.random.default_rng(9)
    for side in (1, -1):
        hits = draw.binomial(draws, rate + side * change, 2000)
        logs = log_both(hits, np.full(2000, draws), np.full(2000, rate))
        assert (logs <= math.log(alarm)).mean() >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 2000)
    assert rate_seen(5, 0.2, alarm) == math.inf


def test_pairs_needed_are_enough_and_not_twice_too_many() -> None:
    """The planned pairs show the share, in theory and in samples; half of them do not."""
    share, rate, alarm = 0.01, 1 / 512, 2.5e-9
    pairs = pairs_needed(share, rate, alarm)
    assert pairs_seen(pairs, rate, alarm) <= share < pairs_seen(pairs // 2, rate, alarm)
    limit = most_hits(pairs, rate, alarm)
    hits = np.random.default_rng(2).binomial(pairs, rate + share * (1 - rate), 1000)
    assert (hits > limit).mean() >= 0.92


def test_no_share_is_refused() -> None:
    """A share of nothing, or of everything, has no size."""
    with pytest.raises(ValueError, match="share is 0, required: between 0 and 1"):
        pairs_needed(0, 0.1, 1e-6)


@pytest.mark.parametrize("rule", ["chain", "block"])
def test_lengths_are_those_of_the_rule(rule: str) -> None:
    """A chain passes its first draft with probability sum min(p, q); a block no less often."""
    plan = accept_length.plan(context(), rule)
    reached, gone_on = accept_length.lengths_law(plan.setting, plan.inputs, rule)
    assert reached[0].sum() == pytest.approx(1.0)
    assert reached[1].sum() == pytest.approx(gone_on[0].sum())
    chained = accept_length.lengths_law(plan.setting, plan.inputs, "chain")[1]
    inputs, anchor = plan.inputs["x"], int(plan.inputs["x"]["anchor"][0])
    rows = logits.draft_rows(inputs["hidden"][:1], accept_length.DRAFTS)
    base = logits.base_logits(rows, plan.setting["head"], accept_length.VOCABULARY)[0]
    head = bound_head(plan.setting, rows)
    heat = float(choice.clamped(inputs["temperature"][:1]))
    q = law.transitions(base, head, heat, torch.float32)[0, anchor]
    p = torch.softmax(plan.inputs["target"]["table"][anchor].double() / heat, -1)
    kept = float(torch.minimum(p, q).sum())
    assert chained[0].sum() == pytest.approx(kept, abs=1e-9)
    assert sum(map(np.sum, gone_on)) >= sum(map(np.sum, chained)) - 1e-12
