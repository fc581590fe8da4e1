"""Weights and inputs from a seed, on a grid of powers of two.

Every product of hidden states and head, and of the Markov factors, is a sum that float32 forms
exactly in any order. Step logits are then equal bit for bit on every device and at every batch
size, and exact ties are common.
"""

from dataclasses import dataclass

import torch

from ..judge.context import Material

GRID = 0.25
LARGEST_TOP_K = 2**30
TEMPERATURES = (1.0, 0.7, 0.3, 1.5, 50.0, 3e-6, 0.0, 1e-7)


def generator(seed: int, purpose: str) -> torch.Generator:
    """A CPU generator that depends on a seed and on what it is for."""
    mixed = seed
    for letter in purpose.encode():
        mixed = (mixed * 1000003 + letter) % 2**62
    return torch.Generator().manual_seed(mixed)


def grid(source: torch.Generator, shape: tuple[int, ...], largest: int) -> torch.Tensor:
    """Random multiples of GRID in [-largest GRID, largest GRID], float32."""
    return GRID * torch.randint(-largest, largest + 1, shape, generator=source).float()


@dataclass(frozen=True)
class Synthetic:
    """Input made from a seed; any vocabulary."""

    name: str = "synthetic"
    real: bool = False

    def material(
        self, seed: int, vocabulary: int, dtype: torch.dtype, padding: int = 0
    ) -> Material:
        """Weights of the given dtype with `padding` rows past the vocabulary."""
        source = generator(seed, "material")
        head = grid(source, (vocabulary + padding, 24), 4)
        w1 = grid(source, (vocabulary, 8), 3)
        w2 = grid(source, (vocabulary, 8), 3)
        return Material(head.to(dtype), w1.to(dtype), w2.to(dtype), vocabulary)

    def rows(
        self,
        seed: int,
        material: Material,
        rows: int,
        query_rows: int,
        *,
        sharpen: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [B, Q, D], a quarter of the rows four times as sharp, and anchors [B]."""
        source = generator(seed, "rows")
        hidden = grid(source, (rows, query_rows, material.head.shape[1]), 4)
        sharper = torch.randint(0, 4, (rows, 1, 1), generator=source) == 0
        if sharpen:
            hidden = torch.where(sharper, 4 * hidden, hidden)
        anchor = torch.randint(0, material.vocabulary, (rows,), generator=source)
        return hidden.to(material.head.dtype), anchor


def sampling_parameters(seed: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Temperatures [B] float32 and top_k [B] int64: greedy and sampled rows mixed."""
    source = generator(seed, "parameters")
    picks = torch.randint(0, len(TEMPERATURES), (rows,), generator=source)
    temperature = torch.tensor(TEMPERATURES)[picks]
    top_k = torch.tensor([1, 40, LARGEST_TOP_K, LARGEST_TOP_K])
    return temperature, top_k[torch.randint(0, 4, (rows,), generator=source)]


def codes(vocabulary: int, dtype: torch.dtype) -> torch.Tensor:
    """Head rows of +-1, all distinct: two of them differ in at least one place.

    Returns [V, D] with D = max(4, bits of V - 1).
    """
    bits = max(4, (vocabulary - 1).bit_length())
    ids = torch.arange(vocabulary).unsqueeze(1)
    places = torch.arange(bits).unsqueeze(0)
    return (2 * ((ids >> places) & 1) - 1).to(dtype)
