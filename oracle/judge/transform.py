"""The randomised probability integral transform of drawn tokens."""

import torch


def below(law: torch.Tensor, picked: torch.Tensor, order: str) -> torch.Tensor:
    """Mass of the ids that stand before each token, by id or by descending probability.

    law [..., V] float64, picked [...] int64. Returns [...] float64.
    """
    if order == "id":
        before = torch.arange(law.shape[-1]) < picked.unsqueeze(-1)
        return (law * before).sum(-1)
    own = law.gather(-1, picked.unsqueeze(-1))
    ties = (law == own) & (torch.arange(law.shape[-1]) < picked.unsqueeze(-1))
    return (law * ((law > own) | ties)).sum(-1)


def transformed(
    law: torch.Tensor, picked: torch.Tensor, order: str, w: torch.Tensor
) -> torch.Tensor:
    """U = F(x-) + w p(x): independent and uniform under the law, whatever the contexts.

    law [..., V] float64; picked [...] int64; w [...] float64, uniform in [0, 1) from the judge's
    own seed. Returns [...] float64 in [0, 1).
    """
    mass = law.gather(-1, picked.unsqueeze(-1)).squeeze(-1)
    return (below(law, picked, order) + w * mass).clamp(0, 1 - 1e-12)
