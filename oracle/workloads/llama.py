"""The network of SmolLM2 with keys and values kept: what a decoder extends, row by row.

transformers reads whole texts, and a judge reads with it. A decoder needs requests at different
lengths in one batch, and to take back what was not accepted; so the forward is written here, on the
weights of the opened model. A slot holds one request. What lies past the length that a call names
is overwritten, so a rejected draft is taken back by naming a shorter length.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def rotations(positions: Tensor, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the rotary angles of positions [B, n] int64: two of [B, 1, n, width]."""
    steps = torch.arange(0, width, 2, dtype=torch.float32, device=positions.device)
    frequency = 1.0 / theta ** (steps / width)
    angle = positions[..., None].float() * frequency
    both = torch.cat([angle, angle], -1)[:, None]
    return both.cos(), both.sin()


def rotated(states: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotate the pairs (i, i + width / 2) of states [B, heads, n, width]."""
    low, high = states.chunk(2, -1)
    return states * cosine + torch.cat([-high, low], -1) * sine


class Slots:
    """A Llama network over a fixed number of slots.

    network  an opened model of transformers, read and not changed
    slots    requests that may be held at once; length: positions of each
    """

    def __init__(self, network: Any, slots: int, length: int, device: str = "cpu") -> None:
        config = network.config
        self.slots, self.length = slots, length
        self.heads, self.shared = config.num_attention_heads, config.num_key_value_heads
        self.width = config.hidden_size // self.heads
        self.epsilon = float(config.rms_norm_eps)
        self.theta = float(config.rope_parameters["rope_theta"])
        body = network.base_model
        self.embedding: Tensor = body.embed_tokens.weight.detach().to(device)
        self.norm = body.norm.weight.detach().to(device)
        self.layers = [
            {name: weight.detach().to(device) for name, weight in layer.named_parameters()}
            for layer in body.layers
        ]
        held = (len(self.layers), 2, slots, self.shared, length, self.width)
        self.kept = torch.zeros(held, device=device)

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.kept.device

    @property
    def head(self) -> Tensor:
        """The output head [V, D] float32, tied to the embedding."""
        return self.embedding

    @torch.no_grad()
    def extend(self, slots: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        """Read tokens behind what the slots hold; the final-norm hidden states [B, n, D] float32.

        slots [B] int64, all different; ids [B, n] int64; past [B] int64: positions that count. What
        is kept of each slot afterwards is past + n positions. ValueError: more than `length`.
        """
        reach = int(past.max()) + ids.shape[1]
        if reach > self.length:
            raise ValueError(
                f"a request reaches {reach} positions, required: at most {self.length}"
            )
        positions = past[:, None] + torch.arange(ids.shape[1], device=ids.device)
        turn = rotations(positions, self.width, self.theta)
        visible = torch.arange(reach, device=ids.device) <= positions[..., None]
        place = (slots[:, None], positions, reach, visible[:, None])
        states = functional.embedding(ids, self.embedding)
        for number, weight in enumerate(self.layers):
            states = states + self._attention(number, weight, states, turn, place)
            states = states + self._mixed(weight, states)
        return self._normed(states, self.norm)

    @torch.no_grad()
    def logits(self, states: Tensor) -> Tensor:
        """The logits [..., V] of hidden states [..., D]."""
        found: Tensor = states @ self.head.T
        return found

    def _normed(self, states: Tensor, scale: Tensor) -> Tensor:
        return scale * (states * torch.rsqrt(states.square().mean(-1, keepdim=True) + self.epsilon))

    def _attention(
        self,
        number: int,
        weight: dict[str, Tensor],
        states: Tensor,
        turn: tuple[Tensor, Tensor],
        place: tuple[Tensor, Tensor, int, Tensor],
    ) -> Tensor:
        slots, positions, reach, visible = place
        normed = self._normed(states, weight["input_layernorm.weight"])
        rows, count = states.shape[:2]
        parts = {"q": self.heads, "k": self.shared, "v": self.shared}
        query, key, value = (
            functional.linear(normed, weight[f"self_attn.{name}_proj.weight"])
            .view(rows, count, heads, self.width)
            .transpose(1, 2)
            for name, heads in parts.items()
        )
        query, key = rotated(query, *turn), rotated(key, *turn)
        # An index before and after the slice puts the indexed axes first: [B, n, heads, width].
        self.kept[number, 0][slots, :, positions] = key.transpose(1, 2)
        self.kept[number, 1][slots, :, positions] = value.transpose(1, 2)
        keys, values = self.kept[number][:, slots[:, 0], :, :reach]
        mixed = functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=visible, enable_gqa=True
        )
        joined = mixed.transpose(1, 2).reshape(rows, count, -1)
        return functional.linear(joined, weight["self_attn.o_proj.weight"])

    def _mixed(self, weight: dict[str, Tensor], states: Tensor) -> Tensor:
        normed = self._normed(states, weight["post_attention_layernorm.weight"])
        gate = functional.linear(normed, weight["mlp.gate_proj.weight"])
        wide = functional.linear(normed, weight["mlp.up_proj.weight"])
        return functional.linear(functional.silu(gate) * wide, weight["mlp.down_proj.weight"])
