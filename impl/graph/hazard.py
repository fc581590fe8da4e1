"""What may not happen while recording, and the error that says so.

Ops are judged by the tags that torch itself gives them, not by a list kept here; the two places
where the tags do not say enough are commented. Host reads on CPU tensors do not reach the
dispatcher, so a fence over the public torch functions sees those by name.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

__all__ = [
    "FRESH",
    "READ",
    "RULES",
    "SIZED",
    "STRANGER",
    "WAIT",
    "Fence",
    "Hazard",
    "Kind",
    "calling_line",
    "fenced",
    "identity",
    "refuse_draw",
    "refuse_op",
    "spoken",
]

RULES = {
    "G2": "every access goes through a recorded op",
    "G4": "no host read and no copy of fresh host data",
    "G5": "no shape that depends on data",
    "G6": "nothing captured is freed, moved or resized",
    "G7": "draws come from a generator registered with the recording",
}

_USE_MASK = "keep the shape and mask: torch.where, masked_fill or an index tensor"
_USE_DEVICE = "keep the value in a tensor and choose with torch.where"
_USE_BUFFER = "make the tensor before recording and copy new values into it between replays"
_USE_VIEW = "use the form that returns a view, such as squeeze or reshape"
_USE_GENERATOR = "pass generator=, and register it: record(..., generators=[...])"
_USE_CUSTOM_OP = "wrap the code in torch.library.custom_op and declare what it mutates"


class Kind(NamedTuple):
    """A way to break a rule, in the words of every engine: rule, what was seen, what to do."""

    rule: str
    what: str
    instead: str


READ = Kind("G4", "reads a tensor's value on the host", _USE_DEVICE)
WAIT = Kind("G4", "waits for the device", _USE_DEVICE)
FRESH = Kind("G4", "copies fresh host data", _USE_BUFFER)
SIZED = Kind("G5", "makes a shape that depends on values", _USE_MASK)
RESHAPED = Kind("G6", "changes a tensor's shape or storage in place", _USE_VIEW)
MOVED = Kind("G6", "gives a tensor another storage", _USE_BUFFER)
IMPLICIT = Kind("G7", "draws from the implicit default generator", _USE_GENERATOR)
STRANGER = Kind("G7", "draws from a generator that is not registered", _USE_GENERATOR)
RAW = Kind("G2", "hands a raw address to code that is not recorded", _USE_CUSTOM_OP)


class Hazard(RuntimeError):
    """A rule of engine.py was broken.

    rule     'G4' and so on
    op       the op or torch function that broke it
    where    'file:line' of the caller's line
    what     what was observed
    instead  what to do instead
    """

    def __init__(self, rule: str, op: str, where: str, what: str, instead: str) -> None:
        """Build the message from the parts."""
        required = RULES[rule]
        super().__init__(
            f"{rule}: {op}, called at {where}, {what}; required of a recording: {required}."
            f" Instead: {instead}."
        )
        self.rule = rule
        self.op = op
        self.where = where
        self.what = what
        self.instead = instead


_INNER = tuple(str(Path(file).parent) + "/" for file in (torch.__file__, __file__))


def calling_line() -> str:
    """Return 'file:line' of the innermost frame outside torch and this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INNER):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def refuse_op(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise Hazard when `func` reads data on the host, sizes by data, or reshapes in place."""
    tags = func.tags
    if torch.Tag.data_dependent_output in tags:
        _refuse(READ, func)
    if _sizes_by_data(func, args, kwargs):
        _refuse(SIZED, func)
    if torch.Tag.inplace_view in tags:
        _refuse(RESHAPED, func)


def _refuse(kind: Kind, func: Any) -> None:
    raise Hazard(kind.rule, str(func), calling_line(), kind.what, kind.instead)


def _sizes_by_data(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    # index carries the shape tag always and index_put_ never; only a mask sizes by data.
    indices = _argument(func, args, kwargs, "indices")
    if isinstance(indices, list | tuple):
        masks = (torch.bool, torch.uint8)
        return any(index is not None and index.dtype in masks for index in indices)
    # repeat_interleave reads its repeats only to learn a size that it was not given.
    sized = _argument(func, args, kwargs, "output_size") is not None
    return torch.Tag.dynamic_output_shape in func.tags and not sized


def _argument(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], name: str) -> Any:
    """Return what `func` gets under `name`, its default, or None when it takes no such thing."""
    place = _place(func, name)
    if place is None:
        return None
    position, default = place
    return kwargs.get(name, args[position] if position < len(args) else default)


@cache
def _place(func: Any, name: str) -> tuple[int, Any] | None:
    """Position and default of an argument; None when `func` takes no such thing."""
    for position, argument in enumerate(func._schema.arguments):
        if argument.name == name:
            return position, argument.default_value
    return None


def identity(generator: torch.Generator) -> int:
    """Return what names the generator; the dispatcher hands over a new Python object each time."""
    return int(generator._cdata)  # type: ignore[attr-defined]


def refuse_draw(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], registered: Collection[int]
) -> None:
    """Raise Hazard when `func` draws from a generator whose identity is not in `registered`."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return
    # Attention carries the tag for its dropout, also where that is off.
    if _argument(func, args, kwargs, "dropout_p") == 0:
        return
    generator = _argument(func, args, kwargs, "generator")
    if generator is None:
        _refuse(IMPLICIT, func)
    elif identity(generator) not in registered:
        _refuse(STRANGER, func)


_READS = "item tolist numpy cpu __array__ __repr__ __format__ __bool__ __float__ __int__ __index__"
_FENCED = {
    **dict.fromkeys((*_READS.split(), "__complex__", "__dlpack__"), READ),
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "new_tensor", "pin_memory"), FRESH),
    "data_ptr": RAW,
}
_TAKES_TENSOR = ("as_tensor", "asarray")


def spoken(func: Any) -> str:
    """Return a torch function as its caller writes it: torch.tensor, Tensor.item."""
    owner = "Tensor" if getattr(func, "__qualname__", "").startswith("Tensor") else "torch"
    return f"{owner}.{getattr(func, '__name__', func)}"


class Fence(TorchFunctionMode):
    """Refuses, by name, host traffic that does not reach the dispatcher on CPU tensors."""

    def __init__(self) -> None:
        """Start outside any scalar write."""
        super().__init__()
        self.writes_scalar = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Refuse `func`, or run it."""
        kwargs = kwargs or {}
        found = fenced(func, args, kwargs)
        if found is not None:
            op, kind = found
            raise Hazard(kind.rule, op, calling_line(), kind.what, kind.instead)
        if getattr(func, "__name__", "") != "__setitem__":
            return func(*args, **kwargs)
        # A Python number stored by x[...] = 3.0 is a host tensor on CPU and a fill on a GPU.
        self.writes_scalar = isinstance(args[2], bool | int | float | complex)
        try:
            return func(*args, **kwargs)
        finally:
            self.writes_scalar = False


def fenced(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, Kind] | None:
    """Return how a torch function is named and what it does wrong, None when it may be called."""
    name = getattr(func, "__name__", "")
    kind = _FENCED.get(name)
    if func == torch.Tensor.data.__set__:  # type: ignore[attr-defined]
        return "Tensor.data", MOVED
    if name == "to" and _leaves_device(args, kwargs):
        kind = READ
    elif name in _TAKES_TENSOR and args and isinstance(args[0], torch.Tensor):
        kind = None
    return None if kind is None else (spoken(func), kind)


def _leaves_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether x.to(...) names the host in words, or a device other than x's own."""
    own = args[0].device
    for value in (*args[1:], *kwargs.values()):
        if isinstance(value, str):
            return True
        # torch.device('cpu') may be some x.device, which on a GPU would not be the host.
        if isinstance(value, torch.device) and value.type != own.type:
            return True
    return False
