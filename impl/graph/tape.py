"""The emulator's tape: notes every op of one call without running it.

Outputs get their shape from tensors without data and start as poison. Views are made for real,
since a view is no device work. Ops that write are only noted. Allocations are never replayed:
running an `empty` again would put junk over the poison.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from .hazard import FRESH, Fence, Hazard, calling_line, identity, refuse_draw, refuse_op
from .memory import Memory
from .plan import Part, Planner, mapped, refuse_device, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ["Step", "Tape"]

_ALLOCATES = {
    f"aten::{name}"
    for name in (
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
    )
}
# Aliases its input although its schema does not say so.
_VIEWS = {"aten::_unsafe_view"}
_LIFTS = {"aten::lift", "aten::lift_fresh"}
_DECIDED_BY_OUT = {"dtype", "layout", "device", "pin_memory"}


class Step(NamedTuple):
    """One op to run at each replay."""

    op: str
    where: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[torch.Tensor, ...]  # what the call returns is copied into these


class Tape(TorchDispatchMode):
    """Turns ops into steps; refuses what a device capture would refuse."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spare the import of the compiler: a recorded call is never traced by it."""
        return False

    def __init__(self, memory: Memory, fence: Fence, generators: Sequence[torch.Generator]) -> None:
        """Record into `memory`; `fence` is the function mode active at the same time."""
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []
        self._memory = memory
        self._fence = fence
        self._registered = {identity(generator): generator for generator in generators}
        self._planner = Planner()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Collection[Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Judge `func`, then note it, make a view, or allocate."""
        kwargs = kwargs or {}
        if not isinstance(func, OpOverload):
            msg = f"{func} at {calling_line()} is no plain op; required: ops without Python bodies"
            raise NotImplementedError(msg)
        if torch.is_inference_mode_enabled():
            # There torch leaves compound ops whole; elsewhere they arrive in parts.
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        with torch._C.DisableTorchFunction():
            return self._note(func, args, kwargs)

    def _note(self, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = func._schema.name
        if name in _LIFTS:
            return self._lift(func, args[0])
        refuse_op(func, args, kwargs)
        refuse_draw(func, args, kwargs, self._registered)
        real = tensors_of(args, kwargs)
        self._refuse_scalar_copy(func, real)
        self._refuse_layout(func, real)
        if func.namespace == "c10d":
            return self._note_collective(func, args, kwargs)
        if func.namespace in ("_c10d_functional", "c10d_functional"):
            what = "is a functional collective, whose result a replay does not refill"
            instead = "use the torch.distributed call that writes into a given tensor"
            raise Hazard("G2", str(func), calling_line(), what, instead)
        if name in _ALLOCATES:
            blank = func(*args, **kwargs)
            refuse_device(func, blank)
            return self._memory.allocate_blank(blank)
        if func.is_view or name in _VIEWS or _answers_without_data(func):
            return func(*args, **kwargs)
        return self._note_op(func, args, kwargs, real)

    def _lift(self, func: OpOverload, fresh: torch.Tensor) -> torch.Tensor:
        if self._fence.writes_scalar and fresh.dim() == 0:
            return self._memory.constant(fresh)
        raise Hazard(FRESH.rule, str(func), calling_line(), FRESH.what, FRESH.instead)

    def _refuse_scalar_copy(self, func: OpOverload, real: list[torch.Tensor]) -> None:
        """Raise Hazard for x[0] = 3.0: a copy from the host, while x[:1] = 3.0 is a fill."""
        if func._schema.name == "aten::fill_":
            return
        if any(self._memory.is_constant(tensor) for tensor in real):
            instead = "write the number through a slice, x[:1] = 3.0, or with fill_"
            raise Hazard("G4", str(func), calling_line(), FRESH.what, instead)

    def _refuse_layout(self, func: OpOverload, real: list[torch.Tensor]) -> None:
        for tensor in real:
            if tensor.layout != torch.strided or tensor.is_conj() or tensor.is_neg():
                seen = f"{tensor.layout}, conjugate {tensor.is_conj()}, negative {tensor.is_neg()}"
                msg = f"{func} at {calling_line()} got a tensor that is {seen}"
                raise NotImplementedError(f"{msg}; required: a plain strided tensor")
            refuse_device(func, tensor)

    def _note_op(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        real: list[torch.Tensor],
    ) -> Any:
        made: list[torch.Tensor] = []

        def materialise(part: int | torch.Tensor) -> torch.Tensor:
            if isinstance(part, int):
                return real[part]
            made.append(self._memory.allocate(part))
            return made[-1]

        shaped = self._planner.plan(func, args, kwargs, real)
        result = mapped(shaped, Part, materialise)
        self._append(func, args, kwargs, tuple(made))
        return result

    def _append(
        self,
        func: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        made: tuple[torch.Tensor, ...],
        call: Callable[..., Any] | None = None,
    ) -> None:
        op, where = str(func), calling_line()

        def ghost(tensor: torch.Tensor) -> torch.Tensor:
            return self._memory.ghost(tensor, op, where)

        args, kwargs = mapped((args, kwargs), torch.Tensor, ghost)
        kwargs = {key: self._own_generator(value) for key, value in kwargs.items()}
        outputs = tuple(ghost(tensor) for tensor in made)
        writer = _writer(func, len(outputs)) if call is None and outputs else None
        if writer is not None:
            func, dropped, writes = writer
            kept = {key: value for key, value in kwargs.items() if key not in dropped}
            kwargs, outputs = {**kept, **dict(zip(writes, outputs, strict=True))}, ()
        # OpOverload.__call__ only forwards to _op; a replay has no time for that.
        self.steps.append(Step(op, where, call or func._op, args, kwargs, outputs))

    def _own_generator(self, value: Any) -> Any:
        return self._registered[identity(value)] if isinstance(value, torch.Generator) else value

    def _note_collective(self, func: OpOverload, args: tuple[Any, ...], kwargs: Any) -> Any:
        """Note a collective; run it too, since the caller needs a real work object to wait on."""
        touched = list(tensors_of(args, kwargs))
        before = [tensor.clone() for tensor in touched]

        def run_and_wait(*args: Any, **kwargs: Any) -> Any:
            returned = func(*args, **kwargs)
            for part in returned if isinstance(returned, tuple | list) else (returned,):
                if isinstance(part, torch.ScriptObject):
                    torch._C._distributed_c10d.Work.unbox(part).wait()
            return returned

        result = run_and_wait(*args, **kwargs)
        for tensor, value in zip(touched, before, strict=True):
            tensor.copy_(value)
        self._append(func, args, kwargs, (), call=run_and_wait)
        return result


@cache
def _answers_without_data(func: OpOverload) -> bool:
    """Return whether `func` returns no tensor yet returns something: a question about metadata."""
    returns = func._schema.returns
    return bool(returns) and not any("Tensor" in str(value.type) for value in returns)


@cache
def _writer(func: OpOverload, made: int) -> tuple[OpOverload, set[str], list[str]] | None:
    """Return the overload of `func` that writes its `made` results into given tensors, or None.

    With it, the keywords it does not take and those it writes to. It saves a temporary and a copy.
    Only aten is trusted to compute the same bits in both forms.
    """
    if func.namespace != "aten":
        return None
    plain = [argument.name for argument in func._schema.arguments]
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        takes = [argument.name for argument in other._schema.arguments if not argument.is_out]
        writes = [argument.name for argument in other._schema.arguments if argument.is_out]
        dropped = set(plain) - set(takes)
        kept = [argument for argument in plain if argument in takes]
        if len(writes) != made or kept != takes or not dropped <= _DECIDED_BY_OUT:
            continue
        if _same_types(func, other, kept):
            return other, dropped, writes
    return None


def _same_types(func: OpOverload, other: OpOverload, names: list[str]) -> bool:
    ours = {argument.name: str(argument.type) for argument in func._schema.arguments}
    theirs = {argument.name: str(argument.type) for argument in other._schema.arguments}
    return all(ours[name] == theirs[name] for name in names)
