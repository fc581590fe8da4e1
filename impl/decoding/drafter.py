"""The draft forward of a decoder: every position of a block from what the target left behind.

    x = [norm(feature) ; norm(embedding[anchor])]
    h_k = gain * norm(project_k x + lift_k silu(widen x))

The feature is the target's hidden state that predicted the anchor; the target has not read the
anchor itself. norm divides by the root mean square.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ..buffers import Buffers

EPSILON = 1e-6


@dataclass
class Drafter:
    """The weights, and the forward over static buffers.

    embedding [V, D]: of the anchor, the target's own
    project   [K * D, 2 D], lift [K * D, M], widen [M, 2 D], gain [D]

    ValueError: shapes that do not belong together.
    """

    embedding: Tensor
    project: Tensor
    lift: Tensor
    widen: Tensor
    gain: Tensor
    # Fills the ids that are not the anchor, which nothing here reads.
    mask_token: int = 0

    def __post_init__(self) -> None:
        wide, inner = self.embedding.shape[1], self.widen.shape[0]
        rows = self.project.shape[0]
        wanted = {
            "project": (rows, 2 * wide),
            "lift": (rows, inner),
            "widen": (inner, 2 * wide),
            "gain": (wide,),
        }
        found = {name: tuple(getattr(self, name).shape) for name in wanted}
        if found != wanted or rows % wide:
            raise ValueError(f"the drafter has {found}; with hidden size {wide} it needs {wanted}")

    @property
    def drafts(self) -> int:
        """K."""
        return self.project.shape[0] // self.embedding.shape[1]

    def weights(self) -> Mapping[str, Tensor]:
        """Every weight by name."""
        held = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        return {f"drafter.{name}": weight for name, weight in held.items()}

    def __call__(self, buffers: Buffers, rows: int) -> Tensor:
        """Return the hidden states [rows * K, D], and keep them in their buffer."""
        anchor = functional.embedding(buffers["input_ids"][:rows, 0], self.embedding)
        joined = torch.cat([_level(buffers["context"][:rows]), _level(anchor)], -1)
        inner = functional.silu(functional.linear(joined, self.widen))
        states = functional.linear(joined, self.project) + functional.linear(inner, self.lift)
        kept = buffers["hidden"][:rows].flatten(0, 1)
        return kept.copy_(_level(states.view(kept.shape)) * self.gain)


def _level(states: Tensor) -> Tensor:
    return states * torch.rsqrt(states.square().mean(-1, keepdim=True) + EPSILON)
