"""Every graph engine keeps the rules G1 to G10, and refuses and allows the same ops.

G6, and the poison of G8 and G10, are in test_emulator.py: CUDA obeys them and cannot show it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.graph import Engine, Hazard, Pool, Recording, engine_for

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
    ],
)


@dataclass
class Bench:
    """One engine, one pool, and tensors on the engine's device."""

    device: str
    engine: Engine = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        self.engine = engine_for(self.device)
        self.pool = self.engine.pool()

    def tensor(self, *values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Make a tensor on the device."""
        return torch.tensor(values, dtype=dtype, device=self.device)

    def host(self, *values: float) -> torch.Tensor:
        """Make a host tensor that a capture may copy from."""
        return torch.tensor(values, pin_memory=self.device == "cuda")

    def generator(self, seed: int) -> torch.Generator:
        """Make a generator on the device."""
        return torch.Generator(self.device).manual_seed(seed)

    def record(self, body: Callable[[], Any], *generators: torch.Generator) -> Recording:
        """Record in the bench's pool."""
        return self.engine.record(body, pool=self.pool, generators=generators)


@pytest.fixture(params=[pytest.param("cpu", id="emulator"), CUDA])
def bench(request: pytest.FixtureRequest) -> Bench:
    """A bench for each engine that this machine has."""
    return Bench(request.param)


def test_g1_python_runs_at_capture_only(bench: Bench) -> None:
    """A Python side effect happens once, however often the recording is replayed."""
    calls, x = SimpleNamespace(count=0), bench.tensor(1.0)

    def body() -> None:
        calls.count += 1
        x.add_(1.0)

    recording = bench.record(body)
    for _ in range(3):
        recording.replay()
    assert (calls.count, x.item(), recording.replays) == (1, 4.0, 3)


def test_g2_replay_writes_where_capture_looked(bench: Bench) -> None:
    """A write through a slice lands at the captured offset of the captured storage."""
    x, out = bench.tensor(5.0, 6.0), bench.tensor(0.0, 0.0, 0.0, 0.0)
    bench.record(lambda: out[1:3].copy_(x)).replay()
    assert out.tolist() == [0.0, 5.0, 6.0, 0.0]


def test_g3_rebinding_changes_nothing(bench: Bench) -> None:
    """After capture a name may mean another tensor; the recording does not notice."""
    names = SimpleNamespace(x=bench.tensor(1.0))
    captured = names.x
    recording = bench.record(lambda: names.x * 2)
    names.x = bench.tensor(50.0)
    captured.fill_(7.0)
    recording.replay()
    assert recording.result.item() == 14.0


def test_g4_host_read_is_refused(bench: Bench) -> None:
    """Reading a value on the host raises a Hazard that names its rule."""
    x = bench.tensor(1.0)
    with pytest.raises(Hazard) as caught:
        bench.record(lambda: x.item() + 1)
    assert caught.value.rule == "G4"


def test_g5_data_dependent_shape_is_refused(bench: Bench) -> None:
    """A shape that depends on data raises a Hazard that names its rule."""
    x = bench.tensor(1.0, 0.0)
    with pytest.raises(Hazard) as caught:
        bench.record(x.nonzero)
    assert caught.value.rule == "G5"


def test_g7_registered_noise_moves(bench: Bench) -> None:
    """Each replay draws anew, exactly what an eager draw from the same state gives."""
    generator, noise = bench.generator(3), torch.zeros(5, device=bench.device)
    recording = bench.record(lambda: noise.exponential_(generator=generator), generator)
    for _ in range(2):
        again = bench.generator(0).set_state(generator.get_state())
        recording.replay()
        assert torch.equal(noise, torch.zeros_like(noise).exponential_(generator=again))
        assert torch.equal(generator.get_state(), again.get_state())


@pytest.mark.parametrize("given_one", [True, False], ids=["unregistered", "implicit"])
def test_g7_other_draws_are_refused(bench: Bench, given_one: bool) -> None:  # noqa: FBT001
    """A generator that was not registered, or none, is refused; the capture leaves no damage."""
    noise, generator = bench.tensor(0.0), bench.generator(1)
    with pytest.raises(Hazard, match="generator") as caught:
        bench.record(lambda: noise.exponential_(generator=generator if given_one else None))
    assert caught.value.rule == "G7"
    assert noise.exponential_(generator=generator).item() > 0.0


def test_g8_capture_computes_nothing(bench: Bench) -> None:
    """Capture leaves buffers and generators as they were; this proves the engine is active."""
    buffer, generator = bench.tensor(1.0, 2.0), bench.generator(5)
    before = generator.get_state()
    bench.record(lambda: buffer.exponential_(generator=generator), generator)
    assert buffer.tolist() == [1.0, 2.0]
    assert bench.device == "cuda" or torch.equal(generator.get_state(), before)


def test_g9_host_scalars_are_frozen(bench: Bench) -> None:
    """A Python number keeps the value it had at capture."""
    x, names = bench.tensor(1.0), SimpleNamespace(scale=3.0)

    def body() -> torch.Tensor:
        out = torch.zeros(2, device=bench.device)
        out[:1] = names.scale
        return out + x * names.scale

    recording = bench.record(body)
    names.scale = 100.0
    recording.replay()
    assert recording.result.tolist() == [6.0, 3.0]


def test_g10_a_result_lives_until_the_next_replay(bench: Bench) -> None:
    """The next replay of the recording overwrites its result in place."""
    x = bench.tensor(1.0)
    recording = bench.record(lambda: x + 1)
    recording.replay()
    first = recording.result
    assert first.item() == 2.0
    x.fill_(9.0)
    recording.replay()
    assert first.item() == 10.0


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


@pytest.mark.parametrize("name", [name for name, row in OPS.items() if row[0] != "allowed"])
def test_refused_ops_raise_and_leave_the_engine_usable(bench: Bench, name: str) -> None:
    """Each refused op raises the Hazard of its rule, and the next capture works."""
    rule, op = OPS[name]
    parts = _parts(bench)
    with pytest.raises(Hazard) as caught:
        bench.record(lambda: op(parts), parts.generator)
    assert caught.value.rule == rule
    assert caught.value.where == f"{__file__}:{op.__code__.co_firstlineno}"
    for free in (parts.generator, None):
        assert torch.rand(2, device=bench.device, generator=free).isfinite().all()
    recording = Bench(bench.device).record(lambda: parts.x + 1)
    recording.replay()
    assert recording.result.tolist() == [2.0, 3.0, 1.0, 4.0]


@pytest.mark.parametrize("name", [name for name, row in OPS.items() if row[0] == "allowed"])
def test_allowed_ops_follow_their_inputs(bench: Bench, name: str) -> None:
    """Each allowed op gives the eager value for inputs that changed after capture."""
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


@pytest.mark.parametrize("device", [pytest.param("cpu", id="emulator"), CUDA])
@given(program=PROGRAMS, seed=st.integers(0, 99))
def test_a_program_replays_like_eager(
    device: str, program: list[tuple[str, int, int]], seed: int
) -> None:
    """A random program, recorded once, equals its eager run after its inputs changed, twice."""
    bench, draws = Bench(device), torch.Generator().manual_seed(seed)
    inputs = torch.ones(2, SIDE, SIDE, device=device)
    static = torch.ones(SIDE, SIDE, device=device)
    _run(program, inputs, static.clone())  # cuBLAS sets itself up outside the capture
    recording = bench.record(lambda: _run(program, inputs, static))
    mirror = static.clone()
    for _ in range(2):
        inputs.copy_(torch.randint(0, 7, inputs.shape, generator=draws))
        expected = _run(program, inputs.clone(), mirror)
        recording.replay()
        assert torch.equal(recording.result, expected)
        assert torch.equal(static, mirror)
