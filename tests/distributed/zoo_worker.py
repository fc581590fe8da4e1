"""What each rank runs: every fault of ranks, judged by its check and by the one that is blind.

Rank 0 writes {specimen: {check: [[verdict, reason], ...]}} to the file it is given; the engine
is the second argument.
"""

import json
import sys
from pathlib import Path

import torch

from oracle.judge.checks import named
from oracle.judge.loading import load_factory
from oracle.judge.merge import World, enter
from oracle.judge.trial import Trial
from tests.judging import context
from tests.zoo.ranks import SHARED
from tests.zoo.specimen import Specimen

Seen = dict[str, list[tuple[str, str]]]


def seen(specimen: Specimen, world: World, engine: str) -> Seen:
    """Verdicts and reasons of all ranks, by check."""
    trial = Trial(load_factory(specimen.subject), context(engine=engine), world=world)
    trial.combinations = (specimen.combination,)
    trial.checks = tuple(named(name) for name in (specimen.killed_by, specimen.blind_to))
    found: Seen = {}
    for result in trial.everyones(list(trial.run())):
        answer = (result.verdict.outcome.value, result.verdict.reason)
        found.setdefault(result.check, []).append(answer)
    return found


def main(path: Path, engine: str) -> None:
    """Judge every specimen."""
    torch.set_num_threads(1)
    world = enter("cuda" if engine == "cuda" else "cpu")
    answers = {specimen.id: seen(specimen, world, engine) for specimen in SHARED}
    if world.rank == 0:
        path.write_text(json.dumps(answers))
    world.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
