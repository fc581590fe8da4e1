"""Confidence: the right tokens and hidden states, calibration, NaN flags, refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from impl.confidence import ConfidenceHead
from impl.subject import factory

from .settings import B, D, K, R, device_of, folded, inputs, setting

NAMES = ("confidence", "confidence_raw", "confidence_flags")
STS = (0.5, 1.0, 2.0, 4.0)
wide_or_not = pytest.mark.parametrize("wide", [True, False])


def rated(engine_name: str, *, wide: bool, **more: Any) -> Any:
    """A setting with a confidence head, over [h ; e] or over h alone."""
    draw = torch.Generator().manual_seed(21)
    head = {
        "confidence_weight": torch.randn(1, D + R * wide, generator=draw),
        "confidence_bias": torch.randn(1, generator=draw),
        "confidence_sts": torch.tensor(STS),
    }
    return setting(device_of(engine_name), **{**head, **more})


def expected_raw(made: Any, given: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """The formula in float64, from the anchor and the drafts before each one."""
    before = torch.cat([given["anchor"][:, None], tokens[:, :-1]], 1).cpu()
    features = given["hidden"][:, -K:].cpu().double()
    if made["confidence_weight"].shape[1] > D:
        features = torch.cat([features, made["w1"].cpu().double()[before]], -1)
    weight, bias = made["confidence_weight"].cpu().double(), made["confidence_bias"].cpu().double()
    return (features @ weight.T).squeeze(-1) + bias


@wide_or_not
@pytest.mark.parametrize("from_anchor", [True, False])
@pytest.mark.parametrize("kind", ["vanilla", "rnn"])
def test_a_block_is_rated_from_its_own_tokens(
    engine_name: str, kind: str, *, wide: bool, from_anchor: bool
) -> None:
    """Raw value, scaled by its own step, squashed; undivided hidden states; three replays."""
    more = {"kind": kind, "sample_from_anchor": from_anchor, "mup": 4.0}
    made = rated(engine_name, wide=wide, **more)
    subject = factory(made)
    for seed in range(3):
        given = inputs(made, seed)
        found = folded(subject, given)
        raw = expected_raw(made, given, found["tokens"])
        torch.testing.assert_close(found["confidence_raw"].cpu(), raw.float())
        squashed = torch.sigmoid(raw / torch.tensor(STS).double())
        torch.testing.assert_close(found["confidence"].cpu(), squashed.float())
        assert not bool(found["confidence_flags"].any())


@wide_or_not
@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_folded_and_eager_rate_alike(engine_name: str, dialect: str, *, wide: bool) -> None:
    """Bit for bit from one noise state, in the dtypes of the contract."""
    made = rated(engine_name, wide=wide, dialect=dialect)
    one, two = factory(made), factory(made)
    for seed in range(2):
        given = inputs(made, seed)
        found, expected = folded(one, given), two.eager(given)
        for name, dtype in zip(NAMES, (torch.float32, torch.float32, torch.uint8), strict=True):
            assert (found[name].dtype, tuple(found[name].shape)) == (dtype, (B, K))
            assert torch.equal(found[name], expected[name]), name


def test_dflash_is_rated_by_its_hidden_states(engine_name: str) -> None:
    """There is no embedding to look at."""
    made = rated(engine_name, wide=False, family="dflash", dialect="none")
    given = inputs(made)
    found = folded(factory(made), given)
    raw = expected_raw(made, given, found["tokens"])
    torch.testing.assert_close(found["confidence_raw"].cpu(), raw.float())


def test_a_greedy_draft_is_rated_too(engine_name: str) -> None:
    """The head does not ask how a token was picked."""
    made = rated(engine_name, wide=True, greedy_draft=True)
    given = inputs(made)
    found = folded(factory(made), given)
    raw = expected_raw(made, given, found["tokens"])
    torch.testing.assert_close(found["confidence_raw"].cpu(), raw.float())


def test_nan_is_flagged_from_inside_a_replay(engine_name: str) -> None:
    """One hidden value of one live row: its step is flagged, and is sound at the next replay."""
    made = rated(engine_name, wide=False, family="dflash", dialect="none")
    subject = factory(made)
    given = inputs(made)
    spoiled = {**given, "hidden": given["hidden"].clone()}
    spoiled["hidden"][1, 2, 0] = float("nan")
    flags = torch.zeros(B, K, dtype=torch.uint8)
    for batch, flag in ((given, 0), (spoiled, 1), (given, 0)):
        found = folded(subject, batch)
        flags[1, 2] = flag
        assert torch.equal(found["confidence_flags"].cpu(), flags)
        assert torch.equal(found["confidence"].isnan().cpu(), flags.bool())


def test_a_table_that_is_edited_in_place_is_used(engine_name: str) -> None:
    """The next replay scales by the new temperatures, each step by its own."""
    made = rated(engine_name, wide=False)
    subject = factory(made)
    first = folded(subject, inputs(made))
    made["confidence_sts"][3] = 0.25
    second = folded(subject, inputs(made))
    raw = second["confidence_raw"]
    torch.testing.assert_close(second["confidence"][:, 3], torch.sigmoid(raw[:, 3] * 4))
    assert torch.equal(first["confidence"][:, :3], second["confidence"][:, :3])
    assert not torch.equal(first["confidence"][:, 3], second["confidence"][:, 3])


@pytest.mark.parametrize("name", ["weight", "bias", "sts"])
@pytest.mark.parametrize("family", ["dspark", "dflash"])
def test_a_moved_tensor_is_refused_by_name(engine_name: str, name: str, family: str) -> None:
    """A replay would read the old memory."""
    dialect = "counter" if family == "dspark" else "none"
    made = rated(engine_name, wide=False, family=family, dialect=dialect)
    subject = factory(made)
    subject.load(inputs(made))
    held = made[f"confidence_{name}"]
    held.data = held.data.clone()
    with pytest.raises(RuntimeError, match=f"^recapture needed: confidence.{name} "):
        subject.replay()


def test_the_buffers_are_outputs_and_exist_only_when_asked_for(engine_name: str) -> None:
    """A setting without a head has neither buffers nor fields; the ability stays claimed."""
    made = rated(engine_name, wide=True)
    subject, plain = factory(made), factory(setting(device_of(engine_name)))
    held = subject.buffers()
    assert {held[name]["role"] for name in NAMES} == {"output"}
    assert {tuple(held[name]["tensor"].shape) for name in NAMES} == {(4, K)}
    assert "CONFIDENCE" in subject.describe()["abilities"]
    assert "CONFIDENCE" in plain.describe()["abilities"]
    assert not set(NAMES) & plain.buffers().keys()
    assert not set(NAMES) & folded(plain, inputs(made)).keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sts": torch.tensor([1.0, 0.0])}, r"^sts of step 1 is 0.0; it should be > 0"),
        ({"sts": torch.tensor([-1.0, 1.0])}, r"^sts of step 0 is -1.0; it should be > 0"),
        ({"sts": torch.tensor([1.0, float("nan")])}, r"^sts of step 1 is nan; it should be > 0"),
        ({"weight": torch.zeros(1, D).bfloat16()}, r"bfloat16.*should be float32"),
        ({"weight": torch.zeros(2, D)}, r"shapes \[\(2, 8\).*\[1, features\], \[1\], \[K\]"),
        ({"weight": torch.zeros(D)}, r"shapes \[\(8,\).*\[1, features\], \[1\], \[K\]"),
        ({"bias": torch.zeros(2)}, r"\(2,\), \(2,\)\]; they should be"),
        ({"sts": torch.ones(1, 2)}, r"\(1, 2\)\]; they should be"),
    ],
)
def test_a_head_that_is_none_is_refused(changes: dict[str, Tensor], message: str) -> None:
    """Observed and required."""
    held = {"weight": torch.zeros(1, D), "bias": torch.zeros(1), "sts": torch.ones(2)}
    with pytest.raises(ValueError, match=message):
        ConfidenceHead(**{**held, **changes})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"confidence_sts": torch.ones(K + 1)}, r"^sts has 5 entries; .* one a draft, 4"),
        ({"confidence_weight": torch.zeros(1, D + 1)}, r"has 9 columns; .* allow \[8, 12\]"),
        (
            {"confidence_weight": torch.zeros(1, D + R), "family": "dflash", "dialect": "none"},
            r"has 12 columns; hidden width 8 and Markov rank 0 allow \[8\]",
        ),
    ],
)
def test_a_head_that_does_not_fit_the_block_is_refused(more: Any, message: str) -> None:
    """When the block is put together, not at a replay."""
    with pytest.raises(ValueError, match=message):
        factory(rated("emulator", wide=False, **more))
