"""What the target model of a decoder offers; the model itself is handed in."""

from typing import Protocol

from torch import Tensor


class Network(Protocol):
    """A causal model over slots, each of which keeps the keys and values of one request.

    slots   requests that it can keep at once
    length  positions that a slot holds
    """

    slots: int
    length: int

    @property
    def head(self) -> Tensor:
        """The output head, [V, D]."""
        ...

    def extend(self, slots: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        """Read tokens behind the first `past` positions of slots, and return hidden states.

        slots [B] int64, ids [B, n] int64, past [B] int64; result [B, n, D]: row t predicts what
        follows token t. Positions of a slot from `past` on are overwritten.
        """
        ...

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits [..., V] of hidden states [..., D]."""
        ...
