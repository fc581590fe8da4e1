"""Sampling parameters that several checks load."""

import torch

EVERY_ID = 2**30


def mixed(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every second row greedy, the others at temperature 0.8: [B] float32, [B] int64."""
    heat = torch.full((rows,), 0.8, dtype=torch.float32)
    top_k = torch.full((rows,), EVERY_ID, dtype=torch.int64)
    top_k[::2] = 1
    return heat, top_k
