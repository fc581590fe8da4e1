"""Specimens and controls against checks: what each cell says, and what is expected of it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from oracle.judge.checks import ALL
from oracle.judge.trial import COMBINATIONS
from oracle.judge.verdict import Outcome

from . import SPECIMENS
from .blocks import RARE
from .controls import SPARED
from .noise_law import WIDE
from .ranks import SHARED
from .specimen import Specimen

CHECKS = tuple(check.NAME for check in ALL)
MODULES = {check.NAME: check for check in ALL}
# The profiles whose draws are enough for what is rare, or shows at a large vocabulary only.
LARGE = ("ci", "deep")
# The rooms whose faults lie in what is recorded, loaded or kept: the engine cuda shows them too.
RECORDED = ("tests.zoo.memory", "tests.zoo.staleness", "tests.zoo.capture")
# Of the controls, the one that is recorded as those are.
RECORDED_CONTROL = "folded"
RAISED = "raised"
FINE = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)


class State(StrEnum):
    """What a cell says, worst first."""

    UNEXPECTED = "unexpected"
    KILLED = "killed"
    ALSO = "also killed"
    BLIND = "blind as stated"
    SURVIVED = "survived"
    PASSED = "passed"
    OUT = "n/a"


class Role(StrEnum):
    """What is expected of a check on a row."""

    KILLER = "named killer"
    BLIND = "named blind"
    OTHER = "any other"
    CONTROL = "control"


@dataclass(frozen=True)
class Seen:
    """One answer of a check on one case; outcome: of a verdict, or RAISED by the check itself."""

    case: str
    outcome: str
    reason: str
    seconds: float


@dataclass(frozen=True)
class Job:
    """One cell to be judged. row: id of a specimen or of a control.

    sizes: the profile that says how much is drawn, where it is not the one of the run. engine: what
    captures and replays.
    """

    row: str
    combination: tuple[str, str]
    check: str
    role: Role
    sizes: str = ""
    engine: str = "emulator"

    @property
    def label(self) -> str:
        """Family and dialect, as printed."""
        family, dialect = self.combination
        return family if dialect == "none" else f"{family}/{dialect}"


@dataclass(frozen=True)
class Cell:
    """A judged cell. seconds: until the first case that does not hold, else of all cases."""

    job: Job
    state: State
    outcomes: tuple[str, ...]
    seconds: float
    reason: str


@dataclass(frozen=True)
class Totals:
    """Counts over specimens whose killer was run, over blind checks that were, and controls."""

    specimens: int
    killed: int
    blind_asked: int
    blind: int
    also_killed: int
    controls: int
    flagged: int
    unexpected: int


def rooms() -> dict[str, tuple[Specimen, ...]]:
    """Every specimen, by the module that holds it, in the order of SPECIMENS, ranks last."""
    kept = (*SPECIMENS, *RARE, *WIDE, *SHARED)
    modules = dict.fromkeys(specimen.module for specimen in kept)
    return {name: tuple(s for s in kept if s.module == name) for name in modules}


def everyone() -> tuple[Specimen, ...]:
    """Every specimen, room by room."""
    return tuple(specimen for room in rooms().values() for specimen in room)


def torchrun(specimen: Specimen) -> str:
    """The command that judges a specimen over two ranks."""
    family, dialect = specimen.combination
    return (
        f"torchrun --nproc-per-node 2 -m oracle verify --subject {specimen.subject} "
        f"--check {specimen.killed_by} --only {family}/{dialect}"
    )


def elsewhere(specimen: Specimen, profile: str, engine: str = "emulator") -> str:
    """Why a specimen is not judged in one process of this engine and profile; '' where it is."""
    if engine == "cuda" and specimen.module not in RECORDED:
        room = specimen.module.rpartition(".")[2]
        return f"judged on the emulator, its fault is one of {room}: python -m tests.zoo"
    if specimen in SHARED:
        return f"judged under torchrun: {torchrun(specimen)}"
    if specimen in (*RARE, *WIDE) and profile not in LARGE:
        return f"needs profile ci: python -m tests.zoo --profile ci --only {specimen.id}"
    return ""


def role_of(specimen: Specimen, check: str) -> Role:
    """What is expected of a check on a specimen."""
    named = {specimen.killed_by: Role.KILLER, specimen.blind_to: Role.BLIND}
    return named.get(check, Role.OTHER)


def planned(
    profile: str,
    *,
    full: bool,
    only: Sequence[str] = (),
    checks: Sequence[str] = CHECKS,
    engine: str = "emulator",
) -> list[Job]:
    """The cells to judge: of specimens the named checks, of controls every check.

    full: of specimens every check, and of controls every combination, at the profile itself.
    engine: 'cuda' leaves out what no recording shows.
    """
    jobs = []
    for specimen in everyone():
        if (only and specimen.id not in only) or elsewhere(specimen, profile, engine):
            continue
        for check in checks:
            role = role_of(specimen, check)
            # What a check does not see in the draws of smoke is what it is blind to there.
            sizes = "smoke" if role is Role.BLIND and profile in LARGE and not full else ""
            if full or role is not Role.OTHER:
                jobs.append(Job(specimen.id, specimen.combination, check, role, sizes))
    for number, control in enumerate(SPARED):
        if (only and control not in only) or (engine == "cuda" and control != RECORDED_CONTROL):
            continue
        if full:
            jobs += [Job(control, c, n, Role.CONTROL) for c in COMBINATIONS for n in checks]
        else:
            jobs += dealt(number, control, profile, checks)
    return [replace(job, engine=engine) for job in jobs]


def dealt(number: int, control: str, profile: str, checks: Sequence[str]) -> list[Job]:
    """The cells of a control in a run that has minutes: one combination a check, dealt in turn.

    The draws of a large profile on every control take an hour: they are those of smoke.
    """
    sizes = "smoke" if profile in LARGE else ""
    jobs = []
    for check in checks:
        # DFLASH draws nothing, so a check of draws would be dealt a cell without an answer.
        drawing = set(MODULES[check].NEEDS) & {"DRAWS", "ACCEPTS"}
        known = [c for c in COMBINATIONS if c != ("dflash", "none")] if drawing else COMBINATIONS
        turn = known[(number + CHECKS.index(check)) % len(known)]
        jobs.append(Job(control, turn, check, Role.CONTROL, sizes))
    return jobs


def state_of(job: Job, outcomes: Iterable[str]) -> State:
    """What the outcomes of all cases say about a cell.

    A named killer has to answer violated wherever it does not hold; path, which never accuses,
    unknown. A named blind check has to hold somewhere. A check that raised is always unexpected.
    """
    present = set(outcomes)
    bad = present - set(FINE)
    if RAISED in present:
        return State.UNEXPECTED
    if job.role is Role.KILLER:
        wanted = Outcome.UNKNOWN if job.check == "path" else Outcome.VIOLATED
        return State.KILLED if bad == {wanted} else State.UNEXPECTED
    if job.role is Role.BLIND:
        holds = Outcome.HOLDS in present and not bad
        return State.BLIND if holds else State.UNEXPECTED
    if bad:
        return State.UNEXPECTED if job.role is Role.CONTROL else State.ALSO
    if Outcome.HOLDS not in present:
        return State.OUT
    return State.PASSED if job.role is Role.CONTROL else State.SURVIVED


def cell(job: Job, seen: Sequence[Seen]) -> Cell:
    """The cell of a job from all that its check answered."""
    first = next((n for n, one in enumerate(seen) if one.outcome not in FINE), None)
    read = seen if first is None else seen[: first + 1]
    return Cell(
        job,
        state_of(job, (one.outcome for one in seen)),
        tuple(one.outcome for one in seen),
        sum(one.seconds for one in read),
        f"{read[-1].case}: {read[-1].reason}" if read else "the check answered nothing",
    )


def merged(cells: Iterable[Cell]) -> dict[tuple[str, str], Cell]:
    """One cell a row and check: the worst over the combinations."""
    order = list(State)
    found: dict[tuple[str, str], Cell] = {}
    for each in cells:
        key = (each.job.row, each.job.check)
        if key not in found or order.index(each.state) < order.index(found[key].state):
            found[key] = each
    return found


def totals(cells: Sequence[Cell]) -> Totals:
    """Detection and false alarms of a run."""

    def rows(role: Role, *states: State) -> set[str]:
        wanted = states or tuple(State)
        return {c.job.row for c in cells if c.job.role is role and c.state in wanted}

    return Totals(
        specimens=len(rows(Role.KILLER)),
        killed=len(rows(Role.KILLER, State.KILLED)),
        blind_asked=len(rows(Role.BLIND)),
        blind=len(rows(Role.BLIND, State.BLIND)),
        also_killed=sum(c.state is State.ALSO for c in cells),
        controls=len(rows(Role.CONTROL)),
        flagged=len(rows(Role.CONTROL, State.UNEXPECTED)),
        unexpected=sum(c.state is State.UNEXPECTED for c in cells),
    )


def absent(profile: str, only: Sequence[str] = (), engine: str = "emulator") -> Mapping[str, str]:
    """Specimens that are judged elsewhere, with the command that does it."""
    asked = [specimen for specimen in everyone() if not only or specimen.id in only]
    return {s.id: why for s in asked if (why := elsewhere(s, profile, engine))}
