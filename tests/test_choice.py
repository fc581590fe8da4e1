"""One token a row: ties, NaN, infinities, greedy rows, clamping."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import choice as folded
from impl.sampler import admit
from oracle.reference import choice

from .strategies import DTYPES, parameters, source, spoiled

KEYS = st.lists(
    st.sampled_from([-1.5, 0.0, 0.25, 2.0, torch.inf, -torch.inf, torch.nan]),
    min_size=1,
    max_size=9,
)


def lowest_of_the_best(values: list[float]) -> int:
    """The rule, spelled out in plain Python."""
    for index, value in enumerate(values):
        if value != value:  # noqa: PLR0124 - only a NaN differs from itself
            return index
    return values.index(max(values))


@given(KEYS)
def test_the_winner_is_the_first_nan_or_the_lowest_id_of_the_largest(values: list[float]) -> None:
    """Ties go to the lowest id, a NaN beats everything."""
    keys = torch.tensor([values], dtype=torch.float64)
    assert int(choice.winner(keys)) == lowest_of_the_best(values)


@given(st.integers(0, 2**32), st.sampled_from(DTYPES), st.sampled_from(["race", "counter"]))
def test_both_sides_choose_alike(seed: int, dtype: torch.dtype, dialect: str) -> None:
    """Same step logits, parameters and noise: same tokens and flags, spoiled rows included."""
    draw = source(seed)
    rows, vocabulary = 12, 17
    logits = spoiled(draw, torch.randn(rows, vocabulary, generator=draw)).to(dtype)
    heat, top_k = parameters(draw, rows)
    e = torch.rand(rows, vocabulary, generator=draw) * 4 + 2.0**-10
    admitted = admit(heat, top_k)
    tokens = torch.zeros(rows, dtype=torch.int64)
    flags = torch.zeros(rows, dtype=torch.uint8)
    choose = folded.choose_race if dialect == "race" else folded.choose_counter
    choose(logits, admitted.temperature, admitted.greedy, e, tokens, flags)
    exact = logits.double()
    clamped, greedy = choice.clamped(heat), choice.is_greedy(heat, top_k)
    expected = choice.token(exact, clamped, greedy, e.double(), dialect)
    keys = choice.keys(exact, clamped, e.double(), "counter").nan_to_num(-torch.inf)
    top = keys.topk(2, dim=-1).values
    clear = greedy | ~exact.amax(-1).isfinite() | (top[:, 0] - top[:, 1] > 1e-4)
    assert torch.equal(tokens[clear], expected[clear])
    assert torch.equal(flags, choice.flags(exact))
    assert int(clear.sum()) >= rows // 2


def test_a_greedy_row_is_not_touched_by_temperature() -> None:
    """A gap of 2^-26 decides, although softmax in float32 cannot see it."""
    logits = torch.tensor([[0.0, 2.0**-26]])
    tokens, flags = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.uint8)
    admitted = admit(torch.tensor([1e5]), torch.tensor([1]))
    e = torch.tensor([[1e-6, 4.0]])
    folded.choose_race(logits, admitted.temperature, admitted.greedy, e, tokens, flags)
    assert int(tokens) == 1
    greedy = choice.is_greedy(torch.tensor([1e5]), torch.tensor([1]))
    assert int(choice.token(logits.double(), torch.tensor([1e5]), greedy, e.double(), "race")) == 1


@pytest.mark.parametrize(
    ("temperature", "top_k", "greedy"),
    [
        (5.0, 1, True),
        (5.0, 0, True),
        (1e-5, 2**30, False),
        (0.0, 2**30, True),
        (9e-7, 2**30, True),
        (1e-6, 2**30, False),
    ],
)
def test_greedy_is_top_k_or_a_tiny_temperature(
    *, temperature: float, top_k: int, greedy: bool
) -> None:
    """Both sides draw the line at the same place."""
    heat, limit = torch.tensor([temperature]), torch.tensor([top_k])
    assert bool(choice.is_greedy(heat, limit)) == greedy
    assert bool(admit(heat, limit).greedy) == greedy


@pytest.mark.parametrize("bad", [-0.1, torch.nan, torch.inf])
def test_a_temperature_that_is_none_is_refused(bad: float) -> None:
    """The row and the value are named, on both sides."""
    heat, limit = torch.tensor([1.0, bad]), torch.tensor([5, 5])
    with pytest.raises(ValueError, match="temperature of row 1"):
        choice.clamped(heat)
    with pytest.raises(ValueError, match="row 1"):
        admit(heat, limit)


def test_both_sides_clamp_once_at_1e_5() -> None:
    """The clamped value is the float32 one."""
    heat = torch.tensor([3e-6, 1e-5, 2.0])
    ours = choice.clamped(heat)
    theirs = admit(heat, torch.tensor([9, 9, 9])).temperature
    assert torch.equal(ours.float(), theirs)


@given(st.integers(0, 2**32), st.sampled_from(DTYPES))
def test_step_logits_round_once(seed: int, dtype: torch.dtype) -> None:
    """float32(base) + float32(bias), then the step dtype: equal bits on both sides."""
    draw = source(seed)
    base, bias = (torch.randn(3, 40, generator=draw).to(dtype) for _ in range(2))
    for step_dtype in (dtype, torch.float32):
        out = torch.empty(3, 40, dtype=step_dtype)
        folded.step_logits(base, bias, out)
        assert torch.equal(
            out.double(), choice.step_logits(base.double(), bias.double(), step_dtype)
        )


def test_an_unknown_dialect_is_refused() -> None:
    """Only race and counter have keys."""
    one = torch.ones(1, 2, dtype=torch.float64)
    with pytest.raises(ValueError, match="required: 'race' or 'counter'"):
        choice.keys(one, one[:, 0], one, "dice")
