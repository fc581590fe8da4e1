"""Every graph engine keeps the rules G1 to G10: one body a rule, run on each of them.

How an engine keeps a rule is said by KEEPS, and each body demands just that. What CUDA cannot show
it has to pass over in silence here: an engine that begins to see it makes KEEPS wrong.
"""

import gc
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from impl.graph import Hazard
from impl.graph.engine import BLIND, KEEPS

from .engines import Bench

README = Path(__file__).parents[1] / "README.md"


def test_g1_python_runs_at_capture_only(engine_name: str) -> None:
    """A Python side effect happens once, however often the recording is replayed."""
    bench = Bench(engine_name)
    calls, x = SimpleNamespace(count=0), bench.tensor(1.0)

    def body() -> None:
        calls.count += 1
        x.add_(1.0)

    recording = bench.record(body)
    for _ in range(3):
        recording.replay()
    assert (calls.count, x.item(), recording.replays) == (1, 4.0, 3)


def test_g2_replay_writes_where_capture_looked(engine_name: str) -> None:
    """A write through a slice lands at the captured offset of the captured storage."""
    bench = Bench(engine_name)
    x, out = bench.tensor(5.0, 6.0), bench.tensor(0.0, 0.0, 0.0, 0.0)
    bench.record(lambda: out[1:3].copy_(x)).replay()
    assert out.tolist() == [0.0, 5.0, 6.0, 0.0]


def test_g3_rebinding_changes_nothing(engine_name: str) -> None:
    """After capture a name may mean another tensor; the recording does not notice."""
    bench = Bench(engine_name)
    names = SimpleNamespace(x=bench.tensor(1.0))
    captured = names.x
    recording = bench.record(lambda: names.x * 2)
    names.x = bench.tensor(50.0)
    captured.fill_(7.0)
    recording.replay()
    assert recording.result.item() == 14.0


def test_g4_host_read_is_refused(engine_name: str) -> None:
    """Reading a value on the host raises a Hazard that names its rule."""
    bench = Bench(engine_name)
    x = bench.tensor(1.0)
    with pytest.raises(Hazard) as caught:
        bench.record(lambda: x.item() + 1)
    assert caught.value.rule == "G4"


def test_g5_data_dependent_shape_is_refused(engine_name: str) -> None:
    """A shape that depends on data raises a Hazard that names its rule."""
    bench = Bench(engine_name)
    x = bench.tensor(1.0, 0.0)
    with pytest.raises(Hazard) as caught:
        bench.record(x.nonzero)
    assert caught.value.rule == "G5"


def test_g6_lost_memory_is_refused_or_not_seen(engine_name: str) -> None:
    """A replay that reads freed memory raises; where that is not seen, it goes through."""
    bench = Bench(engine_name)
    names = SimpleNamespace(x=bench.tensor(1.0, 2.0))
    recording = bench.record(lambda: names.x * 2)
    recording.replay()
    del names.x
    gc.collect()
    if KEEPS[engine_name]["G6"] == "blind":
        # The allocator keeps freed memory mapped, so the read itself harms nothing.
        recording.replay()
        assert recording.replays == 2
        return
    with pytest.raises(Hazard) as caught:
        recording.replay()
    assert (caught.value.rule, recording.replays) == ("G6", 1)


def test_g7_registered_noise_moves(engine_name: str) -> None:
    """Each replay draws anew, exactly what an eager draw from the same state gives."""
    bench = Bench(engine_name)
    generator, noise = bench.generator(3), torch.zeros(5, device=bench.device)
    recording = bench.record(lambda: noise.exponential_(generator=generator), generator)
    for _ in range(2):
        again = bench.generator(0).set_state(generator.get_state())
        recording.replay()
        assert torch.equal(noise, torch.zeros_like(noise).exponential_(generator=again))
        assert torch.equal(generator.get_state(), again.get_state())


@pytest.mark.parametrize("given_one", [True, False], ids=["unregistered", "implicit"])
def test_g7_other_draws_are_refused(engine_name: str, given_one: bool) -> None:  # noqa: FBT001
    """A generator that was not registered, or none, is refused; the capture leaves no damage."""
    bench = Bench(engine_name)
    noise, generator = bench.tensor(0.0), bench.generator(1)
    with pytest.raises(Hazard, match="generator") as caught:
        bench.record(lambda: noise.exponential_(generator=generator if given_one else None))
    assert caught.value.rule == "G7"
    assert noise.exponential_(generator=generator).item() > 0.0


def test_g8_capture_computes_nothing(engine_name: str) -> None:
    """Capture leaves buffers and generators as they were; this proves the engine is active."""
    bench = Bench(engine_name)
    buffer, generator = bench.tensor(1.0, 2.0), bench.generator(5)
    before = generator.get_state()
    recording = bench.record(lambda: buffer.exponential_(generator=generator) + 1, generator)
    assert buffer.tolist() == [1.0, 2.0]
    poisoned = bool(recording.result.isnan().all())
    assert poisoned or KEEPS[engine_name]["G8"] == "silent"
    assert bench.device == "cuda" or torch.equal(generator.get_state(), before)


def test_g9_host_scalars_are_frozen(engine_name: str) -> None:
    """A Python number keeps the value it had at capture."""
    bench = Bench(engine_name)
    x, names = bench.tensor(1.0), SimpleNamespace(scale=3.0)

    def body() -> torch.Tensor:
        out = torch.zeros(2, device=bench.device)
        out[:1] = names.scale
        return out + x * names.scale

    recording = bench.record(body)
    names.scale = 100.0
    recording.replay()
    assert recording.result.tolist() == [6.0, 3.0]


def test_g10_a_result_lives_until_the_next_replay(engine_name: str) -> None:
    """The next replay overwrites a result in place; that of another recording may poison it."""
    bench = Bench(engine_name)
    x = bench.tensor(1.0)
    recording = bench.record(lambda: x + 1)
    recording.replay()
    first = recording.result
    assert first.item() == 2.0
    x.fill_(9.0)
    recording.replay()
    assert first.item() == 10.0
    bench.record(lambda: x * 3).replay()
    assert first.isnan().all() if KEEPS[engine_name]["G10"] == "poison" else first.item() == 10.0


def table() -> dict[str, list[str]]:
    """The rows of the README's table of rules, by rule: words for each engine."""
    rows = re.findall(r"^\| (G\d+) .*? \| (.*?) \| (.*?) \|$", README.read_text(), re.MULTILINE)
    return {rule: list(words) for rule, *words in rows}


def test_the_readme_prints_how_each_engine_keeps_each_rule() -> None:
    """Word for word, and what an engine cannot show stands below the table."""
    text = " ".join(README.read_text().split())
    assert table() == {rule: [KEEPS[name][rule] for name in KEEPS] for rule in KEEPS["cuda"]}
    assert list(table()) == [f"G{number}" for number in range(1, 11)]
    for name, blind in BLIND.items():
        assert f"{name}: {'; '.join(blind)}." in text
    assert {rule for rule, word in KEEPS["cuda"].items() if word in ("blind", "silent")} == set(
        re.findall(r"G\d+", " ".join(BLIND["cuda"]))
    )


def test_every_rule_has_one_body() -> None:
    """A rule without one would be kept by nobody."""
    bodies = {name.split("_")[1] for name in globals() if name.startswith("test_g")}
    assert bodies == {f"g{number}" for number in range(1, 11)}
