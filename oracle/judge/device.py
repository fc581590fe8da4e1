"""What a run asks of its device: what it multiplies, how much memory it held, what it left out."""

from collections.abc import Mapping
from typing import Any

import torch

from .loading import build
from .protocol import Factory, Setting

Capability = tuple[int, int]

# Before this, no matrix unit takes bfloat16: products go another way, or no way at all.
BFLOAT16_SINCE: Capability = (8, 0)


def capability(device: str) -> Capability | None:
    """The compute capability of a device, None where there is no such thing."""
    if not device.startswith("cuda"):
        return None
    return torch.cuda.get_device_capability(device)


def lacks(setting: Setting, found: Capability | None) -> str:
    """What a setting needs and a GPU of that capability has not, as a reason; '' for nothing."""
    if found is None or found >= BFLOAT16_SINCE:
        return ""
    names = {str(setting["head"].dtype).removeprefix("torch."), setting["step_dtype"]}
    if "bfloat16" not in names:
        return ""
    return f"compute capability is {found}, required for bfloat16: at least {BFLOAT16_SINCE}"


def peak(device: str) -> int:
    """Bytes of GPU memory that this process reserved at most; 0 on a CPU."""
    return torch.cuda.max_memory_reserved(device) if device.startswith("cuda") else 0


def abilities_on_cpu(factory: Factory, setting: Setting) -> tuple[str, ...] | None:
    """What the sampler of a setting can do on the CPU, None when it cannot be built there."""
    for engine in ("emulator", "eager"):
        elsewhere: Mapping[str, Any] = {
            name: value.to("cpu", copy=True) if isinstance(value, torch.Tensor) else value
            for name, value in {**setting, "device": "cpu", "engine": engine}.items()
        }
        try:
            return tuple(build(factory, elsewhere).describe()["abilities"])
        except Exception:  # noqa: BLE001, S112 - a sampler that fails there is not served there
            continue
    return None
