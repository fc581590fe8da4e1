"""Markov heads, mup, confidence and whole-block laws of the reference, each against plain loops."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given

from oracle.reference import choice, draft, law
from oracle.reference.bias import gated_bias, markov_bias, recurrent_bias
from oracle.reference.confidence import confidence, confidence_flags, raw_confidence
from oracle.reference.logits import base_logits

from .strategies import Shape, grid, shapes, source

ONE = torch.tensor([0])


def sigmoid(x: float) -> float:
    """The logistic function of one number."""
    return 1 / (1 + math.exp(-x))


def head_of(kind: str, draw: torch.Generator, shape: Shape, rows: int) -> draft.Head:
    """A bound head of one kind, with weights and hidden states on the grid."""
    vocabulary, rank, size = shape.vocabulary, shape.rank, shape.hidden
    w1, w2 = (grid(draw, vocabulary, rank).to(shape.dtype) for _ in range(2))
    hidden = grid(draw, rows, shape.drafts, size).to(shape.dtype)
    if kind == "gated":
        return draft.gated(hidden, w1, w2, grid(draw, rank, size + rank), grid(draw, rank))
    if kind == "rnn":
        w3, b3 = grid(draw, 3 * rank, 2 * rank + size), grid(draw, 3 * rank)
        return draft.recurrent(hidden, w1, w2, w3, b3)
    return draft.vanilla(w1, w2) if kind == "vanilla" else draft.without_bias(vocabulary)


def test_the_gate_reads_hidden_first_and_multiplies_the_embedding() -> None:
    """One number each: h = 2, e = 3, gate sigmoid(0.5 h - 0.25 e + 0.125)."""
    w1, w2 = torch.tensor([[3.0]]), torch.tensor([[1.0], [-2.0]])
    w3, b3 = torch.tensor([[0.5, -0.25]]), torch.tensor([0.125])
    bias = gated_bias(ONE, torch.tensor([[2.0]]), w1, w2, w3, b3)
    gated = 3 * sigmoid(0.375)
    assert bias[0].tolist() == pytest.approx([gated, -2 * gated], rel=1e-6)


def test_the_recurrent_bias_comes_from_the_old_state() -> None:
    """w3 reads state, embedding, hidden; its rows are a, c, o."""
    w1, w2 = torch.tensor([[3.0]]), torch.tensor([[1.0]])
    w3 = torch.tensor([[1.0, 0.5, 0.25], [0.5, 0.25, 1.0], [0.25, -0.5, 0.5]])
    b3 = torch.tensor([0.1, 0.2, 0.3])
    state = torch.tensor([[0.5]], dtype=torch.float64)
    bias, after = recurrent_bias(ONE, torch.tensor([[2.0]]), state, w1, w2, w3, b3)
    a, c, o = 0.5 + 1.5 + 0.5 + 0.1, 0.25 + 0.75 + 2 + 0.2, 0.125 - 1.5 + 1 + 0.3
    assert float(bias) == pytest.approx(math.tanh(o), rel=1e-6)
    wanted = sigmoid(a) * 0.5 + (1 - sigmoid(a)) * math.tanh(c)
    assert float(after) == pytest.approx(wanted, rel=1e-6)


@given(shapes())
def test_a_gate_that_is_wide_open_is_the_vanilla_head(shape: Shape) -> None:
    """sigmoid(100) rounds to one in every dtype."""
    draw = source(shape.seed)
    w1, w2 = (grid(draw, shape.vocabulary, shape.rank).to(shape.dtype) for _ in range(2))
    hidden = grid(draw, shape.rows, shape.hidden).to(shape.dtype)
    previous = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    w3, b3 = torch.zeros(shape.rank, shape.hidden + shape.rank), torch.full((shape.rank,), 100.0)
    bias = gated_bias(previous, hidden, w1, w2, w3, b3)
    assert torch.equal(bias, markov_bias(previous, w1, w2))


@given(shapes())
def test_bias_and_state_hold_values_of_their_dtypes(shape: Shape) -> None:
    """The bias is of w2's dtype, the state of the hidden states'."""
    draw = source(shape.seed)
    head = head_of("rnn", draw, shape, shape.rows)
    anchor = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    state = head.started(anchor)
    assert not state.any()
    for k in range(shape.drafts):
        bias, state = head.step(anchor, head.at(k), state)
        assert torch.equal(bias.to(shape.dtype).double(), bias)
        assert torch.equal(state.to(shape.dtype).double(), state)


@pytest.mark.parametrize("kind", ["gated", "rnn"])
def test_a_head_without_its_hidden_states_is_refused(kind: str) -> None:
    """Both heads read the hidden state of the step."""
    w = torch.zeros(3, 2)
    bind = draft.gated if kind == "gated" else draft.recurrent
    head = bind(None, w, w, torch.zeros(6, 4), torch.zeros(6))
    with pytest.raises(
        ValueError, match=f"^hidden is None, required: .* for a {kind} Markov head$"
    ):
        head(torch.tensor([0]))


@pytest.mark.parametrize("kind", ["none", "vanilla", "gated", "rnn"])
@given(shape=shapes(vocabulary_max=9))
def test_the_walk_repeats_the_block_of_every_head(kind: str, shape: Shape) -> None:
    """Also where the state carries the whole prefix."""
    draw = source(shape.seed)
    head = head_of(kind, draw, shape, shape.rows)
    base = grid(draw, shape.rows, shape.drafts, shape.vocabulary).double()
    anchor = torch.randint(0, shape.vocabulary, (shape.rows,), generator=draw)
    heat = torch.full((shape.rows,), 0.9, dtype=torch.float64)
    greedy = torch.arange(shape.rows) % 2 == 0
    noise = torch.rand(base.shape, generator=draw).double() + 0.01
    tokens, kept, _ = draft.markov_block(
        base, anchor, head, heat, greedy, noise, "counter", shape.step_dtype
    )
    assert torch.equal(kept, draft.walked_logits(base, anchor, tokens, head, shape.step_dtype))


@pytest.mark.parametrize("kind", ["none", "vanilla", "gated", "rnn"])
@given(shape=shapes(vocabulary_max=3))
def test_the_law_of_a_block_is_the_product_along_its_walk(kind: str, shape: Shape) -> None:
    """Chances multiplied along every block; the laws of pairs and of next tokens follow."""
    draw = source(shape.seed)
    head = head_of(kind, draw, shape, 1)
    base = grid(draw, shape.drafts, shape.vocabulary).double()
    joint = law.block_law(base, head, 1, 0.7, shape.step_dtype)
    for block in product(range(shape.vocabulary), repeat=shape.drafts):
        tokens = torch.tensor([block])
        kept = draft.walked_logits(base[None], torch.tensor([1]), tokens, head, shape.step_dtype)
        steps = choice.law(kept, torch.full((1, shape.drafts), 0.7, dtype=torch.float64))
        chances = steps.gather(2, tokens[..., None])[0, :, 0]
        assert abs(float(joint[block] - chances.prod())) < 1e-12
        assert abs(float(law.rows_of(joint)(block[:-1])[block[-1]] - chances[-1])) < 1e-9
    if kind != "rnn":
        steps = law.transitions(base, head, 0.7, shape.step_dtype)
        for table, wanted in zip(law.pairs_of(joint, 1), law.pair_laws(steps, 1), strict=True):
            assert torch.allclose(table, wanted, atol=1e-12, rtol=0)


def test_transitions_of_a_head_with_a_state_are_refused() -> None:
    """One previous token does not say what such a head will do."""
    w = torch.zeros(3, 2)
    head = draft.recurrent(torch.zeros(1, 1, 2), w, w, torch.zeros(6, 6), torch.zeros(6))
    with pytest.raises(ValueError, match="state of 2 numbers, required: none"):
        law.transitions(torch.zeros(1, 3), head, 1.0, torch.float32)


@given(shapes())
def test_mup_divides_once_after_the_cast(shape: Shape) -> None:
    """Dividing by a power of two scales the logits, and nothing else."""
    draw = source(shape.seed)
    weight = grid(draw, shape.stored, shape.hidden).to(shape.dtype)
    hidden = grid(draw, shape.rows, shape.hidden)
    whole = base_logits(hidden, weight, shape.vocabulary)
    assert torch.equal(base_logits(hidden, weight, shape.vocabulary, mup=4.0), whole / 4)


def test_mup_rounds_in_the_dtype_of_the_head() -> None:
    """1.01 is cast to bfloat16 first; a third of that is rounded to bfloat16 again."""
    weight = torch.ones(1, 1, dtype=torch.bfloat16)
    hidden = torch.tensor([[1.01]])
    wanted = (hidden.bfloat16().float() / 3).bfloat16().double()
    assert torch.equal(base_logits(hidden, weight, 1, mup=3.0), wanted)


@pytest.mark.parametrize("mup", [0.0, -1.0, float("inf"), float("nan")])
def test_a_mup_that_is_no_width_is_refused(mup: float) -> None:
    """It must be finite and positive."""
    with pytest.raises(ValueError, match="required: finite and > 0"):
        base_logits(torch.zeros(1, 1), torch.zeros(1, 1), 1, mup)


@given(shapes())
def test_confidence_reads_the_token_before_each_draft(shape: Shape) -> None:
    """weight [h ; e] + bias, e of anchor, d_1, ..., d_(K-1), squashed by its temperature."""
    draw = source(shape.seed)
    w1 = grid(draw, shape.vocabulary, shape.rank).to(shape.dtype)
    hidden = grid(draw, shape.rows, shape.drafts, shape.hidden).to(shape.dtype)
    tokens = torch.randint(0, shape.vocabulary, (shape.rows, shape.drafts + 1), generator=draw)
    weight, bias = grid(draw, 1, shape.hidden + shape.rank), grid(draw, 1)
    sts = torch.rand(shape.drafts, generator=draw) + 0.5
    before = draft.tokens_before(tokens[:, 0], tokens[:, 1:])
    raw = raw_confidence(hidden, before, w1, weight, bias)
    squashed = confidence(raw, sts)
    for row, k in product(range(shape.rows), range(shape.drafts)):
        features = [*hidden[row, k].tolist(), *w1[tokens[row, k]].tolist()]
        logit = sum(w * x for w, x in zip(weight[0].tolist(), features, strict=True)) + float(bias)
        assert float(raw[row, k]) == logit
        assert float(squashed[row, k]) == pytest.approx(sigmoid(logit / float(sts[k])))
    assert not confidence_flags(squashed).any()


def test_confidence_without_markov_features_and_with_a_nan() -> None:
    """A narrow weight reads h alone; a NaN is flagged where it is."""
    hidden = torch.tensor([[[1.0], [torch.nan]]])
    before, w1 = torch.zeros(1, 2, dtype=torch.int64), torch.ones(3, 2)
    squashed = confidence(raw_confidence(hidden, before, w1, torch.ones(1, 1), torch.ones(1)))
    assert float(squashed[0, 0]) == pytest.approx(sigmoid(2.0))
    assert confidence_flags(squashed).tolist() == [[0, 1]]
    assert confidence_flags(squashed).dtype == torch.uint8


def test_confidence_rounds_the_embedding_and_the_sum() -> None:
    """e to the dtype of h, the sum to float32, the temperature in float64."""
    w1, hidden = torch.tensor([[1 + 2.0**-10]]), torch.tensor([[[0.5]]]).bfloat16()
    before, bias = torch.zeros(1, 1, dtype=torch.int64), torch.tensor([2.0**-30])
    raw = raw_confidence(hidden, before, w1, torch.tensor([[1.0, 1.0]]), bias)
    assert float(raw) == 1.5
    alone = raw_confidence(hidden, before, None, torch.tensor([[1.0]]), bias + 1)
    assert float(alone) == 1.5
    with pytest.raises(ValueError, match=r"has 3 columns, required 1 or 1$"):
        raw_confidence(hidden, before, None, torch.zeros(1, 3), bias)
    with pytest.raises(ValueError, match=r"has 2 columns, required 1 or 1$"):
        raw_confidence(hidden, before, None, torch.zeros(1, 2), bias)
    assert raw.dtype == confidence(raw).dtype == torch.float64


def test_confidence_of_another_size_is_refused() -> None:
    """Weight, and length and sign of sts."""
    hidden, before = torch.zeros(1, 2, 4), torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="weight has 5 columns, required 4 or 6"):
        raw_confidence(hidden, before, torch.zeros(3, 2), torch.zeros(1, 5), torch.zeros(1))
    with pytest.raises(ValueError, match=r"sts has shape \(3,\), required \(2,\)"):
        confidence(torch.zeros(1, 2), torch.ones(3))
    with pytest.raises(ValueError, match=r"sts holds 0\.0, required: all > 0"):
        confidence(torch.zeros(1, 2), torch.tensor([1.0, 0.0]))
