"""Markov heads and muP: written formulas, folded equals eager, refusals."""

from typing import Any

import pytest
import torch
from torch import Tensor

from impl.bias import MarkovHead, gated, recurrent, vanilla
from impl.logits import OutputHead, base_logits
from impl.subject import factory

from .settings import TALL, B, D, K, R, V, W, device_of, folded, inputs, setting, weights

all_kinds = pytest.mark.parametrize("kind", list(TALL))
both_layouts = pytest.mark.parametrize("from_anchor", [True, False])


def written(kind: str, held: dict[str, Tensor], e: Tensor, h: Tensor, s: Tensor) -> Any:
    """Bias and next state as the README writes them, in float64, nothing rounded."""
    if kind == "vanilla":
        return e @ held["w2"].T, s
    if kind == "gated":
        inside = torch.cat([h, e], -1) @ held["w3"].T + held["b3"]
        return (torch.sigmoid(inside) * e) @ held["w2"].T, s
    a, c, o = (torch.cat([s, e, h], -1) @ held["w3"].T + held["b3"]).split(R, -1)
    keep = torch.sigmoid(a)
    return torch.tanh(o) @ held["w2"].T, keep * s + (1 - keep) * torch.tanh(c)


@all_kinds
def test_a_head_follows_its_written_recursion(kind: str) -> None:
    """Four steps in float64: every bias from the state before its step, every state after it."""
    held = weights(kind, torch.float64)
    head = MarkovHead(kind=kind, **held)
    bias = {"vanilla": vanilla, "gated": gated, "rnn": recurrent}[kind]
    draw = torch.Generator().manual_seed(1)
    state = expected_state = torch.zeros(B, R, dtype=torch.float64)
    for _ in range(4):
        hidden = torch.randn(B, D, generator=draw, dtype=torch.float64)
        previous = torch.randint(V, (B,), generator=draw)
        found, after = bias(head, previous, hidden, state)
        expected, expected_state = written(kind, held, held["w1"][previous], hidden, expected_state)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(after, expected_state)
        state = after


def test_the_state_is_read_and_not_written() -> None:
    """The old state keeps its bits, and has a say in the bias."""
    head = MarkovHead(kind="rnn", **weights("rnn", torch.float32))
    previous, hidden = torch.tensor([1, 2]), torch.ones(2, D)
    state = torch.full((2, R), 0.5)
    bias, after = recurrent(head, previous, hidden, state)
    assert torch.equal(state, torch.full((2, R), 0.5))
    assert not torch.equal(after, state)
    assert not torch.equal(bias, recurrent(head, previous, hidden, after)[0])


def test_each_value_has_the_dtype_that_the_contract_gives_it() -> None:
    """Hidden in bfloat16 over float32 factors: state in bfloat16, bias in float32."""
    held = weights("rnn", torch.float32)
    head = MarkovHead(kind="rnn", **held)
    previous, hidden = torch.tensor([1, 2]), torch.full((2, D), 0.3).bfloat16()
    state = torch.full((2, R), 0.7).bfloat16()
    bias, after = recurrent(head, previous, hidden, state)
    assert (bias.dtype, after.dtype) == (torch.float32, torch.bfloat16)
    joined = torch.cat([state, held["w1"][previous].bfloat16(), hidden], -1)
    affine = torch.nn.functional.linear(joined, held["w3"].bfloat16(), held["b3"].bfloat16())
    assert torch.equal(bias, torch.tanh(affine[:, 2 * R :]).float() @ held["w2"].T)


def test_the_gate_is_rounded_to_the_dtype_of_the_embedding() -> None:
    """Hidden in float32 over bfloat16 embeddings: the gate loses its low bits first."""
    held = weights("gated", torch.float32)
    held["w1"] = held["w1"].bfloat16()
    previous, hidden = torch.arange(V), torch.randn(V, D, generator=torch.Generator())
    token = held["w1"][previous]
    joined = torch.cat([hidden, token.float()], -1)
    gate = torch.sigmoid(torch.nn.functional.linear(joined, held["w3"], held["b3"]))
    found, _ = gated(MarkovHead(kind="gated", **held), previous, hidden, None)
    assert torch.equal(found, (gate.bfloat16() * token).float() @ held["w2"].T)
    assert not torch.equal(found, (gate * token) @ held["w2"].T)


@pytest.mark.parametrize("bias", [gated, recurrent])
def test_a_head_that_needs_hidden_states_says_so(bias: Any) -> None:
    """No hidden states: an error, not a vanilla bias."""
    kind = "gated" if bias is gated else "rnn"
    head = MarkovHead(kind=kind, **weights(kind, torch.float32))
    with pytest.raises(ValueError, match=f"^a {kind} Markov head was called without hidden states"):
        bias(head, torch.tensor([1]), None, torch.zeros(1, R))


@pytest.mark.parametrize(
    ("kind", "sizes", "message"),
    [
        ("lstm", {}, r"^the Markov head is 'lstm'; it should be one of \['vanilla', 'gated', "),
        ("vanilla", {"w1": (V, 0), "w2": (V, 0)}, "^the Markov rank is 0; it should be at least 1"),
        ("vanilla", {"w3": (R, D)}, "a vanilla head has neither"),
        ("gated", {}, r"shapes \[None, None\]; a gated head of rank 4 needs \[4, columns\]"),
        ("gated", {"w3": (3 * R, D), "b3": (R,)}, r"needs \[4, columns\] and \[4\]"),
        ("rnn", {"w3": (3 * R, D), "b3": (R,)}, r"needs \[12, columns\] and \[12\]"),
    ],
)
def test_a_head_that_does_not_fit_itself_is_refused(kind: str, sizes: Any, message: str) -> None:
    """Observed and required, before anything is drafted."""
    sizes = {"w1": (V, R), "w2": (V, R), **sizes}
    held = {name: torch.zeros(size) for name, size in sizes.items()}
    with pytest.raises(ValueError, match=message):
        MarkovHead(kind=kind, **held)


@pytest.mark.parametrize(("kind", "needs"), [("gated", 12), ("rnn", 16)])
def test_an_affine_map_of_another_width_is_refused_at_build(kind: str, needs: int) -> None:
    """The width of the hidden states is known when the block is put together."""
    w3 = torch.zeros(TALL[kind], 5).bfloat16()
    with pytest.raises(ValueError, match=f"^w3 has 5 columns; .* needs {needs}$"):
        factory(setting("cpu", kind, w3=w3))


def test_an_unknown_head_is_a_setting_that_cannot_be_served() -> None:
    """The factory gives the reason."""
    with pytest.raises(NotImplementedError, match=r"^Markov head 'lstm'; there are "):
        factory({**setting("cpu"), "markov": "lstm"})


@all_kinds
@pytest.mark.parametrize("dialect", ["race", "counter"])
@both_layouts
def test_folded_equals_eager_from_one_noise_state(
    engine_name: str, kind: str, dialect: str, *, from_anchor: bool
) -> None:
    """Three blocks of a mixed batch with a pad row, bit for bit."""
    made = setting(device_of(engine_name), kind, dialect, sample_from_anchor=from_anchor)
    one, two = factory(made), factory(made)
    for seed in range(3):
        given = inputs(made, seed)
        found, expected = folded(one, given), two.eager(given)
        assert found.keys() == expected.keys() >= {"tokens", "step_logits", "flags"}
        for name, value in found.items():
            assert torch.equal(value, expected[name]), name


@all_kinds
@both_layouts
def test_a_block_follows_the_written_recursion(
    engine_name: str, kind: str, *, from_anchor: bool
) -> None:
    """Kept step logits of a replay, in float32, are those of the formulas along its tokens."""
    made = setting(device_of(engine_name), kind, sample_from_anchor=from_anchor)
    made = {
        name: value.float() if torch.is_tensor(value) else value for name, value in made.items()
    }
    subject = factory(made)
    held = {name: made[name].double().cpu() for name in weights(kind, torch.float32)}
    for seed in range(2):
        given = inputs(made, seed)
        found = folded(subject, given)
        hidden = given["hidden"][:, -K:].double().cpu()
        base = hidden @ made["head"][:V].double().cpu().T
        previous, state = given["anchor"].cpu(), torch.zeros(B, R, dtype=torch.float64)
        for k in range(K):
            bias, state = written(kind, held, held["w1"][previous], hidden[:, k], state)
            kept = found["step_logits"][:, k].cpu()
            torch.testing.assert_close(kept, (base[:, k] + bias).float())
            previous = found["tokens"][:, k].cpu()


def test_the_state_of_an_earlier_block_does_not_reach_the_next(engine_name: str) -> None:
    """Whatever the state buffer holds, the recording zeroes it; it has the dtype of hidden."""
    made = setting(device_of(engine_name))
    blocks = []
    for poison in (0.0, float("nan")):
        subject = factory(made)
        state = subject.buffers()["markov_state"]
        assert (state["role"], state["tensor"].dtype) == ("scratch", made["head"].dtype)
        assert tuple(state["tensor"].shape) == (4, R)
        state["tensor"].fill_(poison)
        blocks.append(folded(subject, inputs(made)))
    assert bool(state["tensor"][:B].isfinite().all())
    assert torch.equal(blocks[0]["step_logits"], blocks[1]["step_logits"])


@pytest.mark.parametrize("name", ["w3", "b3"])
def test_a_moved_affine_map_is_refused_by_name(engine_name: str, name: str) -> None:
    """A replay would read the old memory."""
    made = setting(device_of(engine_name))
    subject = factory(made)
    subject.load(inputs(made))
    made[name].data = made[name].data.clone()
    with pytest.raises(RuntimeError, match=f"^recapture needed: markov.{name} "):
        subject.replay()


@both_layouts
def test_mup_divides_what_the_head_multiplies_and_nothing_else(
    engine_name: str, *, from_anchor: bool
) -> None:
    """A multiplier of 4 equals a head of a quarter; the gate sees the undivided hidden states."""
    plain = setting(device_of(engine_name), "gated", sample_from_anchor=from_anchor)
    other = {**plain, "head": plain["head"] / 4}
    given = inputs(plain)
    expected = folded(factory(other), given)
    found = folded(factory({**plain, "mup": 4.0}), given)
    assert torch.equal(found["step_logits"], expected["step_logits"])
    assert not torch.equal(found["step_logits"], folded(factory(plain), given)["step_logits"])


def test_mup_divides_a_dflash_block_once(engine_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base logits of a replay are the product over the multiplier, where they are stored."""
    monkeypatch.setenv("DRAFTPROOF_STAGES", "torch")
    made = setting(device_of(engine_name), family="dflash", dialect="none", mup=8.0)
    subject = factory(made)
    given = inputs(made)
    folded(subject, given)
    head = OutputHead(made["head"] / 8, V)
    expected = torch.empty(B, K, V, dtype=torch.bfloat16, device=made["device"])
    base_logits(head, given["hidden"], expected)
    assert torch.equal(subject.buffers()["base_logits"]["tensor"][:B], expected)


@pytest.mark.parametrize("mup", [0.0, -1.0, float("inf"), float("nan")])
def test_a_mup_that_divides_nothing_sensible_is_refused(mup: float) -> None:
    """Finite and positive."""
    with pytest.raises(ValueError, match=f"^mup is {mup}; it should be finite and > 0"):
        OutputHead(torch.zeros(W, D), V, mup=mup)
