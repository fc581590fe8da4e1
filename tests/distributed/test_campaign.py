"""`draftproof deep` under torchrun: one verdict, on the sum, and a rank that is killed."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from oracle.judge.campaign import own_file, part_of
from oracle.judge.evidence import Evidence, EvidenceError, pieces_of, stored
from oracle.judge.merge import World
from oracle.subjects import reference
from tests.nights import CASE, ONLY, counted, run, stream_of

from .launch import RANKS, started, torchrun

PATIENCE = 240
WORKER = "tests.distributed.campaign_worker"


def deep(folder: Path, rows: int, *words: str) -> tuple[str, ...]:
    """The command of a campaign whose files lie in a folder."""
    state = folder / "night.json"
    return ("-m", WORKER, str(folder), str(rows), "deep", *ONLY, "--state", str(state), *words)


def pieces(folder: Path) -> list[Evidence]:
    """What each rank has stored of the draft law."""
    paths = [part_of(folder / "night.json", rank, RANKS) for rank in range(RANKS)]
    found = [pieces_of(stored(path)) for path in paths]
    return [next(piece for piece in each if piece.case == CASE) for each in found]


@pytest.mark.slow
def test_ranks_hold_together_and_merge_agrees(tmp_path: Path) -> None:
    """Exit 0 on every rank, printed once; the files of the ranks add up to what was printed."""
    words = ("--subject", "torch", "--effect", "temperature=0.05", "--limit", "120")
    done = torchrun(*deep(tmp_path, 256, *words), patience=PATIENCE)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("exit code 0") == 1
    one, two = pieces(tmp_path)
    assert not one.seeds & two.seeds
    assert f"{one.draws + two.draws:,} draws" in done.stdout
    files = sorted(str(path) for path in tmp_path.glob("night.*.json"))
    code, output = run("merge", *files)
    assert code == 0
    assert f"{one.draws + two.draws:,} draws" in output


@pytest.mark.slow
def test_after_a_rank_was_killed_the_same_command_goes_on(tmp_path: Path) -> None:
    """SIGKILL of one rank ends the run; started again, all go on, and nothing counts twice."""
    words = ("--subject", "reference", "--effect", "temperature=0.0002", "--limit", "4")
    command = deep(tmp_path, 2048, *words)
    with started(*command) as process:
        paths = [part_of(tmp_path / "night.json", rank, RANKS) for rank in range(RANKS)]
        end = time.monotonic() + PATIENCE
        while not all(path.exists() for path in paths):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(int((tmp_path / "1.pid").read_text()), signal.SIGKILL)
        output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    assert "exit code" not in output
    before = pieces(tmp_path)
    again = torchrun(*command, patience=PATIENCE)
    assert "exit code 3" in again.stdout, again.stderr
    after = pieces(tmp_path)
    source = stream_of(reference.factory, effect=2e-4)
    for rank, (old, new) in enumerate(zip(before, after, strict=True)):
        assert old.seeds < new.seeds
        numbers = [rank + RANKS * nth for nth in range(len(new.seeds))]
        assert new.seeds == {source.seed(number) for number in numbers}
        drawn = [counted(source.chunk(number)) for number in numbers]
        assert np.array_equal(new.laws[0].counts, np.sum(drawn, axis=0))


def test_files_of_another_number_of_processes_are_refused(tmp_path: Path) -> None:
    """Their draws would be drawn again, and left out of the sum."""
    state = tmp_path / "night.json"
    assert own_file(state, World()) == state
    assert own_file(None, World(0, 2)) is None
    assert own_file(state, World(1, 2)) == tmp_path / "night.2of2.json"
    part_of(state, 2, 3).write_text("{}")
    with pytest.raises(EvidenceError, match=r"night\.3of3\.json is no file of 2 processes"):
        own_file(state, World(0, 2))
    assert own_file(state, World(0, 3)) == part_of(state, 0, 3)
