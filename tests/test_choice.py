"""One token a row: ties, NaN, infinities, greedy rows, clamping."""

from collections.abc import Callable

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
    with pytest.raises(ValueError, match=f"temperature of row 1 is {bad}"):
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


def test_the_limits_are_those_of_float32() -> None:
    """A wider temperature is rounded to float32 first; the flags are bytes."""
    tenth = torch.tensor([0.1], dtype=torch.float64)
    assert torch.equal(choice.clamped(tenth), tenth.float().double())
    below = torch.tensor([1e-6 * (1 - 1e-12)], dtype=torch.float64)
    assert not bool(choice.is_greedy(below, torch.tensor([5])))
    assert choice.clamped(torch.ones(1)).dtype == torch.float64
    assert choice.flags(torch.zeros(1, 2)).dtype == torch.uint8


# What a function reads of logits, temperature, greedy, noise and dialect.
READS: dict[Callable[..., torch.Tensor], tuple[int, ...]] = {
    choice.winner: (0,),
    choice.flags: (0,),
    choice.law: (0, 1),
    choice.keys: (0, 1, 3, 4),
    choice.token: (0, 1, 2, 3, 4),
}


@pytest.mark.parametrize("function", READS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_axes_before_the_vocabulary_change_nothing(
    function: Callable[..., torch.Tensor], dialect: str
) -> None:
    """A block [3, 4, V] is judged as its rows are, each of them alone [V]."""
    draw = source(8)
    logits = spoiled(draw, torch.randn(12, 5, generator=draw)).double()
    heat, greedy = torch.linspace(0.5, 2, 12).double(), torch.arange(12) % 5 == 0
    e = torch.rand(12, 5, generator=draw).double()

    def judged(*parts: torch.Tensor) -> torch.Tensor:
        every = (*parts, dialect)
        return function(*(every[place] for place in READS[function])).nan_to_num(9)

    parts = (logits, heat, greedy, e)
    block = judged(*(part.reshape(3, 4, *part.shape[1:]) for part in parts))
    alone = torch.stack([judged(*row) for row in zip(*parts, strict=True)])
    assert torch.equal(block.flatten(), alone.flatten())
