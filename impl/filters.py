"""Target law: what a sampled row should follow, after temperature, top-k and top-p."""

import torch
from torch import Tensor


def target_law(target: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Return softmax(target / T), then top-k, then top-p, renormalised after each.

    target      [B, N, V] float
    temperature [B] float32, clamped at admission
    top_k       [B] int64: exactly so many ids stay, the lowest of equal ones; V or more keeps all
    top_p       [B] float32 in (0, 1]: an id stays while the mass before it is below; 1 keeps all
    result      [B, N, V] float32: zero where an id was dropped; NaN throughout a row that holds a
                NaN or +inf, or nothing finite

    Float32, but for sums that decide what stays. Ids are ordered by their logits, because float32
    makes equal masses of unequal logits.
    """
    wide, heat = target.float(), temperature[:, None, None]
    ordered, order = torch.sort(wide, dim=-1, descending=True, stable=True)
    # The largest is taken off before the division, which could overflow behind a small T.
    mass = torch.softmax((ordered - wide.amax(-1, keepdim=True)) / heat, -1)
    place = torch.arange(target.shape[-1], device=target.device)
    mass = _renormalised(mass, place < top_k.clamp(min=1)[:, None, None])
    share = top_p[:, None, None].double()
    before = mass.double().cumsum(-1) - mass.double()
    # Rounding may sum to more than 1 before the last id.
    mass = _renormalised(mass, (before < share) | (share >= 1))
    return torch.zeros_like(wide).scatter(-1, order, mass)


def _renormalised(mass: Tensor, stays: Tensor) -> Tensor:
    # A product with the mask would hide a NaN that was dropped, and so would a fill.
    kept = torch.where(stays | mass.isnan(), mass, 0.0)
    return kept / kept.sum(-1, keepdim=True)
