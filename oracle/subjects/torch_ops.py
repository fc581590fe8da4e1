"""torch's own sampler: softmax and torch.multinomial, driven step by step, without a recording."""

from collections.abc import Mapping
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors


class Multinomial:
    """A DSPARK block as most engines write it first; greedy rows by argmax."""

    def __init__(self, setting: Setting) -> None:
        """Keep the weights in float32 and seed an own generator."""
        self.setting = setting
        self.head = setting["head"][: setting["vocabulary"]].float()
        self.generator = torch.Generator(setting["device"]).manual_seed(setting["seed"])
        self.inputs: Tensors = {}
        self.tokens = torch.zeros(0)

    def describe(self) -> Mapping[str, Any]:
        """It draws, and shows nothing of its noise."""
        return {"name": "torch.multinomial", "abilities": ("DRAWS",)}

    def load(self, inputs: Tensors) -> None:
        """Copy the inputs."""
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}

    def replay(self) -> None:
        """K steps of logits, bias, softmax and multinomial."""
        setting, inputs = self.setting, self.inputs
        hidden = inputs["hidden"][:, -setting["drafts"] :].float()
        base = (hidden @ self.head.T).to(setting["head"].dtype).float()
        greedy = (inputs["top_k"] <= 1) | (inputs["temperature"] < 1e-6)
        heat = inputs["temperature"].clamp(min=1e-5).unsqueeze(1)
        previous, drawn = inputs["anchor"], []
        for k in range(setting["drafts"]):
            bias = (setting["w1"][previous].float() @ setting["w2"].float().T).to(
                setting["w2"].dtype
            )
            logits = (base[:, k] + bias.float()).to(getattr(torch, setting["step_dtype"])).float()
            best = logits.argmax(-1)
            drawable = logits.amax(-1).isfinite()
            law = self.law(torch.where(drawable[:, None], logits, 0.0) / heat)
            picked = torch.multinomial(law, 1, generator=self.generator).squeeze(1)
            previous = torch.where(greedy | ~drawable, best, picked)
            drawn.append(previous)
        self.tokens = torch.stack(drawn, 1)

    def law(self, logits: torch.Tensor) -> torch.Tensor:
        """The law of a step from its logits over T: [B, V]."""
        return torch.softmax(logits, dim=-1)

    def read(self) -> Tensors:
        """The last block."""
        return {"tokens": self.tokens}


def factory(setting: Setting) -> Multinomial:
    """Serve DSPARK with hidden states given; DFLASH has nothing to draw."""
    if setting["family"] != "dspark":
        raise NotImplementedError("torch.multinomial draws; dflash is greedy")
    if setting["forward"] != "given":
        raise NotImplementedError("no draft model of its own")
    return Multinomial(setting)
