"""The cells of the matrix, judged one by one or shared out over processes."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import cache

import torch

from oracle.judge import crew
from oracle.judge.budget import Ledger
from oracle.judge.checks import named
from oracle.judge.context import PROFILES, Context, Profile
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.trial import Trial
from oracle.judge.verdict import Verdict

from ..judging import SMALL, context
from .controls import SPARED, spared
from .matrix import CHECKS, RAISED, Cell, Job, Seen, cell, everyone

SIZES: dict[str, Profile] = {**PROFILES, "small": SMALL}


def factory_of(row: str, profile: str) -> Factory:
    """The factory of a specimen or of a control, at a profile."""
    if row in SPARED:
        return spared(row, SIZES[profile])
    (specimen,) = (specimen for specimen in everyone() if specimen.id == row)
    return load_factory(specimen.subject)


@cache
def probed(
    row: str, combination: tuple[str, str], profile: str, seed: int
) -> tuple[Trial, Context | Verdict]:
    """A run on a row, and what the row is able to do in a combination; once a process."""
    asked = context(combination, seed=seed, profile=SIZES[profile])
    trial = Trial(factory_of(row, profile), asked)
    return trial, trial.probe(asked)


def judged(job: Job, profile: str, seed: int) -> Cell:
    """Judge one cell, each with a budget of its own."""
    start = time.perf_counter()
    trial, found = probed(job.row, job.combination, profile, seed)
    if isinstance(found, Verdict):
        return cell(job, [Seen("-", found.outcome.value, found.reason, 0.0)])
    run = replace(trial, ledger=Ledger())
    seen = []
    try:
        for result in run.judge(named(job.check), found):
            answer = result.verdict
            seen.append(Seen(result.case, answer.outcome.value, answer.reason, result.seconds))
    except Exception as error:  # noqa: BLE001 - one broken cell must not lose the others
        text = f"{type(error).__name__}: {error}"
        seen.append(Seen("the check itself", RAISED, text, time.perf_counter() - start))
    return cell(job, seen)


def one_thread() -> None:
    """A process among several leaves the other cores to the others."""
    torch.set_num_threads(1)


def shared_out(
    jobs: Sequence[Job], profile: str, seed: int, processes: int, progress: Callable[[Job], None]
) -> list[Cell]:
    """Judge all cells over processes; cells in the order of their jobs."""
    if processes == 1:
        cells = []
        for job in jobs:
            cells.append(judged(job, profile, seed))
            progress(job)
        return cells
    # The last checks take longest: they go first, so that no process waits for one at the end.
    turns = sorted(range(len(jobs)), key=lambda n: CHECKS.index(jobs[n].check), reverse=True)
    found: dict[int, Cell] = {}
    with ProcessPoolExecutor(processes, crew.way(), initializer=one_thread) as pool:
        sent = {pool.submit(judged, jobs[n], profile, seed): n for n in turns}
        for done in as_completed(sent):
            found[sent[done]] = done.result()
            progress(jobs[sent[done]])
    return [found[n] for n in range(len(jobs))]
