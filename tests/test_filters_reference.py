"""The target law: order, exact counts, ties by the lowest id."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.reference.filters import keep_top_k, keep_top_p, target_law

from .strategies import grid, source

CASES = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32 - 1))


def slow_law(logits: list[float], temperature: float, top_k: int, top_p: float) -> list[float]:
    """One row, by sorting and walking."""
    law = torch.softmax(torch.tensor(logits).double() / temperature, -1).tolist()
    order = sorted(range(len(law)), key=lambda v: (-law[v], v))[: max(top_k, 1)]
    total = sum(law[v] for v in order)
    kept, before = {}, 0.0
    for v in order:
        if before < top_p or top_p == 1:
            kept[v] = law[v]
        before += law[v] / total
    return [kept.get(v, 0.0) / sum(kept.values()) for v in range(len(law))]


@given(CASES, st.floats(0.1, 3), st.integers(-1, 14), st.floats(0.01, 1))
def test_the_law_equals_a_walk(
    case: tuple[int, int, int], temperature: float, top_k: int, top_p: float
) -> None:
    """Sort, keep k, keep mass; many ties."""
    rows, vocabulary, seed = case
    logits = grid(source(seed), rows, vocabulary)
    limit = top_p + 1e-9 if top_p < 1 - 1e-9 else 1.0
    heat, count = torch.full((rows,), temperature, dtype=torch.float64), torch.full((rows,), top_k)
    law = target_law(logits, heat, count, torch.full((rows,), limit, dtype=torch.float64))
    wanted = [slow_law(row, temperature, top_k, limit) for row in logits.tolist()]
    assert torch.allclose(law, torch.tensor(wanted, dtype=torch.float64), atol=1e-12, rtol=0)


def test_exactly_k_ids_are_kept_on_a_tie() -> None:
    """The lowest ids of equal ones."""
    law = keep_top_k(torch.full((1, 5), 0.2).double(), torch.tensor([3]))
    assert law[0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0, 0])


def test_top_p_stops_before_the_id_whose_mass_before_it_reaches_the_limit() -> None:
    """Mass before is compared strictly."""
    law = keep_top_p(torch.tensor([[0.25, 0.5, 0.25]]).double(), torch.tensor([0.5]))
    assert law[0].tolist() == [0, 1, 0]
    law = keep_top_p(torch.tensor([[0.25, 0.5, 0.25]]).double(), torch.tensor([0.75]))
    assert law[0].tolist() == pytest.approx([1 / 3, 2 / 3, 0])


def test_top_k_comes_before_top_p() -> None:
    """With two ids left, half the mass is one id; of four it would be two."""
    logits = torch.zeros(1, 4)
    one = torch.ones(1).double()
    law = target_law(logits, one, torch.tensor([2]), torch.tensor([0.5]))
    assert law[0].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("top_p", [0.0, 1.5, float("nan")])
def test_a_top_p_outside_its_range_is_refused(top_p: float) -> None:
    """Zero would keep nothing."""
    with pytest.raises(ValueError, match=r"top_p is .*, required: in \(0, 1\]"):
        keep_top_p(torch.ones(1, 1).double(), torch.tensor([top_p]))


def test_a_nan_stays_visible() -> None:
    """Filters do not hide a NaN row."""
    logits = torch.tensor([[0.0, torch.nan, 1.0]])
    law = target_law(logits, torch.ones(1), torch.tensor([2]), torch.tensor([0.5]))
    assert bool(law.isnan().any())


def test_a_block_is_filtered_as_its_rows_are() -> None:
    """[3, 2, V] row by row, each of them alone [V], in float64."""
    draw = source(4)
    logits, heat = grid(draw, 3, 2, 5), 0.5 + torch.rand(3, 2, generator=draw).double()
    top_k = torch.randint(1, 6, (3, 2), generator=draw)
    top_p = 0.4 + 0.6 * torch.rand(3, 2, generator=draw)
    block = target_law(logits, heat, top_k, top_p)
    parts = (logits.reshape(6, 5), heat.flatten(), top_k.flatten(), top_p.flatten())
    alone = torch.stack([target_law(*row) for row in zip(*parts, strict=True)])
    assert block.dtype == torch.float64
    assert torch.equal(block.reshape(6, 5), alone)


def test_the_ends_of_both_limits() -> None:
    """Below one id there is one; a top-p of 1 keeps what rounding would lose; ties keep order."""
    law = torch.tensor([[0.25, 0.75]]).double()
    for top_k in (-3, 0, 1):
        assert keep_top_k(law, torch.tensor([top_k]))[0].tolist() == [0, 1]
    thin = torch.tensor([[1.0, 1e-20]], dtype=torch.float64)
    assert keep_top_p(thin, torch.tensor([1.0]))[0].tolist() == [1.0, 1e-20]
    assert keep_top_p(thin, torch.tensor([1 - 1e-9], dtype=torch.float64))[0].tolist() == [1.0, 0.0]
    many = keep_top_k(torch.full((1, 9000), 1 / 9000).double(), torch.tensor([100]))
    assert many[0, :100].gt(0).all()
    assert not many[0, 100:].any()
