"""What several commands take on the command line, turned into what the judge takes."""

import typer

from .judge import expected
from .judge.merge import World, enter
from .judge.place import gpus, placed_on
from .judge.trial import COMBINATIONS


def usage(message: str) -> typer.BadParameter:
    """A usage error: exit code 2."""
    return typer.BadParameter(message)


def engine_and_device(engine: str, *, require_gpu: bool = False) -> tuple[str, str]:
    """Resolve 'auto' to cuda where a GPU is visible, else to the emulator on the CPU.

    require_gpu: there has to be a GPU, and the engine has to be cuda.
    """
    if require_gpu and not gpus():
        raise usage("--require-gpu was given and torch sees no GPU, required: at least one")
    if require_gpu and engine not in ("auto", "cuda"):
        raise usage(f"--require-gpu was given and engine is {engine!r}, required: cuda or auto")
    try:
        return placed_on(engine)
    except ValueError as error:
        raise usage(str(error)) from error


def entered(device: str) -> World:
    """The processes of this run: those of torchrun, else one."""
    try:
        return enter(device)
    except ValueError as error:
        raise usage(str(error)) from error


def shard_named(shards: int, shard: int) -> int:
    """The shard of a run: 1 to `shards`, or 0 where it is not divided."""
    if shards == 1 and shard in (0, 1):
        return 0
    if not 1 <= shard <= shards:
        raise usage(f"shard-id is {shard} of {shards}, required: 1 to {max(shards, 1)}")
    return shard


def chosen_combinations(only: list[str]) -> tuple[tuple[str, str], ...]:
    """The combinations named by --only, all when none is."""
    labels = {"dflash" if f == "dflash" else f"{f}/{d}": (f, d) for f, d in COMBINATIONS}
    for label in only:
        if label not in labels:
            raise usage(f"combination {label!r} is not known, required: {', '.join(labels)}")
    return tuple(labels[label] for label in only) or COMBINATIONS


def expected_deviations(name: str) -> list[expected.Entry]:
    """The entries of --expectations, checked before anything runs; none where none is named."""
    try:
        return expected.named(name) if name else []
    except ValueError as error:
        raise usage(str(error)) from error
