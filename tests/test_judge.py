"""Margins, the ledger, histories, loading: what the judge is made of."""

from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracle.judge import archive, budget, margin
from oracle.judge import history as histories
from oracle.judge.budget import ALPHA, SHARES, Ledger, OverspentError
from oracle.judge.history import History
from oracle.judge.loading import AdapterError, CannotServeError, build, load_factory
from oracle.judge.protocol import Setting, Subject
from oracle.judge.verdict import Outcome, Verdict, ViolationRuntimeError, exit_code, holds, worst

from .strategies import DTYPES, grid, source


@given(st.integers(0, 2**32), st.sampled_from(DTYPES), st.integers(1, 40))
def test_products_stay_inside_their_margin(seed: int, dtype: torch.dtype, terms: int) -> None:
    """P1 on arbitrary values: the computed product lies within the bound of the exact one."""
    draw = source(seed)
    hidden = torch.randn(4, terms, generator=draw).to(dtype)
    weight = torch.randn(9, terms, generator=draw).to(dtype)
    computed = (hidden @ weight.T).double().numpy()
    exact = (hidden.double() @ weight.double().T).float().to(dtype).double().numpy()
    name = str(dtype).removeprefix("torch.")
    bound = margin.product(
        margin.factor(hidden.double().numpy()), margin.factor(weight.double().numpy()), name
    )
    assert (np.abs(computed - exact) <= bound).all()


def test_a_product_that_float32_must_round_has_a_margin() -> None:
    """Thirds have no short sum, so the bound is not zero, and not wide either."""
    thirds = np.full((1, 8), np.float64(np.float32(1 / 3)))
    bound = margin.product(margin.factor(thirds), margin.factor(thirds), "float32")
    assert 0 < bound.max() < 1e-5


@given(st.integers(0, 2**32), st.sampled_from(DTYPES))
def test_products_on_a_grid_need_no_margin(seed: int, dtype: torch.dtype) -> None:
    """Exact sums have the bound zero, and are equal bit for bit."""
    draw = source(seed)
    hidden, weight = (grid(draw, 5, 24).to(dtype) for _ in range(2))
    name = str(dtype).removeprefix("torch.")
    bound = margin.product(
        margin.factor(hidden.double().numpy()), margin.factor(weight.double().numpy()), name
    )
    assert (bound == 0).all()
    assert torch.equal(
        (hidden @ weight.T).double(),
        (hidden.double() @ weight.double().T).float().to(dtype).double(),
    )


@pytest.mark.parametrize("dialect", ["race", "counter"])
@pytest.mark.parametrize("temperature", [0.01, 0.7, 50.0])
def test_keys_stay_inside_their_margin_and_come_near_it(dialect: str, temperature: float) -> None:
    """P3 swept: error over bound below 1 everywhere and above 0.2 somewhere."""
    draw = source(int(temperature * 100))
    logits = torch.randn(400, 128, generator=draw) * 3
    heat = torch.tensor(temperature)
    e = torch.empty(400, 128).exponential_(generator=draw)
    scaled = logits.double() / heat.double()
    if dialect == "counter":
        u = (-torch.expm1(-e.double())).float()
        low = (-torch.log1p(-u)).float()
        computed = (logits / heat - torch.log(low)).double()
        log_noise = torch.log(-torch.log1p(-u.double()))
    else:
        computed = torch.log((torch.softmax(logits / heat, -1) / e).double())
        log_noise = torch.log(e.double())
    exact = scaled - log_noise
    shift = (computed - exact).nan_to_num(posinf=0, neginf=0)
    down, up = margin.key_bounds(
        scaled.numpy(), log_noise.numpy(), dialect, margin.ARITHMETIC["torch-cpu"]
    )
    ordinary = np.isfinite(down)
    error = shift.numpy()
    if dialect == "race":
        middle = np.array([np.median(row[keep]) for row, keep in zip(error, ordinary, strict=True)])
        error = error - middle[:, None]
    ratio = np.abs(error[ordinary]) / up[ordinary]
    assert ratio.max() < 1
    assert ratio.max() > 0.2


def test_a_flushed_probability_can_lose_but_not_win() -> None:
    """Below the smallest normal float32 a key has no lower bound, and a finite upper one."""
    scaled = np.array([[0.0, -200.0]])
    down, up = margin.key_bounds(scaled, np.zeros((1, 2)), "race", margin.ARITHMETIC["torch-cpu"])
    assert np.isinf(down[0, 1])
    assert up[0, 1] == pytest.approx(200 - 126 * np.log(2), rel=1e-3)


def test_the_ledger_refuses_to_overspend() -> None:
    """A line ends at its share, whoever asks."""
    ledger = Ledger(1e-6)
    limit = SHARES["draw law"] * 1e-6
    ledger.take("draw law", limit)
    with pytest.raises(OverspentError, match="'draw law' would spend"):
        ledger.take("draw law", 1e-12)
    with pytest.raises(KeyError, match="no ledger line 'luck'"):
        ledger.take("luck", 1e-12)
    assert ledger.total() == pytest.approx(limit)


def test_the_ledger_adds_up_what_each_line_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a share, rounding forgiven; other lines are untouched; shares end at one."""
    ledger = Ledger()
    assert ledger.alpha == ALPHA
    third = SHARES["freshness"] * ALPHA / 3
    assert [ledger.take("freshness", third) for _ in range(3)] == [third] * 3
    assert ledger.take("independence", 1e-9) == 1e-9
    assert ledger.spent == {"freshness": pytest.approx(3 * third), "independence": 1e-9}
    assert ledger.total() == pytest.approx(3 * third + 1e-9)
    forgiven = Ledger()
    forgiven.take("freshness", SHARES["freshness"] * ALPHA * (1 + 1e-9))
    with pytest.raises(OverspentError, match=r"would spend 1e-08, required: at most 1e-08$"):
        Ledger().take("freshness", 3 * third * (1 + 2e-9))
    with pytest.raises(KeyError, match=r"'luck', required: one of \['block law', 'claimed law'"):
        ledger.take("luck", 0.0)
    monkeypatch.setitem(budget.SHARES, "rest", 1.0 - sum(SHARES.values()))
    Ledger()
    monkeypatch.setitem(budget.SHARES, "rest", 0.9)
    with pytest.raises(OverspentError, match=r"shares add up to 1\.8\d*, required: at most 1"):
        Ledger()


@pytest.mark.parametrize("alpha", [0.0, 1.0, -1e-6])
def test_an_alpha_that_is_no_probability_is_refused(alpha: float) -> None:
    """Zero would make every statistical verdict impossible, one makes it worthless."""
    with pytest.raises(ValueError, match=f"alpha is {alpha}, required: between 0 and 1, both"):
        Ledger(alpha)


def an_example() -> History:
    """A history with tensors in every place that can hold them."""
    setting = {"family": "dflash", "buckets": (4, 8), "head": torch.eye(3, dtype=torch.bfloat16)}
    inputs = {"x": {"anchor": torch.tensor([1, 2])}}
    event = {"verb": "read", "outputs": {"tokens": torch.tensor([[0, 1]])}, "inputs": "x"}
    return History(
        "bounds",
        "a case",
        setting,
        inputs,
        {"allowed": torch.tensor([True])},
        {"abilities": ["FLAGS"]},
        {"torch": "x"},
        events=[event],
    )


def test_a_history_survives_storage(tmp_path: Path) -> None:
    """Tensors come back bit for bit, and plain values as they were."""
    histories.save(an_example(), tmp_path / "one")
    stored = histories.load(tmp_path / "one.json")
    assert torch.equal(stored.setting["head"], torch.eye(3, dtype=torch.bfloat16))
    assert torch.equal(stored.of("read")[0]["outputs"]["tokens"], torch.tensor([[0, 1]]))
    assert stored.notes["allowed"].dtype == torch.bool
    assert archive.find(tmp_path) == [tmp_path / "one.json"]


def test_a_history_that_is_too_large_or_holds_objects_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit and the type are named."""
    monkeypatch.setattr(histories, "SIZE_LIMIT", 10)
    with pytest.raises(ValueError, match="required: at most 10"):
        histories.save(an_example(), tmp_path / "one")
    spoiled = an_example()
    spoiled.events.append({"verb": "read", "outputs": object()})
    with pytest.raises(TypeError, match="observed object"):
        histories.save(spoiled, tmp_path / "two")


def test_exit_codes_follow_the_worst_outcome() -> None:
    """1, then 4, then 3; 0 needs at least one that holds."""
    O = Outcome  # noqa: E741
    assert exit_code([O.HOLDS, O.NOT_APPLICABLE]) == 0
    assert exit_code([O.NOT_APPLICABLE]) == 3
    assert exit_code([]) == 3
    assert exit_code([O.HOLDS, O.UNKNOWN]) == 3
    assert exit_code([O.UNKNOWN, O.ERRORED]) == 4
    assert exit_code([O.ERRORED, O.VIOLATED, O.UNKNOWN]) == 1
    assert worst([O.HOLDS, O.NOT_APPLICABLE]) is O.HOLDS


def test_a_violation_is_a_runtime_error_by_name_and_type() -> None:
    """A foreign rule that reruns assertion failures must not match it."""
    with pytest.raises(ViolationRuntimeError, match="violated: too hot") as caught:
        Verdict(Outcome.VIOLATED, "too hot").raise_if_violated()
    assert not isinstance(caught.value, AssertionError)
    assert "RuntimeError" in type(caught.value).__name__
    holds("fine", 1, "anything").raise_if_violated()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nobody", "subject 'nobody' is not known"),
        ("tests.zoo.gate:nothing", "has no callable 'nothing'"),
        ("no_such_module_here:factory", "no module 'no_such_module_here' is importable"),
    ],
)
def test_a_wrong_subject_name_says_whose_mistake_it_is(name: str, words: str) -> None:
    """The text names what was looked for."""
    with pytest.raises(AdapterError, match=words):
        load_factory(name)


class Half:
    """A subject that lacks read."""

    def describe(self) -> dict[str, object]:
        """No ability."""
        return {"abilities": ()}

    def load(self, inputs: object) -> None:
        """Nothing."""

    def replay(self) -> None:
        """Nothing."""


class Boaster(Half):
    """A subject that claims an ability without its verb."""

    def describe(self) -> dict[str, object]:
        """One ability too many."""
        return {"abilities": ("GATES",)}

    def read(self) -> dict[str, object]:
        """Nothing."""
        return {}


def test_an_adapter_without_its_verbs_is_refused() -> None:
    """Missing verbs are named, claimed abilities included."""
    with pytest.raises(AdapterError, match="Half has no verb 'read'"):
        build(lambda _: cast("Subject", Half()), {})
    with pytest.raises(AdapterError, match="Boaster has no verb 'gate'"):
        build(lambda _: cast("Subject", Boaster()), {})


def test_a_factory_that_declines_is_not_applicable() -> None:
    """The reason is kept."""

    def declines(setting: Setting) -> Subject:
        raise NotImplementedError("only on Sundays")

    with pytest.raises(CannotServeError, match="only on Sundays"):
        build(declines, {})
