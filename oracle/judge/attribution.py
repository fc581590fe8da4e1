"""Which input was stale: the one whose earlier value explains what was observed."""

from collections.abc import Sequence

import torch

from . import margin
from .coupling import couple
from .protocol import Setting, Tensors


def stale_field(
    setting: Setting,
    inputs: Tensors,
    earlier: Sequence[Tensors],
    outputs: Tensors,
    e: torch.Tensor | None,
    arithmetic: margin.Arithmetic,
) -> str:
    """Name the field whose value of an earlier load makes the reference agree.

    earlier: the inputs of previous loads, latest first. Returns a phrase for a report, such as
    "temperature is 1 load old", or "" when no single earlier field explains the outputs.
    """
    for age, old in enumerate(earlier, start=1):
        for field in inputs:
            if old[field].shape != inputs[field].shape or torch.equal(old[field], inputs[field]):
                continue
            substituted = {**inputs, field: old[field]}
            if couple(setting, substituted, outputs, e, arithmetic).illegal == 0:
                loads = "load" if age == 1 else "loads"
                return f"{field} is {age} {loads} old"
    return ""
