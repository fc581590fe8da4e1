"""The cells of the matrix, judged one by one or shared out over processes."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch

from oracle.judge import archive, crew
from oracle.judge.budget import Ledger
from oracle.judge.checks import named
from oracle.judge.context import PROFILES, Context, Profile
from oracle.judge.environment import environment
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.trial import Result, Trial
from oracle.judge.verdict import Verdict

from ..judging import SMALL, context
from .controls import SPARED, spared
from .matrix import CHECKS, FINE, RAISED, Cell, Job, Seen, cell, everyone

SIZES: dict[str, Profile] = {**PROFILES, "small": SMALL}


def factory_of(row: str, profile: str) -> Factory:
    """The factory of a specimen or of a control, at a profile."""
    if row in SPARED:
        return spared(row, SIZES[profile])
    (specimen,) = (specimen for specimen in everyone() if specimen.id == row)
    return load_factory(specimen.subject)


@cache
def probed(
    row: str, combination: tuple[str, str], profile: str, seed: int, engine: str
) -> tuple[Trial, Context | Verdict]:
    """A run on a row, and what the row is able to do in a combination; once a process."""
    asked = context(combination, engine=engine, seed=seed, profile=SIZES[profile])
    trial = Trial(factory_of(row, profile), asked)
    return trial, trial.probe(asked)


def kept(result: Result, job: Job, folder: Path, again: str, number: int) -> None:
    """Store what killed a specimen, or flagged a control; a note where it cannot be stored."""
    if result.verdict.outcome in FINE:
        return
    parts = (job.row, *job.label.split("/"), job.check, str(number))
    where = environment(result.history.setting["device"] if result.history else "cpu")
    archive.store(result, folder / "-".join(parts), again, where)


def judged(job: Job, profile: str, seed: int, folder: Path | None = None) -> Cell:
    """Judge one cell, each with a budget of its own. folder: for the histories of kills."""
    start = time.perf_counter()
    trial, found = probed(job.row, job.combination, job.sizes or profile, seed, job.engine)
    if isinstance(found, Verdict):
        return cell(job, [Seen("-", found.outcome.value, found.reason, 0.0)])
    again = f"python -m tests.zoo --profile {profile} --seed {seed} --only {job.row} "
    again += f"--check {job.check} --engine {job.engine}"
    run = replace(trial, ledger=Ledger(), keep=folder is not None, reproduce=again)
    seen: list[Seen] = []
    try:
        for result in run.judge(named(job.check), found):
            answer = result.verdict
            if folder is not None:
                kept(result, job, folder, again, len(seen))
            seen.append(Seen(result.case, answer.outcome.value, answer.reason, result.seconds))
    except Exception as error:  # noqa: BLE001 - one broken cell must not lose the others
        text = f"{type(error).__name__}: {error}"
        seen.append(Seen("the check itself", RAISED, text, time.perf_counter() - start))
    return cell(job, seen)


def one_thread() -> None:
    """A process among several leaves the other cores to the others."""
    torch.set_num_threads(1)


def shared_out(
    jobs: Sequence[Job],
    profile: str,
    seed: int,
    processes: int,
    progress: Callable[[Job], None],
    folder: Path | None = None,
) -> list[Cell]:
    """Judge all cells over processes; cells in the order of their jobs."""
    if processes == 1:
        cells = []
        for job in jobs:
            cells.append(judged(job, profile, seed, folder))
            progress(job)
        return cells
    # The last checks take longest: they go first, so that no process waits for one at the end.
    turns = sorted(range(len(jobs)), key=lambda n: CHECKS.index(jobs[n].check), reverse=True)
    found: dict[int, Cell] = {}
    with ProcessPoolExecutor(processes, crew.way(), initializer=one_thread) as pool:
        sent = {pool.submit(judged, jobs[n], profile, seed, folder): n for n in turns}
        for done in as_completed(sent):
            found[sent[done]] = done.result()
            progress(jobs[sent[done]])
    return [found[n] for n in range(len(jobs))]
