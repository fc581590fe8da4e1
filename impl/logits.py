"""Output head: hidden states to base logits (P1)."""

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

DENSE = (torch.float16, torch.bfloat16, torch.float32)


@dataclass
class BorrowedHead:
    """The target's lm_head as its owner holds it; the owner may swap the weight.

    weight            [W, D] or None when the head is stored in another form
    added_vocabulary  rows of ids that were added after training
    shard_ranges      ((start, end), ...) of the ranks, or None when the head does not say
    """

    weight: Tensor | None
    added_vocabulary: int = 0
    shard_ranges: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class OutputHead:
    """The weights that base logits are made of, aliased and not copied.

    weight       [W, D] float16, bfloat16 or float32; rows past the vocabulary are padding
    vocabulary   V, rows that take part
    vocab_start  global id of row 0
    mup          hidden states are divided by it, for this product only

    ValueError: a weight of another dtype or rank, fewer rows than the vocabulary, or a mup that is
    not finite and positive.
    """

    weight: Tensor
    vocabulary: int
    vocab_start: int = 0
    mup: float = 1.0

    def __post_init__(self) -> None:
        if self.weight.dtype not in DENSE:
            raise ValueError(
                f"the output head has dtype {self.weight.dtype}; "
                "it should be float16, bfloat16 or float32"
            )
        if self.weight.dim() != 2:
            raise ValueError(f"the output head has shape {tuple(self.weight.shape)}, not [W, D]")
        if not 1 <= self.vocabulary <= self.weight.shape[0]:
            raise ValueError(
                f"the vocabulary is {self.vocabulary}; it should be at least 1 and at most "
                f"the {self.weight.shape[0]} rows of the output head"
            )
        if not 0 < self.mup < inf:
            raise ValueError(f"mup is {self.mup}; it should be finite and > 0")


def factors(head: OutputHead, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return what base logits are the product of: hidden states [B * K, D] and weight [V, D].

    hidden [B, K, D] any float: query rows, cast to the head's dtype and divided by mup in it
    """
    rows = hidden.reshape(-1, hidden.shape[-1]).to(head.weight.dtype) / head.mup
    return rows, head.weight[: head.vocabulary]


def base_logits(head: OutputHead, hidden: Tensor, out: Tensor) -> None:
    """Write the base logits of the query rows.

    hidden [B, K, D] any float: query rows
    out    [B, K, V] head's dtype, contiguous: written whole

    P1: the muP quotient, and then the product, are taken and stored in the head's dtype.
    """
    rows, real = factors(head, hidden)
    torch.mm(rows, real.t(), out=out.view(len(rows), head.vocabulary))
