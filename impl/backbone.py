"""A small real draft model: embedding, block attention, MLP; something to capture.

One request is a block of Q rows, the anchor and mask tokens. Every row sees the whole block and
the projected target features of its request; requests do not see one another.
"""

from math import sqrt

import torch
from torch import Tensor
from torch.nn import functional

from .shapes import Shapes

EPSILON = 1e-6
WIDEN = 2


class Backbone:
    """One layer of block attention and a gated MLP over anchor and mask tokens.

    shapes     vocabulary, query rows and hidden size
    dtype      dtype of weights, products and hidden states; norms and softmax are float32
    device     where the weights live
    generator  a CPU generator that the weights are drawn from
    """

    def __init__(
        self, shapes: Shapes, dtype: torch.dtype, device: torch.device, generator: torch.Generator
    ) -> None:
        self.shapes = shapes
        self.mask_token = shapes.vocabulary
        wide = shapes.hidden
        sizes = {
            "embedding": (shapes.vocabulary + 1, wide),
            "position": (shapes.query_rows, wide),
            "context": (wide, wide),
            "attention": (3 * wide, wide),
            "merge": (wide, wide),
            "up": (2 * WIDEN * wide, wide),
            "down": (wide, WIDEN * wide),
        }
        self._weights = {
            name: _drawn(size, generator).to(device, dtype) for name, size in sizes.items()
        }

    def weights(self) -> dict[str, Tensor]:
        """Every weight by name; the dict is the model's own copy of the names."""
        return {f"backbone.{name}": weight for name, weight in self._weights.items()}

    def forward(self, context: Tensor, input_ids: Tensor) -> Tensor:
        """Return the hidden states of a padded batch.

        context   [B, D] dtype of the model: target features
        input_ids [B, Q] int64: anchor, then mask tokens; ids in [0, V]
        result    [B * Q, D] dtype of the model
        """
        weight = self._weights
        tokens = functional.embedding(input_ids, weight["embedding"]) + weight["position"]
        states = tokens + functional.linear(context, weight["context"])[:, None]
        states = states + self._attention(_normed(states))
        gate, up = functional.linear(_normed(states), weight["up"]).chunk(2, -1)
        states = states + functional.linear(functional.silu(gate) * up, weight["down"])
        return _normed(states).flatten(0, 1)

    def _attention(self, states: Tensor) -> Tensor:
        query, key, value = functional.linear(states, self._weights["attention"]).chunk(3, -1)
        weights = torch.bmm(query, key.transpose(1, 2)).float() / sqrt(self.shapes.hidden)
        mixed = torch.bmm(torch.softmax(weights, -1).to(value.dtype), value)
        return functional.linear(mixed, self._weights["merge"])


def _drawn(size: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randn(size, generator=generator) / sqrt(size[1])


def _normed(states: Tensor) -> Tensor:
    wide = states.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
    return (wide * scale).to(states.dtype)
