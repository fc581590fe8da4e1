"""What to do with a subject, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from .protocol import Setting, Tensors


@dataclass(frozen=True)
class Reseed:
    """Restart the noise from a seed."""

    seed: int


@dataclass(frozen=True)
class Load:
    """Load the named inputs. `edit`: write their values into the tensors of the last load first."""

    inputs: str
    edit: bool = False


@dataclass(frozen=True)
class Replay:
    """Run one block. `redraw`: store the race noise it consumed, drawn again from its state."""

    redraw: bool = True


@dataclass(frozen=True)
class Read:
    """Read the outputs of the last block. only: the fields to store; all of them when empty."""

    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Count:
    """Run blocks of what is loaded from a seed, and store how often each pair of tokens came up.

    read: the judge counts, block by block; else the subject does (COUNTS).
    """

    seed: int
    replays: int
    read: bool = False


@dataclass(frozen=True)
class Eager:
    """Run the named inputs outside the recording, and store the outputs like a read."""

    inputs: str


@dataclass(frozen=True)
class Reweight:
    """Write new values into the named weights of the setting, in place."""

    weights: Tensors


@dataclass(frozen=True)
class Poison:
    """Overwrite a buffer with value 0 or 1 of its role's poison (drive.POISON)."""

    buffer: str
    which: int


@dataclass(frozen=True)
class Observe:
    """Store the content and the address of a buffer. must: a subject without it has erred."""

    buffer: str
    must: bool = True


@dataclass(frozen=True)
class Reread:
    """Store what the tensors returned by the read before `reads_ago` further ones hold now."""

    reads_ago: int


@dataclass(frozen=True)
class Accept:
    """Accept the block read last, folded or eager, against a target law by the token before.

    target: name of inputs that hold `table` [V, V] float32 (row a: target logits after token a),
    `top_p` [B], `verify_len` [B] and `prefix_len` [B]. rule: 'chain' or 'block'.
    """

    target: str
    rule: str = "chain"


@dataclass(frozen=True)
class Ask:
    """Ask a gate about facts."""

    facts: Mapping[str, Any]


Command: TypeAlias = (
    Reseed
    | Load
    | Replay
    | Read
    | Count
    | Eager
    | Reweight
    | Poison
    | Observe
    | Reread
    | Accept
    | Ask
)


@dataclass(frozen=True)
class Plan:
    """One case of one check: what to build, what to load, what to do.

    case names it in reports. confirm holds the commands of stage two, played on the same subject
    when stage one was alarmed. notes: plain values the check needs to judge the history.
    """

    check: str
    case: str
    setting: Setting
    inputs: Mapping[str, Tensors] = field(default_factory=dict)
    commands: tuple[Command, ...] = ()
    confirm: tuple[Command, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)


def block(inputs: str, *, edit: bool = False, redraw: bool = True) -> tuple[Command, ...]:
    """Load, replay, read: one block."""
    return (Load(inputs, edit), Replay(redraw), Read())


def repeated(count: int, *, redraw: bool = False) -> tuple[Command, ...]:
    """Replay what is loaded `count` times, reading every block."""
    return (Replay(redraw), Read()) * count


def unserved(plan: Plan, served: Sequence[str] | None) -> str:
    """The first accept rule of a plan that is not among those served, or ''; None serves all."""
    asked = (command.rule for command in plan.commands if isinstance(command, Accept))
    return next((rule for rule in asked if served is not None and rule not in served), "")
