"""Hypothesis strategies for the twins: weights on an exact grid, rows, parameters, masks."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TEMPERATURES = (0.0, 1e-7, 3e-6, 1e-5, 0.3, 0.7, 1.0, 1.5, 50.0)
TOP_KS = (-1, 0, 1, 2, 40, 2**30)


@dataclass(frozen=True)
class Shape:
    """Sizes of one block: B, K, Q - K, V, W, D, R and the dtypes of head and steps."""

    rows: int
    drafts: int
    dropped: int
    vocabulary: int
    stored: int
    hidden: int
    rank: int
    dtype: torch.dtype
    step_dtype: torch.dtype
    seed: int


@st.composite
def shapes(draw: st.DrawFn, *, vocabulary_max: int = 70) -> Shape:
    """Sizes small enough to shrink well, padded vocabularies and all dtypes among them."""
    vocabulary = draw(st.integers(2, vocabulary_max), label="V")
    dtype = draw(st.sampled_from(DTYPES), label="head dtype")
    return Shape(
        rows=draw(st.integers(1, 9), label="B"),
        drafts=draw(st.integers(1, 5), label="K"),
        dropped=draw(st.integers(0, 1), label="Q - K"),
        vocabulary=vocabulary,
        stored=vocabulary + draw(st.integers(0, 20), label="padding"),
        hidden=draw(st.integers(1, 24), label="D"),
        rank=draw(st.integers(1, 8), label="R"),
        dtype=dtype,
        step_dtype=draw(st.sampled_from((dtype, torch.float32)), label="step dtype"),
        seed=draw(st.integers(0, 2**32 - 1), label="seed"),
    )


def source(seed: int) -> torch.Generator:
    """A CPU generator of the test's own."""
    return torch.Generator().manual_seed(seed)


def grid(generator: torch.Generator, *shape: int, largest: int = 3) -> torch.Tensor:
    """Random multiples of 1/4: products of two are exact in float32, and ties are common."""
    return 0.25 * torch.randint(-largest, largest + 1, shape, generator=generator).float()


def parameters(generator: torch.Generator, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Temperatures and top_k of a mixed batch."""
    heats = torch.tensor(TEMPERATURES)
    limits = torch.tensor(TOP_KS)
    heat = heats[torch.randint(0, len(heats), (rows,), generator=generator)]
    return heat, limits[torch.randint(0, len(limits), (rows,), generator=generator)]


def spoiled(generator: torch.Generator, logits: torch.Tensor) -> torch.Tensor:
    """Logits with -inf masks, and in some rows NaN, +inf or nothing finite."""
    masked = torch.rand(logits.shape, generator=generator) < 0.3
    logits = torch.where(masked, -torch.inf, logits)
    rows = logits.shape[0]
    kind = torch.randint(0, 8, (rows,), generator=generator)
    place = torch.randint(0, logits.shape[1], (rows,), generator=generator)
    for row in range(rows):
        if kind[row] == 0:
            logits[row, place[row]] = torch.nan
        elif kind[row] == 1:
            logits[row, place[row]] = torch.inf
        elif kind[row] == 2:
            logits[row] = -torch.inf
    return logits
