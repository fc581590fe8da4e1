"""One run shared out over processes of this machine: a check of a combination is one job."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import torch

from . import crew
from .budget import Ledger
from .checks import named
from .context import PROFILES, Context
from .device import peak
from .loading import load_factory
from .trial import Result, Trial, workload_named
from .verdict import Verdict, errored

JOBS_MAX = 4
Combination = tuple[str, str]


@dataclass(frozen=True)
class Order:
    """What a process needs to judge any job of a run; plain values, so that they travel."""

    subject: str
    workload: str
    profile: str
    device: str
    engine: str
    seed: int
    alpha: float
    reproduce: str
    threads: int = 1
    shard: int = 0
    shards: int = 1
    require_gpu: bool = False

    def trial(self) -> Trial:
        """The run, in this process."""
        source = workload_named(self.workload)
        profile = PROFILES[self.profile]
        context = Context("dspark", "counter", self.device, self.engine, self.seed, profile, source)
        context = replace(context, shard=self.shard, shards=self.shards)
        found = Trial(load_factory(self.subject), context, self.reproduce, Ledger(self.alpha))
        return replace(found, require_gpu=self.require_gpu)


def jobs_for(device: str, asked: int, workload: str = "synthetic") -> int:
    """How many processes: as asked; 0 for one a core and four at most.

    One on a GPU, and one where each process would hold a model of its own.
    """
    if asked or device != "cpu" or workload != "synthetic":
        return asked or 1
    return min(JOBS_MAX, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


@cache
def probed(order: Order, combination: Combination) -> tuple[Trial, Context | Verdict]:
    """The run, and what the subject is able to do in a combination; once a process."""
    torch.set_num_threads(order.threads)
    trial = order.trial()
    family, dialect = combination
    return trial, trial.probe(replace(trial.context, family=family, dialect=dialect))


def label_of(order: Order, combination: Combination) -> str:
    """A combination as it is printed."""
    family, dialect = combination
    return replace(order.trial().context, family=family, dialect=dialect).label


@dataclass(frozen=True)
class Done:
    """What a job found, what it spent, which process did it and how much GPU memory that held."""

    results: list[Result]
    spent: dict[str, float]
    process: int
    peak: int


def job(order: Order, combination: Combination, check: str) -> Done:
    """Judge one check of one combination."""
    trial, context = probed(order, combination)
    trial.ledger.spent = {}
    module = named(check)
    if isinstance(context, Verdict):
        found = [Result(module.NAME, label_of(order, combination), "-", context, 0.0)]
    else:
        found = list(trial.judge(module, context))
    return Done(found, dict(trial.ledger.spent), os.getpid(), peak(order.device))


def shared_out(
    order: Order,
    combinations: tuple[Combination, ...],
    checks: tuple[ModuleType, ...],
    jobs: int,
    ledger: Ledger,
    progress: Callable[[str], None],
    peaks: dict[int, int] | None = None,
) -> Iterator[Result]:
    """Judge every combination by every check over `jobs` processes; results in the usual order.

    What all jobs spent is taken from `ledger`, which may find that a line is overspent. peaks gets
    the GPU memory that each process held at most.
    """
    work = [(combination, check.NAME) for combination in combinations for check in checks]
    found: dict[int, list[Result]] = {}
    with ProcessPoolExecutor(jobs, crew.way()) as pool:
        # The last checks take longest: they go first, so that no process waits for one at the end.
        sent = {pool.submit(job, order, *each): n for n, each in reversed(list(enumerate(work)))}
        for done in as_completed(sent):
            combination, check = work[sent[done]]
            progress(f"{' '.join(combination)}: {check}")
            try:
                ended = done.result()
            except BrokenExecutor:
                label = label_of(order, combination)
                died = errored("a process that judged died; --jobs 1 shows what it said last")
                ended = Done([Result(check, label, "-", died, 0.0)], {}, 0, 0)
            found[sent[done]] = ended.results
            if peaks is not None and ended.process:
                peaks[ended.process] = max(ended.peak, peaks.get(ended.process, 0))
            for line, probability in ended.spent.items():
                ledger.take(line, probability)
    for number in range(len(work)):
        yield from found[number]
