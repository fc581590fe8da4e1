"""Exact laws of a drafted block over a small vocabulary, by enumeration."""

import torch

from .choice import law, step_logits
from .draft import Bias


def transitions(
    base: torch.Tensor, bias: Bias, temperature: float, dtype: torch.dtype
) -> torch.Tensor:
    """The law of each step given every possible previous token.

    base [K, V] float64, one request; temperature clamped. Returns [K, V, V] float64: step,
    previous token, token.
    """
    drafts, vocabulary = base.shape
    every = torch.arange(vocabulary)
    added = bias(every)
    heat = torch.full((vocabulary,), temperature, dtype=torch.float64)
    rows = []
    for k in range(drafts):
        logits = step_logits(base[k].expand(vocabulary, vocabulary), added, dtype)
        rows.append(law(logits, heat))
    return torch.stack(rows)


def pair_laws(steps: torch.Tensor, anchor: int) -> list[torch.Tensor]:
    """The joint law of each token with the one before it.

    steps [K, V, V] from `transitions`; anchor the token before step 0. Returns K tables [V, V]:
    entry (a, b) is P(previous = a, token = b).
    """
    vocabulary = steps.shape[1]
    previous = torch.zeros(vocabulary, dtype=torch.float64)
    previous[anchor] = 1.0
    tables = []
    for step in steps:
        table = previous.unsqueeze(1) * step
        tables.append(table)
        previous = table.sum(dim=0)
    return tables
