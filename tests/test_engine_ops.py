"""Every engine refuses and allows the same ops, in the same words, and replays like eager."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.graph import Hazard
from impl.graph.cuda import _kind

from .engines import Bench

Parts = SimpleNamespace
X = (1.0, 2.0, 0.0, 3.0)
OPS: dict[str, tuple[str, Callable[[Parts], Any]]] = {
    "item": ("G4", lambda p: p.x.sum().item()),
    "bool": ("G4", lambda p: bool(p.x.sum())),
    "print": ("G4", lambda p: f"{p.x}"),
    "tolist": ("G4", lambda p: p.x.tolist()),
    "cpu": ("G4", lambda p: p.x.cpu()),
    "boolean index": ("G5", lambda p: p.x[p.mask]),
    "nonzero": ("G5", lambda p: p.x.nonzero()),
    "masked_select": ("G5", lambda p: p.x.masked_select(p.mask)),
    "unique": ("G5", lambda p: p.x.unique()),
    "torch.tensor": ("G4", lambda p: torch.tensor([1.0], device=p.device)),
    "pageable copy": ("G4", lambda p: p.out.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))),
    "scalar copy": ("G4", lambda p: p.x.__setitem__(0, 3.0)),
    "scalar by index": ("G4", lambda p: p.x.__setitem__(p.ids, 3.0)),
    "list index": ("G4", lambda p: p.x[[0, 1]]),
    "bincount": ("G5", lambda p: p.ids.bincount()),
    "unregistered": ("G7", lambda p: p.out.uniform_(generator=p.stranger)),
    "pinned copy": ("allowed", lambda p: p.out.copy_(p.host, non_blocking=True)),
    "multinomial": ("allowed", lambda p: (p.x + 1).multinomial(2, generator=p.generator)),
    "masked_fill": ("allowed", lambda p: p.x.masked_fill(p.mask, -1.0)),
    "scatter_add": ("allowed", lambda p: p.x.scatter_add(0, p.ids, p.x)),
    "histc": ("allowed", lambda p: p.x.histc(4, 0.0, 8.0)),
    "index": ("allowed", lambda p: p.x[p.ids]),
    "where": ("allowed", lambda p: torch.where(p.mask, p.x, 0.0)),
}


def _parts(bench: Bench) -> Parts:
    x = bench.tensor(*X)
    return Parts(
        device=bench.device,
        x=x,
        out=torch.zeros_like(x),
        mask=x > 1,
        ids=bench.tensor(0, 2, 2, 1, dtype=torch.int64),
        host=bench.host(*X),
        generator=bench.generator(7),
        stranger=bench.generator(8),
    )


READ, FRESH = "reads a tensor's value on the host", "copies fresh host data"
SIZED = "makes a shape that depends on values"
READING = {"item", "bool", "print", "tolist", "cpu"}


def _words(name: str) -> str:
    """What every engine says of a refused op."""
    by_rule = {"G5": SIZED, "G7": "draws from a generator that is not registered"}
    return by_rule.get(OPS[name][0], READ if name in READING else FRESH)


REFUSED = [name for name, row in OPS.items() if row[0] != "allowed"]
# How the caller wrote it, where the dispatcher has another name for it.
SPOKEN = {
    "item": "Tensor.item",
    "bool": "Tensor.__bool__",
    "print": "Tensor.__format__",
    "tolist": "Tensor.tolist",
    "cpu": "Tensor.cpu",
    "torch.tensor": "torch.tensor",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_ops_raise_and_leave_the_engine_usable(engine_name: str, name: str) -> None:
    """Each refused op raises the Hazard of its rule, and the next capture works."""
    rule, op = OPS[name]
    bench = Bench(engine_name)
    parts = _parts(bench)
    with pytest.raises(Hazard) as caught:
        bench.record(lambda: op(parts), parts.generator)
    assert (caught.value.rule, caught.value.what) == (rule, _words(name))
    assert caught.value.op.startswith(SPOKEN.get(name, "aten." if rule != "G4" else ""))
    assert caught.value.where == f"{__file__}:{op.__code__.co_firstlineno}"
    for free in (parts.generator, None):
        assert torch.rand(2, device=bench.device, generator=free).isfinite().all()
    recording = Bench(engine_name).record(lambda: parts.x + 1)
    recording.replay()
    assert recording.result.tolist() == [2.0, 3.0, 1.0, 4.0]


@pytest.mark.parametrize("name", [name for name, row in OPS.items() if row[0] == "allowed"])
def test_allowed_ops_follow_their_inputs(engine_name: str, name: str) -> None:
    """Each allowed op gives the eager value for inputs that changed after capture."""
    bench = Bench(engine_name)
    op, parts = OPS[name][1], _parts(bench)
    recording = bench.record(lambda: op(parts), parts.generator)
    for seed in (1, 2):
        draw = torch.randint(0, 8, (4,), generator=torch.Generator().manual_seed(seed))
        parts.x.copy_(draw)
        parts.host.copy_(draw)
        parts.mask.copy_(parts.x > 3)
        parts.ids.copy_(parts.ids.flip(0))
        state = parts.generator.get_state()
        recording.replay()
        got = recording.result.clone()
        eager = Parts(**{**vars(parts), "generator": bench.generator(0).set_state(state)})
        assert torch.equal(got, op(eager))


# What the driver of a GPU says, as measured on torch 2.11.
DRIVER = {
    "read": "operation failed due to a previous error during capture",
    "copy": "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU "
    "tensor is pinned",
    "draw": "Attempt to increase offset for a CUDA generator not in capture mode",
}


@pytest.mark.parametrize(
    ("text", "tags", "name"),
    [
        ("read", {torch.Tag.data_dependent_output}, "item"),
        ("read", {torch.Tag.dynamic_output_shape}, "nonzero"),
        ("copy", {torch.Tag.dynamic_output_shape}, "bincount"),
        ("copy", set(), "torch.tensor"),
        ("copy", set(), "pageable copy"),
        ("draw", {torch.Tag.nondeterministic_seeded}, "unregistered"),
    ],
)
def test_the_driver_is_quoted_in_the_words_of_the_emulator(
    text: str, tags: set[torch.Tag], name: str
) -> None:
    """Rule, what was seen and what to do instead, word for word."""
    parts = _parts(bench := Bench("emulator"))
    with pytest.raises(Hazard) as caught:
        bench.record(lambda: OPS[name][1](parts), parts.generator)
    kind = _kind(f"CUDA error: {DRIVER[text]}", tags)
    assert kind == (caught.value.rule, caught.value.what, caught.value.instead)
    assert _kind("CUDA error: out of memory", tags) is None


@pytest.mark.gpu
def test_a_wait_of_the_host_is_no_read() -> None:
    """A call that only waits is refused under the same rule, in words of its own."""
    with pytest.raises(Hazard) as caught:
        Bench("cuda").record(torch.cuda.synchronize)
    assert (caught.value.rule, caught.value.what) == ("G4", "waits for the device")


SIDE = 3
NAMES = ("add", "scale", "matmul", "where", "argmax", "gather", "out", "store", "column", "load")
PROGRAMS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.integers(0, 99), st.integers(0, 99)),
    min_size=1,
    max_size=12,
)


def _step(name: str, a: torch.Tensor, b: torch.Tensor, static: torch.Tensor) -> torch.Tensor:
    """Apply one op to [SIDE, SIDE] whole numbers in 0..6, so that every engine is exact."""
    if name == "store":
        return static.copy_(a)
    if name == "column":
        static[:, 1].add_(b[0])
        return static.remainder_(7.0)
    if name == "out":
        return torch.add(a, b, out=torch.empty_like(a)) % 7
    made = {
        "add": lambda: a + b,
        "scale": lambda: 3 * a + 1,
        "matmul": lambda: a @ b.T,
        "where": lambda: torch.where(a > b, a, 2.0),
        "argmax": lambda: a.argmax(-1, keepdim=True) + b,
        "gather": lambda: a.gather(1, b.long() % SIDE),
        "load": lambda: static + b,
    }[name]()
    return made % 7


def _run(
    program: list[tuple[str, int, int]], inputs: torch.Tensor, static: torch.Tensor
) -> torch.Tensor:
    values = list(inputs)
    for name, a, b in program:
        values.append(_step(name, values[a % len(values)], values[b % len(values)], static))
    return torch.stack(values)


@given(program=PROGRAMS, seed=st.integers(0, 99))
def test_a_program_replays_like_eager(
    engine_name: str, program: list[tuple[str, int, int]], seed: int
) -> None:
    """A random program, recorded once, equals its eager run after its inputs changed, twice."""
    bench, draws = Bench(engine_name), torch.Generator().manual_seed(seed)
    inputs = torch.ones(2, SIDE, SIDE, device=bench.device)
    static = torch.ones(SIDE, SIDE, device=bench.device)
    _run(program, inputs, static.clone())  # cuBLAS sets itself up outside the capture
    recording = bench.record(lambda: _run(program, inputs, static))
    mirror = static.clone()
    for _ in range(2):
        inputs.copy_(torch.randint(0, 7, inputs.shape, generator=draws))
        expected = _run(program, inputs.clone(), mirror)
        recording.replay()
        assert torch.equal(recording.result, expected)
        assert torch.equal(static, mirror)
