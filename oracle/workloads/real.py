"""Real input as a workload: the model's head and hidden states, at its own vocabulary."""

from dataclasses import dataclass, field

import torch

from ..judge.context import Material
from .smollm2 import MissingError, RealInput, load

__all__ = ["MissingError", "Real", "workload"]


@dataclass
class Real:
    """SmolLM2's rows in the place of synthetic ones; a requested vocabulary is ignored."""

    source: RealInput
    name: str = "smollm2"
    real: bool = True
    cast: dict[torch.dtype, Material] = field(default_factory=dict)

    def material(
        self, seed: int, vocabulary: int, dtype: torch.dtype, padding: int = 0
    ) -> Material:
        """The model's head and the fitted Markov factors, in the given dtype."""
        del seed, vocabulary, padding
        if dtype not in self.cast:
            parts = (self.source.head, self.source.w1, self.source.w2)
            head, w1, w2 = (part.to(dtype) for part in parts)
            self.cast[dtype] = Material(head, w1, w2, head.shape[0])
        return self.cast[dtype]

    def rows(
        self,
        seed: int,
        material: Material,
        rows: int,
        query_rows: int,
        *,
        sharpen: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [B, Q, D] of Q consecutive positions of text, and the token before them."""
        del sharpen
        positions = len(self.source.anchor) - query_rows
        source = torch.Generator().manual_seed(seed)
        starts = torch.randint(0, positions, (rows,), generator=source)
        places = starts.unsqueeze(1) + torch.arange(query_rows).unsqueeze(0)
        return self.source.hidden[places].to(material.head.dtype), self.source.anchor[starts]


def workload() -> Real:
    """Load the model once a process. Raises MissingError when the extra is not installed."""
    return Real(load())
