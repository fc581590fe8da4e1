"""From target logits to the target law: temperature, then top-k, then top-p."""

import torch


def target_law(
    logits: torch.Tensor, temperature: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """The law p that committed tokens must follow.

    logits [..., V]; temperature [...] clamped; top_k [...] int64; top_p [...] in (0, 1]. The order
    is T, top-k, renormalised, top-p, renormalised. Returns [..., V] float64; a row without a law
    (a NaN, a +inf, nothing finite) holds NaN. top_p outside (0, 1] is a ValueError.
    """
    heated = logits.to(torch.float64) / temperature.to(torch.float64).unsqueeze(-1)
    softmax = torch.softmax(heated, dim=-1)
    return keep_top_p(keep_top_k(softmax, top_k), top_p)


def keep_top_k(law: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Keep exactly k ids, the likeliest, the lowest id on a tie.

    law [..., V] float64; top_k [...] int64: V or more keeps all, below 1 keeps one. Returns
    [..., V] float64, renormalised.
    """
    kept = ranks(law) < top_k.clamp(min=1).unsqueeze(-1)
    return renormalised(torch.where(kept, law, 0.0))


def keep_top_p(law: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Keep an id while the mass of those before it, the likeliest first, is below top_p.

    law [..., V] float64, ties by the lowest id; top_p [...] in (0, 1], 1 keeps all. Returns
    [..., V] float64, renormalised. top_p outside (0, 1] is a ValueError.
    """
    outside = ~((top_p > 0) & (top_p <= 1))
    if bool(outside.any()):
        raise ValueError(f"top_p is {float(top_p[outside][0])}, required: in (0, 1]")
    limit = top_p.to(torch.float64).unsqueeze(-1)
    ordered = law.sort(dim=-1, descending=True, stable=True).values
    mass_before = torch.nn.functional.pad(ordered.cumsum(dim=-1)[..., :-1], (1, 0))
    mass_before_id = mass_before.gather(-1, ranks(law))
    kept = (mass_before_id < limit) | (limit == 1)
    return renormalised(torch.where(kept, law, 0.0))


def ranks(law: torch.Tensor) -> torch.Tensor:
    """The place of each id when the likeliest comes first, the lowest id on a tie: [..., V]."""
    order = law.sort(dim=-1, descending=True, stable=True).indices
    return order.argsort(dim=-1)


def renormalised(mass: torch.Tensor) -> torch.Tensor:
    """Divide by the sum."""
    return mass / mass.sum(dim=-1, keepdim=True)
