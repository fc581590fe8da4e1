"""Sampling parameters and head weights that several checks load."""

from typing import Any

import torch

from ..protocol import Setting

EVERY_ID = 2**30


def mixed(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Every second row greedy, the others at temperature 0.8: [B] float32, [B] int64."""
    heat = torch.full((rows,), 0.8, dtype=torch.float32)
    top_k = torch.full((rows,), EVERY_ID, dtype=torch.int64)
    top_k[::2] = 1
    return heat, top_k


def head_weights(seed: int, markov: str, setting: Setting) -> dict[str, Any]:
    """w3 and b3 of a gated or recurrent head, on a grid; nothing for a vanilla one."""
    if markov == "vanilla":
        return {}
    rank, hidden = setting["w1"].shape[1], setting["head"].shape[1]
    rows = (rank, hidden + rank) if markov == "gated" else (3 * rank, 2 * rank + hidden)
    source = torch.Generator().manual_seed(seed + 17)
    w3 = 0.125 * torch.randint(-4, 5, rows, generator=source).float()
    b3 = 0.25 * torch.randint(-4, 5, rows[:1], generator=source).float()
    dtype = setting["head"].dtype
    return {"markov": markov, "w3": w3.to(dtype), "b3": b3.to(dtype)}
