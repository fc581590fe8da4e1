"""Residual and bonus token: one draw from a mass that need not sum to 1."""

import torch
from torch import Tensor


def residual(target: Tensor, claimed: Tensor, ratio: Tensor) -> Tensor:
    """Return max(ratio * p - q, 0), and p itself where that leaves no mass at all.

    target  [..., V] float32: p
    claimed [..., V] float32: q
    ratio   [...] float32: 1 for the chain rule, the prefix ratio for block verification
    result  [..., V] float32: zero wherever p is
    """
    rest = (ratio[..., None] * target - claimed).clamp(min=0)
    return torch.where(rest.sum(-1, keepdim=True) > 0, rest, target)


def inverse_cdf(mass: Tensor, uniform: Tensor) -> Tensor:
    """Return the first id whose cumulated mass exceeds `uniform` times the sum.

    mass    [B, V] float32, not negative, with a positive entry
    uniform [B] float32 in [0, 1]
    result  [B] int64

    Sums are float64. Where none exceeds it, the last id with mass; never an id without.
    """
    cumulated = mass.double().cumsum(-1)
    present = mass > 0
    # A parallel scan need not be monotone, so that an id without mass could be the first above.
    above = present & (cumulated > uniform.double()[:, None] * cumulated[:, -1:])
    place = torch.arange(mass.shape[-1], device=mass.device)
    last = torch.where(present, place, 0).amax(-1)
    return torch.where(above.any(-1), above.to(torch.uint8).argmax(-1), last)
