"""What an op returns, worked out without its data: arguments, or new tensors of known shape.

Fake tensors answer once for each op and each layout of its arguments; a sampler repeats the same
op on the same layouts hundreds of times, so the answers are kept.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedFakeTensorException
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from .hazard import Hazard, calling_line

__all__ = ["Part", "Planner", "refuse_device", "tensors_of"]


class Argument(int):
    """A result that is the argument of this number."""


Part = (Argument, torch.Tensor)


class Planner:
    """Answers what an op returns; one fake mode a recording, one memory of answers a process."""

    known: ClassVar[dict[tuple[Any, ...], Any]] = {}
    known_max: ClassVar[int] = 20_000

    def __init__(self) -> None:
        """Make the fake mode."""
        self._fake = FakeTensorMode()

    def plan(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        real: list[torch.Tensor],
    ) -> Any:
        """Return the structure of the result.

        real: the tensors among the arguments, in order. A leaf of the result is an Argument or a
        fake tensor that has the layout of a new one. Hazard: a result only its data decides (G5),
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
        fakes = {id(tensor): self._fake.from_tensor(tensor, static_shapes=True) for tensor in real}
        asked = tree_map_only(torch.Tensor, lambda tensor: fakes[id(tensor)], (args, kwargs))
        shaped = self._shapes(func, *asked)
        numbers: dict[int, int] = {}
        for number, tensor in enumerate(real):
            fake = fakes[id(tensor)]
            numbers.setdefault(id(fake), number)
            if fake.shape != tensor.shape:
                what = f"resizes an argument of shape {tuple(tensor.shape)}"
                instead = "give the op an output of the right shape"
                raise Hazard("G6", str(func), calling_line(), what, instead)

        def part(fake: torch.Tensor) -> Argument | torch.Tensor:
            if id(fake) in numbers:
                return Argument(numbers[id(fake)])
            refuse_device(func, fake)
            return torch.empty_strided(
                tuple(fake.shape), fake.stride(), dtype=fake.dtype, device="meta"
            )

        planned = tree_map_only(torch.Tensor, part, shaped)
        kinds = {
            isinstance(leaf, Argument) for leaf in tree_leaves(planned) if isinstance(leaf, Part)
        }
        if len(kinds) > 1:
            msg = f"{func} at {calling_line()} returns both new tensors and its arguments"
            raise NotImplementedError(f"{msg}; required: one or the other")
        return planned

    def _shapes(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        # Shapes do not depend on a generator, and some shape functions refuse one.
        kwargs = {key: None if key == "generator" else value for key, value in kwargs.items()}
        try:
            with self._fake:
                return func(*args, **kwargs)
        except UnsupportedFakeTensorException as error:
            what = f"has a result that only its data decides ({type(error).__name__})"
            instead = "keep the shape and mask, or write into a given tensor"
            raise Hazard("G5", str(func), calling_line(), what, instead) from error


def _key(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Everything a shape function may look at: layouts, which arguments are one, plain values."""
    leaves, spec = tree_flatten((args, kwargs))
    order: dict[int, int] = {}
    parts: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            same = order.setdefault(id(leaf), len(order))
            parts.append((same, leaf.dtype, leaf.shape, leaf.stride(), leaf.storage_offset()))
        elif isinstance(leaf, torch.Generator):
            parts.append("generator")
        else:
            parts.append((type(leaf), repr(leaf)))
    return (func, str(spec), *parts)


def refuse_device(func: OpOverload, tensor: torch.Tensor) -> None:
    """Raise Hazard for a tensor that is not on the CPU, the emulator's only device."""
    if tensor.device.type != "cpu":
        what = f"has a tensor on {tensor.device}"
        instead = "keep all recorded work on the cpu, the emulator's only device"
        raise Hazard("G4", str(func), calling_line(), what, instead)


def tensors_of(*trees: Any) -> list[torch.Tensor]:
    """The tensors of nested values, in order."""
    return [leaf for leaf in tree_leaves(trees) if isinstance(leaf, torch.Tensor)]
