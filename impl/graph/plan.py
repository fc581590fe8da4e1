"""What an op returns, worked out without its data: arguments, or new tensors of known shape.

Meta tensors, or fake ones where those do not know an op, answer once for each op and each layout
of its arguments; a sampler repeats the same op on the same layouts hundreds of times, so the
answers are kept.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException

from .hazard import Hazard, calling_line

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Part", "Planner", "mapped", "refuse_device", "tensors_of"]


class Argument(int):
    """A result that is the argument of this number."""


Part = (Argument, torch.Tensor)


class Planner:
    """Answers what an op returns; one memory of answers a process."""

    known: ClassVar[dict[tuple[Any, ...], Any]] = {}
    known_max: ClassVar[int] = 20_000

    def plan(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        real: list[torch.Tensor],
    ) -> Any:
        """Return the structure of the result.

        real: the tensors among the arguments, in order. A leaf of the result is an Argument or a
        meta tensor that has the layout of a new one. Hazard: a result only its data decides (G5),
        an argument that would be resized (G6), or a result on another device (G4).
        """
        key = _key(func, args, kwargs)
        if key not in self.known:
            if len(self.known) >= self.known_max:
                self.known.clear()
            self.known[key] = self._worked_out(func, args, kwargs, real)
        return self.known[key]

    def _worked_out(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        real: list[torch.Tensor],
    ) -> Any:
        try:
            blank, shaped = _on_meta(func, args, kwargs, real)
        except Exception:  # noqa: BLE001 - fake tensors know more ops, and say why they know none
            blank, shaped = _on_fakes(func, args, kwargs, real)
        numbers: dict[int, int] = {}
        for number, tensor in enumerate(real):
            numbers.setdefault(id(blank[number]), number)
            if blank[number].shape != tensor.shape:
                what = f"resizes an argument of shape {tuple(tensor.shape)}"
                instead = "give the op an output of the right shape"
                raise Hazard("G6", str(func), calling_line(), what, instead)

        def part(tensor: torch.Tensor) -> Argument | torch.Tensor:
            if id(tensor) in numbers:
                return Argument(numbers[id(tensor)])
            return _layout(tensor, "meta")

        kinds = {id(tensor) in numbers for tensor in tensors_of(shaped)}
        if len(kinds) > 1:
            msg = f"{func} at {calling_line()} returns both new tensors and its arguments"
            raise NotImplementedError(f"{msg}; required: one or the other")
        return mapped(shaped, torch.Tensor, part)


def _on_meta(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], real: list[torch.Tensor]
) -> tuple[list[torch.Tensor], Any]:
    """Arguments without data, and what `func` makes of them; ten times as fast as fake tensors."""
    if kwargs.get("device") not in (None, torch.device("cpu")):
        raise NotImplementedError(f"{func} names {kwargs['device']}")
    if "device" in kwargs:
        kwargs = {**kwargs, "device": torch.device("meta")}
    given = {id(tensor): _layout(tensor, "meta") for tensor in real}
    args, kwargs = mapped((args, kwargs), torch.Tensor, lambda tensor: given[id(tensor)])
    shaped = func(*args, **_without_generator(kwargs))
    if any(not tensor.is_meta for tensor in tensors_of(shaped)):
        raise NotImplementedError(f"{func} has data in spite of arguments that have none")
    return [given[id(tensor)] for tensor in real], shaped


def _on_fakes(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], real: list[torch.Tensor]
) -> tuple[list[torch.Tensor], Any]:
    """The same with fake tensors, which know their device. Hazard G5, G4."""
    with _fake():
        given = {id(tensor): _layout(tensor, "cpu") for tensor in real}
    args, kwargs = mapped((args, kwargs), torch.Tensor, lambda tensor: given[id(tensor)])
    try:
        with _fake():
            shaped = func(*args, **_without_generator(kwargs))
    except UnsupportedFakeTensorException as error:
        what = f"has a result that only its data decides ({type(error).__name__})"
        instead = "keep the shape and mask, or write into a given tensor"
        raise Hazard("G5", str(func), calling_line(), what, instead) from error
    for tensor in tensors_of(shaped):
        refuse_device(func, tensor)
    return [given[id(tensor)] for tensor in real], shaped


def _without_generator(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Shapes do not depend on a generator, and some shape functions refuse one."""
    return {key: None if key == "generator" else value for key, value in kwargs.items()}


@cache
def _fake() -> FakeTensorMode:
    """The fake mode; making one takes longer than most answers."""
    return FakeTensorMode()


def _layout(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of the same shape, strides and dtype, with a storage of its own."""
    shape = tuple(tensor.shape)
    return torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device=device)


def _key(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Everything a shape function may look at: layouts, which arguments are one, plain values."""
    order: dict[int, int] = {}

    def part(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            same = order.setdefault(id(value), len(order))
            return same, value.dtype, value.shape, value.stride()
        if isinstance(value, list | tuple):
            return type(value), *map(part, value)
        # The words of a number, since 1, 1.0 and True are one key.
        return "generator" if isinstance(value, torch.Generator) else (type(value), repr(value))

    named = [(key, part(value)) for key, value in kwargs.items()]
    return (func, part(args), *named)


def refuse_device(func: OpOverload, tensor: torch.Tensor) -> None:
    """Raise Hazard for a tensor that is not on the CPU, the emulator's only device."""
    if tensor.device.type != "cpu":
        what = f"has a tensor on {tensor.device}"
        instead = "keep all recorded work on the cpu, the emulator's only device"
        raise Hazard("G4", str(func), calling_line(), what, instead)


def tensors_of(*trees: Any) -> list[torch.Tensor]:
    """The tensors of what an op takes or returns, in order: values in lists, tuples and dicts."""
    found: list[torch.Tensor] = []
    for tree in trees:
        if isinstance(tree, torch.Tensor):
            found.append(tree)
        elif isinstance(tree, list | tuple):
            found += tensors_of(*tree)
        elif isinstance(tree, dict):
            found += tensors_of(*tree.values())
    return found


def mapped(tree: Any, kind: Any, new: Callable[[Any], Any]) -> Any:
    """The same lists, tuples and dicts with `new` of every leaf of a kind in its place."""
    if isinstance(tree, kind):
        return new(tree)
    if isinstance(tree, list | tuple):
        parts = [mapped(value, kind, new) for value in tree]
        return parts if isinstance(tree, list) else tuple(parts)
    if isinstance(tree, dict):
        return {key: mapped(value, kind, new) for key, value in tree.items()}
    return tree
