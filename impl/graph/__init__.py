"""Graph engines: record one call of a function once, replay its device work many times.

engine.py    what an engine promises: Engine, Recording, Pool and the rules G1 to G10
hazard.py    what may not happen while recording: the Hazard error and the checks that raise it
emulator.py  the engine for CPU tensors; tape.py records for it, memory.py owns its tensors
cuda.py      the engine for CUDA tensors, torch.cuda.CUDAGraph

Nothing here knows what is being recorded.
"""

from __future__ import annotations

import torch

from .cuda import CudaEngine
from .emulator import EmulatorEngine
from .engine import Engine, Pool, Recording
from .hazard import Hazard

__all__ = ["Engine", "Hazard", "Pool", "Recording", "engine_for"]

_NAMES = ("auto", "emulator", "cuda")


def engine_for(device: torch.device | str, name: str = "auto") -> Engine:
    """Return the engine that records work on `device`.

    device  where the recorded tensors live: a cpu or a cuda device
    name    'auto' (by device), 'emulator' (cpu only) or 'cuda' (a cuda device and a GPU only)
    Raises ValueError when the name is unknown or the engine cannot serve the device.
    """
    where = torch.device(device)
    if name not in _NAMES:
        msg = f"engine {name!r} is unknown; required: one of {', '.join(_NAMES)}"
        raise ValueError(msg)
    if where.type not in ("cpu", "cuda"):
        msg = f"no engine records work on device {where}; required: a cpu or a cuda device"
        raise ValueError(msg)
    wanted = {"cpu": "emulator", "cuda": "cuda"}[where.type]
    if name not in ("auto", wanted):
        msg = f"engine {name!r} cannot record work on device {where}; required: {wanted!r}"
        raise ValueError(msg)
    if wanted == "emulator":
        return EmulatorEngine()
    if not torch.cuda.is_available():
        msg = f"device {where} was asked for and torch finds no usable GPU; required: one GPU"
        raise ValueError(msg)
    return CudaEngine(where)
