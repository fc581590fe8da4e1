"""What only the emulator shows: poison, lost memory, its words, and where it is blind."""

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed
from torch.nn import functional

from impl.graph import Hazard, Recording, engine_for

ENGINE = engine_for("cpu")
calls: list[int] = []


@torch.library.custom_op("draftproof_tests::double", mutates_args={"out"})
def double(x: torch.Tensor, out: torch.Tensor) -> None:
    """Write 2 x into `out`, as a kernel launched by its own code would."""
    calls.append(x.data_ptr())
    out.copy_(x * 2)


def record(body: Callable[[], Any], *generators: torch.Generator) -> Recording:
    """Record in a pool of its own."""
    return ENGINE.record(body, pool=ENGINE.pool(), generators=generators)


def _free(names: SimpleNamespace) -> None:
    del names.x


def _move(names: SimpleNamespace) -> None:
    names.x.data = torch.ones(2)


def _resize(names: SimpleNamespace) -> None:
    names.x.resize_(4096)


@pytest.mark.parametrize(
    ("change", "word"), [(_free, "freed"), (_move, "freed"), (_resize, "resized")]
)
def test_g6_lost_memory_is_named(change: Callable[[SimpleNamespace], None], word: str) -> None:
    """A replay over freed, moved or resized memory names the first op that used it."""
    names = SimpleNamespace(x=torch.ones(2))
    recording = record(lambda: (names.x.exp(), names.x * 2))
    recording.replay()
    change(names)
    with pytest.raises(Hazard, match=rf"G6: aten\.exp\.default.*{word}") as caught:
        recording.replay()
    assert (caught.value.rule, recording.replays) == ("G6", 1)


@pytest.mark.parametrize(
    ("dtype", "poisoned"),
    [
        (torch.float32, lambda t: t.isnan().all()),
        (torch.bfloat16, lambda t: t.isnan().all()),
        (torch.int64, lambda t: (t == torch.iinfo(torch.int64).min).all()),
        (torch.bool, lambda t: t.all()),
    ],
)
def test_g8_results_are_poison_before_replay(
    dtype: torch.dtype, poisoned: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Until the first replay a result holds what no sound run computes."""
    x = torch.zeros(3, dtype=dtype)
    recording = record(x.clone)
    assert poisoned(recording.result)
    recording.replay()
    assert torch.equal(recording.result, x)


def test_g10_a_replay_poisons_other_results_of_its_pool() -> None:
    """A replay ends the life of results, and of unfilled memory, of the same pool only."""
    x, pool = torch.ones(2), ENGINE.pool()
    one = ENGINE.record(lambda: x + 1, pool=pool)
    two = ENGINE.record(lambda: torch.empty(2), pool=pool)
    other = record(lambda: x + 3)
    for recording in (one, other, two):
        recording.replay()
    assert one.result.isnan().all()
    assert other.result.tolist() == [4.0, 4.0]
    two.result.fill_(1.0)
    two.replay()
    assert two.result.isnan().all()


def test_captured_code_does_not_execute() -> None:
    """The body of a custom op runs at replay only, as one step; so the emulator is active."""
    calls.clear()
    x, out = torch.ones(2), torch.zeros(2)
    recording = record(lambda: double(x, out))
    assert (calls, out.tolist()) == ([], [0.0, 0.0])
    assert recording.kernels == ("draftproof_tests.double.default",)
    recording.replay()
    assert (calls, out.tolist()) == ([x.data_ptr()], [2.0, 2.0])


def test_kernels_name_the_recorded_ops_in_order() -> None:
    """Views and allocations are no device work; everything else is named."""
    x = torch.ones(2, 3)
    recording = record(lambda: torch.empty(2).copy_(x.T[0].exp()))
    assert recording.kernels == ("aten.exp.default", "aten.copy_.default")


X = torch.tensor([1.0, 2.0, 3.0, 4.0])
SOURCE = torch.zeros(4).numpy()
BYTES = bytearray(16)
REFUSED: dict[str, tuple[str, str, Callable[[], Any]]] = {
    "numpy": ("G4", "Tensor.numpy", lambda: X.numpy().size),
    "float": ("G4", "Tensor.__float__", lambda: float(X[0])),
    "print": ("G4", "Tensor.__repr__", lambda: str(X)),
    "to host": ("G4", "Tensor.to", lambda: X.to("cpu")),
    "as_tensor": ("G4", "torch.as_tensor", lambda: torch.as_tensor([1.0])),
    "new_tensor": ("G4", "Tensor.new_tensor", lambda: X.new_tensor([1.0])),
    "from_numpy": ("G4", "aten.", lambda: X.copy_(torch.from_numpy(SOURCE))),
    "frombuffer": ("G4", "aten.copy_", lambda: X.copy_(torch.frombuffer(BYTES, dtype=X.dtype))),
    "equal": ("G4", "aten.equal", lambda: X.equal(X)),
    "mask write": ("G5", "aten.index_put_", lambda: X.__setitem__(X > 1, 0.0)),
    "squeeze_": ("G6", "aten.squeeze_", lambda: X.squeeze_().shape),
    "resize_": ("G6", "aten.resize_", lambda: X.resize_(2)),
    "set_": ("G6", "aten.set_", lambda: X.set_(X.untyped_storage())),
    "data": ("G6", "Tensor.data", lambda: setattr(X, "data", X + 1)),
    "out": ("G6", "aten.exp.out", lambda: torch.exp(X, out=torch.empty(0))),
    "dropout": ("G7", "aten.bernoulli_", lambda: functional.dropout(X)),
    "address": ("G2", "Tensor.data_ptr", lambda: hex(X.data_ptr())),
    "device": ("G4", "aten.empty", lambda: torch.empty(1, device="meta")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_hazard_says_what_where_and_what_to_do(name: str) -> None:
    """The message names rule, op and the caller's line, and ends with a remedy."""
    rule, op, body = REFUSED[name]
    line = f"{body.__code__.co_filename}:{body.__code__.co_firstlineno}"
    with pytest.raises(Hazard) as caught:
        record(body)
    hazard = caught.value
    assert (hazard.rule, hazard.where) == (rule, line)
    assert hazard.op.startswith(op)
    assert str(hazard).startswith(f"{rule}: {hazard.op}, called at {line}, {hazard.what}; required")
    assert str(hazard).endswith(f"Instead: {hazard.instead}.")


def test_a_whole_message() -> None:
    """One message in full, as a stranger reads it."""
    x, lines = torch.ones(1), Path(__file__)
    with pytest.raises(Hazard) as caught:
        record(x.item)
    line = caught.value.where.removeprefix(f"{lines}:")
    assert str(caught.value) == (
        f"G4: Tensor.item, called at {lines}:{line}, reads a tensor's value on the host; required"
        " of a recording: no host read and no copy of fresh host data. Instead: keep the value in"
        " a tensor and choose with torch.where."
    )


def _on_a_thread(x: torch.Tensor) -> None:
    worker = threading.Thread(target=x.add_, args=(1.0,))
    worker.start()
    worker.join()


def _to_dlpack(x: torch.Tensor) -> None:
    torch.to_dlpack(x)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "unseen",
    [_on_a_thread, _to_dlpack, lambda x: x.to(torch.device("cpu"))],
    ids=["thread", "dlpack", "no copy"],
)
def test_blind_spots_are_where_the_docstring_says(unseen: Callable[[torch.Tensor], Any]) -> None:
    """These pass unnoticed; a torch that starts to show them makes the docstring wrong."""
    x = torch.ones(1)
    assert record(lambda: unseen(x)).kernels == ()


@pytest.mark.parametrize("verb", ["record", "replay"])
def test_recordings_do_not_nest(verb: str) -> None:
    """Neither a capture nor a replay may happen inside a capture."""
    inner = record(lambda: X + 1)
    body = {"record": lambda: record(lambda: X + 1), "replay": inner.replay}[verb]
    with pytest.raises(RuntimeError, match=f"{verb} was called while recording"):
        record(body)
    assert inner.replays == 0


def test_parameters_are_recorded_without_gradients() -> None:
    """Weights that ask for gradients are read; what is made from them asks for none."""
    weight = torch.nn.Parameter(torch.ones(2, 2))
    recording = record(lambda: weight @ weight)
    recording.replay()
    assert recording.result.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert not recording.result.requires_grad


def test_an_error_in_a_replay_says_where_its_op_was_recorded() -> None:
    """An index that is out of range fails at replay, with a note; nothing half-made survives."""
    x, index = torch.ones(3), torch.tensor([2])
    recording = record(lambda: x.exp()[index])
    recording.replay()
    index.fill_(7)
    with pytest.raises(IndexError) as caught:
        recording.replay()
    assert f"aten.index.Tensor, recorded at {__file__}" in caught.value.__notes__[0]
    assert (recording.result.isnan().all(), recording.replays) == (True, 1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_compound_ops_and_attention_replay_bit_for_bit(mode: Callable[[], Any]) -> None:
    """Ops with several results, type changes and attention equal eager, in both torch modes."""
    x, ids = torch.randn(1, 4, 4, generator=torch.Generator().manual_seed(2)), torch.arange(4)

    def body() -> tuple[torch.Tensor, ...]:
        half = x.bfloat16()
        heads = half[None]
        attended = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)[0]
        joined = torch.cat([functional.layer_norm(x, (4,)), attended.float()], dim=1)
        values, order = joined.topk(2)
        low, high = joined.sort(stable=True)
        picked = functional.embedding(ids, joined[0]).sum(dtype=torch.float64)
        scaled = torch.where(half > 0, half, 0.0).mul(10).to(torch.int32)
        return values, order, low, high, picked, scaled, functional.linear(joined, x[0]).cumsum(-1)

    with mode():
        recording = record(body)
        x.mul_(-3.0)
        recording.replay()
        for got, expected in zip(recording.result, body(), strict=True):
            assert got.dtype == expected.dtype
            assert torch.equal(got, expected)


def test_a_collective_is_one_step_and_runs_again(tmp_path: Path) -> None:
    """A gather leaves its target alone at capture, and fills it at each replay."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/rank", rank=0, world_size=1
    )
    try:
        x, out = torch.ones(2), [torch.zeros(2)]
        recording = record(lambda: distributed.all_gather(out, x * 2))
        assert out[0].tolist() == [0.0, 0.0]
        x.fill_(4.0)
        recording.replay()
        assert out[0].tolist() == [8.0, 8.0]
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("device", "name", "words"),
    [
        ("cpu", "jax", "engine 'jax' is unknown; required: one of auto, emulator, cuda"),
        ("cpu", "cuda", "engine 'cuda' cannot record work on device cpu; required: 'emulator'"),
        ("cuda", "emulator", "engine 'emulator' cannot record work on device cuda; required"),
        ("meta", "auto", "no engine records work on device meta; required: a cpu or a cuda"),
    ],
)
def test_engine_for_refuses_in_words(device: str, name: str, words: str) -> None:
    """An engine that cannot serve a device is a ValueError that names what is required."""
    with pytest.raises(ValueError, match=words):
        engine_for(device, name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is visible")
def test_engine_for_needs_a_gpu() -> None:
    """A cuda device without a GPU is refused when the engine is asked for."""
    with pytest.raises(ValueError, match="torch finds no usable GPU; required: one GPU"):
        engine_for("cuda")


def test_a_pool_belongs_to_its_engine() -> None:
    """A pool of another engine is refused."""
    pool = ENGINE.pool()
    pool.engine = "cuda"
    with pytest.raises(ValueError, match="made by engine 'cuda'; required: a pool of 'emulator'"):
        ENGINE.record(lambda: None, pool=pool)
