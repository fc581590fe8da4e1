"""How sure the draft is of each of its tokens."""

import torch

from .bias import embedded
from .logits import rounded


def raw_confidence(
    hidden: torch.Tensor,
    previous: torch.Tensor,
    w1: torch.Tensor | None,
    weight: torch.Tensor,
    bias: torch.Tensor,
) -> torch.Tensor:
    """The logit of each draft's confidence: weight [h ; e] + bias, or weight h + bias.

    hidden h [B, K, D], before the muP division; previous [B, K] int64, the token before each draft;
    w1 [V, R], of which e = w1[previous], or None; weight [1, D] or [1, D + R] float32; bias [1]
    float32. Returns [B, K] float64. Rounding points: e to the dtype of h, the sum to float32.
    Another width of weight is a ValueError.
    """
    size, width = hidden.shape[-1], weight.shape[1]
    rank = 0 if w1 is None else w1.shape[1]
    if width not in (size, size + rank):
        raise ValueError(f"confidence weight has {width} columns, required {size} or {size + rank}")
    features = hidden.to(torch.float64)
    if w1 is not None and width > size:
        embedding = rounded(embedded(previous, w1), hidden.dtype)
        features = torch.cat([features, embedding], dim=-1)
    logit = features @ weight[0].to(torch.float64) + bias.to(torch.float64)
    return rounded(logit, torch.float32)


def confidence(raw: torch.Tensor, sts: torch.Tensor | None = None) -> torch.Tensor:
    """Squash the logits: sigmoid(raw / sts).

    raw [B, K] float64; sts [K] the calibrated temperature of each draft, all > 0, or None for ones.
    Returns [B, K] float64 in [0, 1], NaN where raw is NaN. Another length of sts, or a value that
    is not positive, is a ValueError.
    """
    scale = torch.ones(raw.shape[1]) if sts is None else sts
    if scale.shape != raw.shape[1:]:
        raise ValueError(f"sts has shape {tuple(scale.shape)}, required ({raw.shape[1]},)")
    if not bool((scale > 0).all()):
        raise ValueError(f"sts holds {float(scale.min())}, required: all > 0")
    return torch.sigmoid(raw / scale.to(torch.float64))


def confidence_flags(squashed: torch.Tensor) -> torch.Tensor:
    """1 where a confidence is NaN, else 0: [B, K] uint8."""
    return squashed.isnan().to(torch.uint8)
