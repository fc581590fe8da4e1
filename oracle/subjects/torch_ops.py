"""torch's own samplers of a law, driven step by step, without a recording.

multinomial  torch.multinomial
race         the exponential race as engines write it: softmax / Exp(1), argmax, in place
categorical  torch.distributions.Categorical, on logits; it draws from the default generator
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors


class Multinomial:
    """A DSPARK block as most engines write it first; greedy rows by argmax."""

    name = "torch.multinomial"

    def __init__(self, setting: Setting) -> None:
        """Keep the weights in float32 and seed an own generator."""
        self.setting = setting
        self.head = setting["head"][: setting["vocabulary"]].float()
        self.generator = torch.Generator(setting["device"]).manual_seed(setting["seed"])
        self.inputs: Tensors = {}
        self.tokens = torch.zeros(0)

    def describe(self) -> Mapping[str, Any]:
        """It draws, and shows nothing of its noise."""
        return {"name": self.name, "abilities": ("DRAWS",)}

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
            picked = self.sampled(law)
            previous = torch.where(greedy | ~drawable, best, picked)
            drawn.append(previous)
        self.tokens = torch.stack(drawn, 1)

    def law(self, logits: torch.Tensor) -> torch.Tensor:
        """The law of a step from its logits over T: [B, V]."""
        return torch.softmax(logits, dim=-1)

    def sampled(self, law: torch.Tensor) -> torch.Tensor:
        """One token a row from laws [B, V]: [B] int64."""
        return torch.multinomial(law, 1, generator=self.generator).squeeze(1)

    def read(self) -> Tensors:
        """The last block."""
        return {"tokens": self.tokens}


class Raced(Multinomial):
    """The exponential race without a copy to the host."""

    name = "torch: softmax / Exp(1), argmax"

    def sampled(self, law: torch.Tensor) -> torch.Tensor:
        """The largest quotient wins."""
        noise = torch.empty_like(law).exponential_(1, generator=self.generator)
        return law.div_(noise).argmax(-1)


class Categorized(Multinomial):
    """The distribution object; it knows no generator, so it is given a fork of the default one."""

    name = "torch.distributions.Categorical"

    def law(self, logits: torch.Tensor) -> torch.Tensor:
        """Logits as they are: the distribution normalises them."""
        return logits

    def sampled(self, law: torch.Tensor) -> torch.Tensor:
        """One sample a row."""
        device = law.device
        default = (
            torch.default_generator
            if device.type == "cpu"
            else torch.cuda.default_generators[device.index or 0]
        )
        kept = default.get_state()
        default.set_state(self.generator.get_state())
        try:
            picked: torch.Tensor = torch.distributions.Categorical(logits=law).sample()
            self.generator.set_state(default.get_state())
        finally:
            default.set_state(kept)
        return picked


def served(setting: Setting, kind: type[Multinomial]) -> Multinomial:
    """Serve DSPARK with hidden states given; DFLASH has nothing to draw."""
    if setting["family"] != "dspark":
        raise NotImplementedError(f"{kind.name} draws; dflash is greedy")
    if setting["forward"] != "given":
        raise NotImplementedError("no draft model of its own")
    return kind(setting)


def factory(setting: Setting) -> Multinomial:
    """torch.multinomial."""
    return served(setting, Multinomial)


def race(setting: Setting) -> Multinomial:
    """The exponential race."""
    return served(setting, Raced)


def categorical(setting: Setting) -> Multinomial:
    """torch.distributions.Categorical."""
    return served(setting, Categorized)
