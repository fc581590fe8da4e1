"""A night that several processes share: each draws a shard, and all decide on the sum.

Started by torchrun, a process draws the shard of its rank and writes a file of its own. Chunks are
known by number, so a process that was killed goes on from its file and counts nothing twice. No
process decides on what it saw alone: the run has one alarm budget, and it is spent on the sum.
"""

from pathlib import Path

from .evidence import EvidenceError
from .merge import World
from .night import Night, summed


def own_file(state: Path | None, world: World) -> Path | None:
    """The state file of this process: the one named when it is alone, else `NAME.2of4.json`.

    EvidenceError: files that a run of another number of processes wrote lie there.
    """
    if state is None or world.size == 1:
        return state
    names = [part_of(state, rank, world.size) for rank in range(world.size)]
    beside = sorted(state.parent.glob(f"{state.stem}.*of*{state.suffix}"))
    foreign = [path for path in (state, *beside) if path.exists() and path not in names]
    if foreign:
        raise EvidenceError(
            f"{foreign[0]} is no file of {world.size} processes, required: another name for "
            f"--state, or as many processes as wrote it"
        )
    return names[world.rank]


def part_of(state: Path, rank: int, size: int) -> Path:
    """The file of one process."""
    return state.with_name(f"{state.stem}.{rank + 1}of{size}{state.suffix}")


def met(world: World, night: Night) -> Night:
    """What all processes have seen by now, as one run; all of them have to call it.

    A process alone has decided already. What a process found without chance stands as it is.
    """
    if world.size == 1:
        return night
    everyone = world.gather((night.document(), dict(night.verdicts)))
    whole = summed([(f"rank {rank}", held) for rank, (held, _) in enumerate(everyone)])
    for _, found in reversed(everyone):
        whole.verdicts.update(found)
    return whole
