"""merge: four shards are one run, and what is no part of the test is refused."""

import json
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from oracle.judge import stream
from oracle.judge.evidence import pieces_of, store, stored
from oracle.judge.night import together
from oracle.judge.stream import Stream

from .nights import CASE, ROWS, night_of, run, stream_of


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of an eighth of the rows."""
    monkeypatch.setattr(stream, "ROWS", ROWS)


@pytest.fixture(scope="module")
def healthy() -> Stream:
    """The folded sampler's stream, for an effect that needs some chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "ROWS", ROWS)
        return stream_of()


def test_four_shards_are_one_long_run_in_any_order(healthy: Stream, tmp_path: Path) -> None:
    """Counts, seeds, values and the verdict: bit for bit, whoever is added first."""
    long = night_of()
    for _ in range(8):
        long.grow(healthy)
    paths = []
    for shard in (1, 2, 3, 4):
        night = night_of(shard=shard, shards=4)
        for _ in range(2):
            night.grow(healthy)
        paths.append(tmp_path / f"{shard}.json")
        store(paths[-1], night.document())
    expected = long.document()
    for order in list(permutations(paths))[::4]:
        whole = together(order)
        assert whole.document() == expected
        assert whole.closed("over") == long.closed("over")
    assert {verdict.outcome.value for verdict in long.closed("over").values()} == {"holds"}


def shard_file(healthy: Stream, path: Path, shard: int, shards: int, **changed: Any) -> Path:
    """A stored shard of two chunks, some of its fields changed."""
    night = night_of(shard=shard, shards=shards)
    for _ in range(2):
        night.grow(healthy)
    found = night.document()
    found["run"] |= {key: value for key, value in changed.items() if key in found["run"]}
    found["evidence"][0] |= {k: v for k, v in changed.items() if k in found["evidence"][0]}
    if "digest" in changed:
        found["evidence"][0]["laws"][0]["digest"] = changed["digest"]
    store(path, found)
    return path


@pytest.mark.parametrize(
    ("shards", "changed", "words"),
    [
        ((1, 1, 2), {}, "are counted on both sides"),
        ((1, 2, 2), {"digest": "0" * 64}, "digests of the law of run 0 differ"),
        (
            (1, 2, 2),
            {"subject": "foe"},
            "subjects differ: 'here, engine emulator on cpu' and 'foe'",
        ),
        ((1, 2, 2), {"versions": {"torch": "0"}}, "versions differ"),
        ((1, 2, 2), {"alpha": 1e-3}, "has alpha = 1e-06,"),
        ((1, 2, 2), {"effect": 0.01}, "has effect = 0.02,"),
    ],
)
def test_merge_refuses_what_is_no_part_of_the_test(
    shards: tuple[int, int, int], changed: dict, words: str, healthy: Stream, tmp_path: Path
) -> None:
    """Exit 2, and the file or both sides are named."""
    first, second, count = shards
    one = shard_file(healthy, tmp_path / "one.json", first, count)
    two = shard_file(healthy, tmp_path / "two.json", second, count, **changed)
    code, output = run("merge", str(one), str(two))
    assert code == 2
    plain = " ".join(output.replace("│", " ").split())
    assert words in plain
    assert "two.json" in plain


def test_merge_refuses_another_bank(healthy: Stream, tmp_path: Path) -> None:
    """Members are compared by name and order."""
    names = list(healthy.members)
    one = shard_file(healthy, tmp_path / "one.json", 1, 2)
    two = shard_file(healthy, tmp_path / "two.json", 2, 2, members=names[::-1])
    code, output = run("merge", str(one), str(two))
    assert code == 2
    assert "banks differ" in output


def test_merge_writes_the_sum_and_its_verdict(healthy: Stream, tmp_path: Path) -> None:
    """Exit code, JSON that reads as evidence again, and two nights of different seeds add."""
    one = shard_file(healthy, tmp_path / "one.json", 1, 2)
    night = night_of()
    night.run = {**night.run, "seed": 5}
    other = stream_of(seed=5)
    for _ in range(2):
        night.grow(other)
    two = tmp_path / "two.json"
    store(two, night.document())
    out = tmp_path / "sum.json"
    code, _ = run("merge", str(one), str(two), "--json", str(out))
    found = json.loads(out.read_text())
    assert code == found["exit_code"]
    assert [law["run"] for law in found["evidence"][0]["laws"]] == [0, 5]
    parts = [pieces_of(stored(path))[0] for path in (one, two)]
    assert pieces_of(found)[0].draws == sum(part.draws for part in parts)
    assert found["verdicts"][CASE]["verdict"] in ("unknown", "holds")
