"""Where a run took place: versions by package metadata, device, and the settings it found."""

import os
import platform
from collections.abc import Sequence
from functools import cache
from importlib import metadata
from typing import Any

import torch

PACKAGES = ("draftproof", "torch", "numpy", "scipy", "triton", "transformers")
PREFIX = "DRAFTPROOF_"


@cache
def version(package: str) -> str:
    """The installed version of a package, or 'absent'."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def environment(device: str, peaks: Sequence[int] = ()) -> dict[str, Any]:
    """Versions, machine, GPU and every DRAFTPROOF_ variable as found.

    device 'cpu' or 'cuda'; peaks: bytes of GPU memory that each process of the run reserved at
    most. Returns plain values only.
    """
    found: dict[str, Any] = {name: version(name) for name in PACKAGES}
    found["python"] = platform.python_version()
    found["machine"] = platform.machine()
    found["threads"] = torch.get_num_threads()
    found["device"] = device
    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        found["gpu"] = properties.name
        found["sm_count"] = properties.multi_processor_count
        found["cuda"] = str(torch.version.cuda)
        if peaks:
            found["gpu_peak_bytes"] = list(peaks)
    found["variables"] = {
        name: value for name, value in sorted(os.environ.items()) if name.startswith(PREFIX)
    }
    return found
