"""Markov head: the previous token to a correction of the next logits."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class MarkovHead:
    """A vanilla Markov head: one embedding row, projected back to the vocabulary.

    w1 [>= V, R] float: embedding of the previous token
    w2 [V, R] float: projection; its dtype is the dtype of the bias

    ValueError: the two disagree in R.
    """

    w1: Tensor
    w2: Tensor

    def __post_init__(self) -> None:
        one, two = tuple(self.w1.shape), tuple(self.w2.shape)
        if len(one) != len(two) or one[1:] != two[1:] or len(one) != 2:
            raise ValueError(f"w1 has shape {one} and w2 {two}; they should be [V, R] with equal R")


def vanilla(head: MarkovHead, previous: Tensor) -> Tensor:
    """Return w2(w1[previous]).

    previous [B] int64: the token before the one to draft
    result   [B, V] dtype of w2

    The embedding row is cast to the dtype of w2, and the product is rounded to it.
    """
    embedded = functional.embedding(previous, head.w1).to(head.w2.dtype)
    return functional.linear(embedded, head.w2)
