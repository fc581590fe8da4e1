"""The engine for CPU tensors: obeys the rules of engine.py, and raises where a GPU would fail.

While recording, nothing is computed: tape.py notes each op, and a fence (hazard.py) refuses host
traffic by name. A replay runs the noted ops in order over the tensors of memory.py. A replay of
any recording of a pool poisons what earlier recordings of that pool returned (G10).

Blind: what follows may pass here and fail, or be refused late, on a GPU.
- `from_numpy` where torch does not announce it, `to_dlpack`, and `to(torch.device('cpu'))`, which
  may be the device of some tensor. Memory that did not outlive the call is refused at its end.
- Ops on other threads: they run at once and are not recorded.
- Calls inside a torch Python function, since the fence sees only the outer call.
- Stream order, asynchronous copies, real reuse of pool memory, races inside a kernel.
- Compiled Triton code, driver errors, and speed.
Stricter than a GPU: every index by a mask, also `x[mask] = number`; every op that torch tags as
reshaping in place; `data_ptr`, because code that is handed an address is not recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from .engine import Pool
from .hazard import Fence
from .memory import Memory
from .plan import tensors_of
from .tape import Step, Tape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["EmulatorEngine", "EmulatorRecording"]


class EmulatorEngine:
    """Records ops on CPU tensors."""

    name = "emulator"

    def pool(self) -> Pool:
        """Make a new pool; its handle lists the memories whose results are alive."""
        return Pool(self.name, [])

    def record(
        self,
        body: Callable[[], Any],
        *,
        pool: Pool,
        generators: Sequence[torch.Generator] = (),
    ) -> EmulatorRecording:
        """Record one call of `body`; see Engine.record."""
        alive = pool.handle_for(self.name)
        _refuse_inside("record")
        for generator in generators:
            if generator.device.type != "cpu":
                msg = f"a generator on {generator.device} was registered; required: cpu"
                raise ValueError(msg)
        memory, fence = Memory(), Fence()
        tape = Tape(memory, fence, generators)
        with torch.no_grad(), tape, fence:
            result = body()
        memory.seal()
        memory.share([tensors_of(step.args, step.kwargs, step.outputs) for step in tape.steps])
        return EmulatorRecording(result, tape.steps, memory, alive)


class EmulatorRecording:
    """Noted ops and the tensors they work on."""

    def __init__(self, result: Any, steps: list[Step], memory: Memory, alive: list[Memory]) -> None:
        """Keep what the tape noted; `alive` is shared by all recordings of the pool."""
        self.result = result
        self.replays = 0
        self.kernels = tuple(step.op for step in steps)
        self._steps = steps
        self._calls = [step[2:] for step in steps]
        self._memory = memory
        self._alive = alive

    def replay(self) -> None:
        """Run the noted ops once; Hazard G6 when memory they use is gone."""
        _refuse_inside("replay")
        self._memory.check()
        for memory in self._alive:
            if memory is not self._memory:
                memory.spoil()
        self._alive[:] = [self._memory]
        with torch.inference_mode():
            if torch.is_autocast_enabled("cpu"):
                # Casts were noted at capture; a caller's autocast must not add others.
                with torch.autocast("cpu", enabled=False):
                    self._run()
            else:
                self._run()
        self.replays += 1

    def _run(self) -> None:
        self._memory.blank()
        done = 0
        try:
            for call, args, kwargs, outputs in self._calls:
                value = call(*args, **kwargs)
                if outputs:
                    _store(value, outputs)
                done += 1
        except Exception as error:
            step = self._steps[done]
            error.add_note(f"while replaying {step.op}, recorded at {step.where}")
            self._memory.spoil()
            raise


def _store(value: Any, outputs: tuple[torch.Tensor, ...]) -> None:
    """Copy what an op returned into the tensors recorded for it."""
    if isinstance(value, torch.Tensor):
        outputs[0].copy_(value)
        return
    fresh = iter(outputs)
    for part in value:
        for tensor in part if isinstance(part, list | tuple) else (part,):
            if isinstance(tensor, torch.Tensor):
                next(fresh).copy_(tensor)


def _refuse_inside(verb: str) -> None:
    """Raise RuntimeError while this thread records."""
    if any(isinstance(mode, Tape) for mode in _get_current_dispatch_mode_stack()):
        msg = f"{verb} was called while recording; required: a recorded call without {verb}"
        raise RuntimeError(msg)
