"""Markov heads: the previous token, and for some the hidden state, to a correction of the logits.

With e = w1[previous], hidden h and state s:

    vanilla  bias = w2 e
    gated    bias = w2 (sigmoid(w3 [h ; e] + b3) * e)
    rnn      (a, c, o) = w3 [s ; e ; h] + b3;  bias = w2 tanh(o);
             s' = sigmoid(a) * s + (1 - sigmoid(a)) * tanh(c)

A head returns the state after the step as a new tensor and writes nothing: whoever owns the static
state buffer copies it there, so the bias of a step can only come from the state before it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

# kind -> rows of w3 and b3, in multiples of R
KINDS = {"vanilla": 0, "gated": 1, "rnn": 3}


@dataclass(frozen=True)
class MarkovHead:
    """One embedding row, gated or carried over by the hidden states, projected to the vocabulary.

    w1   [>= V, R] float: embedding of the previous token
    w2   [V, R] float: projection; its dtype is the dtype of the bias
    kind 'vanilla', 'gated' or 'rnn'
    w3   gated [R, D + R], rnn [3 R, 2 R + D], vanilla None
    b3   gated [R], rnn [3 R], vanilla None

    ValueError: an unknown kind, a rank R below 1, or tensors that do not fit one another.
    """

    w1: Tensor
    w2: Tensor
    kind: str = "vanilla"
    w3: Tensor | None = None
    b3: Tensor | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the Markov head is {self.kind!r}; it should be one of {list(KINDS)}")
        one, two = tuple(self.w1.shape), tuple(self.w2.shape)
        if len(one) != len(two) or one[1:] != two[1:] or len(one) != 2:
            raise ValueError(f"w1 has shape {one} and w2 {two}; they should be [V, R] with equal R")
        if self.rank < 1:
            raise ValueError(f"the Markov rank is {self.rank}; it should be at least 1")
        self._check_affine()

    @property
    def rank(self) -> int:
        """R, the width of the embedding."""
        return self.w1.shape[1]

    def weights(self) -> dict[str, Tensor]:
        """Every weight by name."""
        named = {"w1": self.w1, "w2": self.w2, "w3": self.w3, "b3": self.b3}
        return {f"markov.{name}": held for name, held in named.items() if held is not None}

    def fit(self, vocabulary: int, hidden: int) -> None:
        """Compare with the sizes of a block. ValueError: rows or columns that do not fit."""
        one, two = len(self.w1), len(self.w2)
        if one < vocabulary or two != vocabulary:
            raise ValueError(
                f"w1 has {one} rows and w2 {two}; they should have at least and exactly "
                f"the vocabulary of {vocabulary}"
            )
        wide = hidden + self.rank * (2 if self.kind == "rnn" else 1)
        if self.w3 is not None and self.w3.shape[1] != wide:
            raise ValueError(
                f"w3 has {self.w3.shape[1]} columns; a {self.kind} head of rank {self.rank} over "
                f"hidden states of width {hidden} needs {wide}"
            )

    def _check_affine(self) -> None:
        found = [None if held is None else tuple(held.shape) for held in (self.w3, self.b3)]
        if self.kind == "vanilla":
            if found != [None, None]:
                raise ValueError(f"w3 and b3 have shapes {found}; a vanilla head has neither")
            return
        rows, (w3, b3) = KINDS[self.kind] * self.rank, found
        if w3 is None or len(w3) != 2 or w3[0] != rows or b3 != (rows,):
            raise ValueError(
                f"w3 and b3 have shapes {found}; a {self.kind} head of rank {self.rank} needs "
                f"[{rows}, columns] and [{rows}]"
            )


def vanilla(
    head: MarkovHead, previous: Tensor, hidden: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the bias w2(w1[previous]), and the state as it was.

    previous [B] int64: the token before the one to draft
    result   [B, V] dtype of w2

    The embedding row is cast to the dtype of w2, and the product is rounded to it.
    """
    del hidden
    return _projected(head, embedded(head, previous)), state


def gated(
    head: MarkovHead, previous: Tensor, hidden: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the bias w2(sigmoid(w3 [h ; e] + b3) * e), and the state as it was.

    previous [B] int64; hidden [B, D] float: the hidden states of this step
    result   [B, V] dtype of w2

    The affine product is rounded to the dtype of hidden, the gate to the dtype of e.
    ValueError: no hidden states.
    """
    token = embedded(head, previous)
    if hidden is None:
        raise _without("gated", "hidden states")
    gate = torch.sigmoid(_affine(head, (hidden, token), hidden.dtype)).to(token.dtype)
    return _projected(head, gate * token), state


def recurrent(
    head: MarkovHead, previous: Tensor, hidden: Tensor | None, state: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Return the bias w2(tanh(o)) of the state before the step, and the state after it.

    previous [B] int64; hidden [B, D] float: the hidden states of this step
    state    [B, R] dtype of hidden; read, not written
    results  [B, V] dtype of w2, and [B, R] dtype of hidden

    Affine product and new state are rounded to the dtype of hidden, tanh(o) to the dtype of e.
    ValueError: no hidden states, or no state.
    """
    token = embedded(head, previous)
    if hidden is None:
        raise _without("rnn", "hidden states")
    if state is None:
        raise _without("rnn", "state")
    keep, fresh, out = _affine(head, (state, token, hidden), hidden.dtype).chunk(3, -1)
    share = torch.sigmoid(keep)
    after = share * state + (1 - share) * torch.tanh(fresh)
    return _projected(head, torch.tanh(out).to(token.dtype)), after


def embedded(head: MarkovHead, tokens: Tensor) -> Tensor:
    """Return e = w1[tokens], [..., R] in the dtype of w1."""
    return functional.embedding(tokens, head.w1)


def _affine(head: MarkovHead, parts: tuple[Tensor, ...], dtype: torch.dtype) -> Tensor:
    if head.w3 is None or head.b3 is None:
        raise _without(head.kind, "w3 and b3")
    joined = torch.cat([part.to(dtype) for part in parts], -1)
    return functional.linear(joined, head.w3.to(dtype), head.b3.to(dtype))


def _projected(head: MarkovHead, features: Tensor) -> Tensor:
    return functional.linear(features.to(head.w2.dtype), head.w2)


def _without(kind: str, what: str) -> ValueError:
    return ValueError(f"a {kind} Markov head was called without {what}; it needs them every step")
