"""Samplers with random numbers of their own: they show their laws and their draws, no noise."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oracle.judge.protocol import Tensors
from oracle.subjects.torch_ops import Multinomial

Setting = Mapping[str, Any]
TILE = 16
TINY = float(np.finfo(np.float64).tiny)


class Stepwise(Multinomial):
    """Drafts step by step, draws each token by a rule of a subclass, and exports the laws."""

    name = "stepwise"

    def __init__(self, setting: Setting) -> None:
        """Start before the first block."""
        super().__init__(setting)
        self.blocks = 0
        self.outputs: Tensors = {}

    def describe(self) -> Mapping[str, Any]:
        """Draws, flags and laws; nothing of the noise."""
        return {"name": self.name, "abilities": ("DRAWS", "CLAIMS", "FLAGS")}

    def replay(self) -> None:
        """K steps; every law is the softmax of the logits that are exported."""
        setting, inputs = self.setting, self.inputs
        dtype = getattr(torch, setting["step_dtype"])
        hidden = inputs["hidden"][:, -setting["drafts"] :].float()
        base = (hidden @ self.head.T).to(setting["head"].dtype).float()
        greedy = (inputs["top_k"] <= 1) | (inputs["temperature"] < 1e-6)
        heat = inputs["temperature"].clamp(min=1e-5)
        previous, tokens, kept, flags = inputs["anchor"], [], [], []
        for k in range(setting["drafts"]):
            bias = setting["w1"][previous].float() @ setting["w2"].float().T
            column = (base[:, k] + bias.to(setting["w2"].dtype).float()).to(dtype)
            top = column.float().amax(-1)
            drawable = top.isfinite()
            scaled = torch.where(drawable[:, None], column.double(), 0.0)
            drawn = self.drawn(torch.softmax(scaled / heat.double()[:, None], -1), k)
            previous = torch.where(greedy | ~drawable, column.float().argmax(-1), drawn)
            tokens.append(previous)
            kept.append(column)
            flags.append((top.isnan() * 1 + top.isneginf() * 2).to(torch.uint8))
        self.blocks += 1
        self.outputs = {
            "tokens": torch.stack(tokens, 1),
            "flags": torch.stack(flags, 1),
            "step_logits": torch.stack(kept, 1),
            "temperature": heat,
            "greedy": greedy,
        }

    def read(self) -> Tensors:
        """The last block."""
        return self.outputs

    def drawn(self, law: Tensor, step: int) -> Tensor:
        """One token a row from laws [B, V] float64: [B] int64."""
        raise NotImplementedError

    def uniforms(self, rows: int) -> Tensor:
        """One uniform of 53 bits a row: [B, 1] float64 in [0, 1)."""
        return torch.rand(rows, 1, generator=self.generator, dtype=torch.float64)


def quantile(mass: Tensor, uniform: Tensor) -> Tensor:
    """The first id whose cumulated mass exceeds a share of the whole.

    mass [B, V], not negative; uniform [B, 1] in [0, 1). Returns [B] int64.
    """
    cumulated = mass.cumsum(-1)
    return (cumulated <= uniform * cumulated[:, -1:]).sum(-1).clamp(max=mass.shape[1] - 1)


class Inverts(Stepwise):
    """Reads each token off the cumulated law."""

    name = "inverse CDF"

    def drawn(self, law: Tensor, step: int) -> Tensor:
        """One uniform a row."""
        del step
        return quantile(law, self.uniforms(len(law)))


class PicksTiles(Stepwise):
    """Picks a tile by its mass, and an id within it by another uniform."""

    name = "two levels"

    def drawn(self, law: Tensor, step: int) -> Tensor:
        """Two uniforms a row."""
        del step
        width = -(-law.shape[1] // TILE) * TILE
        tiles = torch.nn.functional.pad(law, (0, width - law.shape[1])).view(len(law), -1, TILE)
        tile = quantile(tiles.sum(-1), self.uniforms(len(law)))
        within = tiles[torch.arange(len(law)), tile]
        return tile * TILE + quantile(within, self.uniforms(len(law)))


class CountsOtherwise(Stepwise):
    """Races on Philox4x64 words of 53 bits, keyed by the seed and counted by block and step."""

    name = "another Philox"

    def drawn(self, law: Tensor, step: int) -> Tensor:
        """One exponential variable an id, none of them zero."""
        counter = [0, 0, step, self.blocks]
        words = np.random.Generator(np.random.Philox(key=self.setting["seed"], counter=counter))
        e = -np.log1p(-words.random(tuple(law.shape)))
        return (law / torch.from_numpy(np.maximum(e, TINY))).argmax(-1)


def served(setting: Setting, kind: type[Stepwise]) -> Any:
    """Build a sampler where torch's own can be built."""
    if setting["family"] != "dspark" or setting["forward"] != "given":
        raise NotImplementedError("it draws dspark blocks from given hidden states")
    return kind(setting)


def inverse_cdf(setting: Setting) -> Any:
    """Tokens are read off the cumulated exported law, with uniforms of the sampler's own."""
    return served(setting, Inverts)


def two_level_draw(setting: Setting) -> Any:
    """A tile of the vocabulary is drawn first, and then an id within it."""
    return served(setting, PicksTiles)


def other_philox(setting: Setting) -> Any:
    """A race on a Philox of other words and another layout, which no dialect here describes."""
    return served(setting, CountsOtherwise)
