"""deep and merge: shards, resumption after a kill, subjects that hold and that do not."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from impl.stages import Stages
from impl.subject import factory
from oracle.judge import stream
from oracle.judge.checks import draft_law
from oracle.judge.evidence import pieces_of, store, stored
from oracle.judge.night import resumed
from oracle.judge.sequential import fixed_draws, spread
from oracle.judge.stream import Stream
from oracle.subjects import reference, torch_ops

from .judging import context
from .nights import CASE, DRAFT, EFFECT, ONLY, ROWS, counted, grown, night_of, run, stream_of
from .zoo.capture import frozen_noise

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of an eighth of the rows."""
    monkeypatch.setattr(stream, "ROWS", ROWS)


def hot(setting: Mapping[str, Any]) -> Any:
    """Tokens are drawn at a temperature 2 % above the staged one."""

    def broken(stages: Stages) -> Stages:
        def choice(logits: torch.Tensor, temperature: torch.Tensor, *rest: Any) -> None:
            stages.choice(logits, temperature * 1.02, *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=broken)


def reads_nothing(setting: Mapping[str, Any]) -> Any:
    """A sampler whose block has no tokens."""

    class Empty(torch_ops.Multinomial):
        def read(self) -> dict[str, torch.Tensor]:
            return {}

    return Empty(setting)


@pytest.fixture(scope="module")
def healthy() -> Stream:
    """The folded sampler's stream, for an effect that needs some chunks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "ROWS", ROWS)
        return stream_of()


def test_a_healthy_sampler_ends_early(healthy: Stream) -> None:
    """It holds, with fewer draws than a test of fixed length plans."""
    night = grown(healthy, night_of(), 30)
    verdict = night.verdicts[CASE]
    assert verdict.outcome.value == "holds"
    variance = spread(healthy.table.log_law, healthy.table.weights)
    assert verdict.used < fixed_draws(variance, EFFECT, night.rule.alarm)


def test_two_percent_more_heat_is_violated_before_the_plan_ends() -> None:
    """Fewer draws than the fixed plan for 1 %, and the bank names a hotter sampler."""
    source = stream_of(hot, 0.01)
    night = grown(source, night_of(0.01), 40)
    verdict = night.verdicts[CASE]
    assert verdict.outcome.value == "violated"
    assert "strongest is 'T +" in verdict.reason
    variance = spread(source.table.log_law, source.table.weights)
    assert verdict.used < fixed_draws(variance, 0.01, night.rule.alarm)


def test_frozen_noise_is_violated_at_once() -> None:
    """A new seed for every chunk does not help a recording that never draws again."""
    night = grown(stream_of(frozen_noise), night_of(), 3)
    assert night.verdicts[CASE].outcome.value == "violated"


def test_logits_are_chosen_for_their_spread(healthy: Stream) -> None:
    """Errors of T show sooner on the chosen inputs than on those of draft_law's own case."""
    plain = DRAFT.table(stream.law_history(draft_law.plans(context())[0]))
    chosen = spread(healthy.table.log_law, healthy.table.weights)
    assert chosen > 1.2 * spread(plain.log_law, plain.weights)
    assert np.allclose(np.exp(healthy.table.log_law).sum(axis=1), 1)
    assert healthy.table.weights.sum() == pytest.approx(1)


def test_a_sampler_that_cannot_reseed_draws_each_chunk_anew() -> None:
    """Two runs draw the same chunk from its number; two chunks differ."""
    first, second = stream_of(torch_ops.factory), stream_of(torch_ops.factory)
    found = [first.chunk(0), first.chunk(1), second.chunk(1)]
    zero, one, again = (counted(each) for each in found)
    assert not np.array_equal(zero, one)
    assert np.array_equal(one, again)


def test_a_killed_run_goes_on_and_counts_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIGKILL in the middle of a chunk: what was stored stands, the rest is drawn again, once."""
    monkeypatch.setattr(stream, "ROWS", 2048)
    state = tmp_path / "state.json"
    words = ["deep", "--subject", "reference", *ONLY, "--effect", "temperature=0.0001"]
    words += ["--state", str(state)]
    process = subprocess.Popen([sys.executable, "-m", "oracle", *words], cwd=ROOT)
    try:
        while not (state.exists() and len(pieces_of(stored(state))[0].seeds) >= 2):
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = {piece.case: piece for piece in pieces_of(stored(state))}
    assert process.returncode == -signal.SIGKILL
    assert run(*words, "--limit", "0.2")[0] == 3
    after = {piece.case: piece for piece in pieces_of(stored(state))}
    source = stream_of(reference.factory, effect=1e-4)
    for case, piece in before.items():
        assert after[case].seeds >= piece.seeds
        assert after[case].draws == piece.draws // len(piece.seeds) * len(after[case].seeds)
    assert len(after[CASE].seeds) > len(before[CASE].seeds)
    numbers = range(len(after[CASE].seeds))
    again = [counted(source.chunk(number)) for number in numbers]
    assert after[CASE].seeds == {source.seed(number) for number in numbers}
    assert np.array_equal(after[CASE].laws[0].counts, np.sum(again, axis=0))


def test_a_resumed_run_is_the_run_that_was_not_stopped(healthy: Stream, tmp_path: Path) -> None:
    """Chunk by chunk through the file, or in one go: the same document."""
    state = tmp_path / "state.json"
    for _ in range(5):
        night = resumed(state, night_of().run, [healthy])
        night.grow(healthy)
        store(state, night.document())
    whole = night_of()
    for _ in range(5):
        whole.grow(healthy)
    assert stored(state) == whole.document()


def test_deep_holds_and_writes_its_state(tmp_path: Path) -> None:
    """Exit 0, draws and effect printed; the same call again only reads what is decided."""
    state = tmp_path / "state.json"
    words = ("deep", "--subject", "torch", *ONLY, "--effect", "temperature=0.03")
    code, output = run(*words, "--limit", "60", "--state", str(state))
    assert code == 0, output
    for part in ("holds", CASE, "draws", "strongest is", "T off by 3 %", "exit code 0"):
        assert part in output
    written = state.read_text()
    assert run(*words, "--state", str(state)) == (0, output)
    assert state.read_text() == written
    code, output = run(*words, "--state", str(state), "--alpha", "1e-5")
    assert code == 2
    assert "was written with alpha = 1e-06, required: 1e-05" in output


def test_deep_without_time_is_unknown(tmp_path: Path) -> None:
    """Exit 3 and how far it got, which is nowhere; nothing is stored."""
    state = tmp_path / "state.json"
    words = ("deep", "--subject", "torch", *ONLY, "--limit", "0", "--state", str(state))
    code, output = run(*words)
    assert code == 3
    assert "0 s are over, or another case ended the run: nothing was drawn" in output
    assert not state.exists()


def test_a_shard_alone_raises_no_alarm(tmp_path: Path) -> None:
    """Its violation is provisional (exit 3), and merging spends the one budget (exit 1)."""
    state = tmp_path / "1.json"
    words = ("deep", "--subject", "tests.test_nightly:hot", *ONLY, "--state", str(state))
    code, output = run(*words, "--shard", "1/2", "--limit", "20")
    assert code == 3
    assert "this shard alone shows: tokens do not follow the law" in output
    code, output = run("merge", str(state))
    assert code == 1
    assert "violated" in output
    code, output = run("merge", str(state), "--expectations", "shipped")
    assert (code, "required of expectations: reports of verify" in output) == (2, True)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--effect", "heat=0.01"), "required: temperature=X"),
        (("--effect", "temperature=0"), "required: temperature=X"),
        (("--shard", "3/2"), "required: I/N with 1 <= I <= N"),
        (("--alpha", "0"), "required: between 0 and 1"),
        (("--seed", "-1"), "required: 0 or more"),
        (("--subject", "nobody"), "subject 'nobody' is not known"),
        (("--state", "no/such/folder/state.json"), "is no folder"),
    ],
)
def test_wrong_options_are_usage_errors(words: tuple[str, ...], complaint: str) -> None:
    """Exit 2, observed and required."""
    code, output = run("deep", *words)
    assert code == 2
    assert complaint in output


def test_a_sampler_that_raises_has_errored() -> None:
    """Exit 4, with what it raised."""
    code, output = run("deep", "--subject", "tests.test_nightly:reads_nothing", *ONLY)
    assert code == 4
    assert "read() lacks ['tokens']" in output
