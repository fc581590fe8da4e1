"""MarkovSampleStep and MarkovGreedyStep, driven step by step; embedding and product are torch's.

A batch of one greedy row goes to the greedy step, as in the proposer when it keeps no logits.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional

from ...judge.protocol import Setting, Tensors
from .. import alone
from .sampler import served
from .shipped import DRAFT, GREEDY, STEP, admitted, modules


class Steps:
    """K steps by one path of the two classes: execute, or triton."""

    def __init__(self, setting: Setting, path: str) -> None:
        """Take the path: a method of both classes."""
        self.setting, self.path = setting, path
        held = modules()
        self.sample = getattr(held[STEP].MarkovSampleStep, path)
        self.greedy = getattr(held[GREEDY].MarkovGreedyStep, path)
        self.offset = torch.zeros(1, dtype=torch.int64, device=setting["device"])
        self.inputs: Tensors = {}
        self.outputs: dict[str, torch.Tensor] = {}
        self.reseed(setting["seed"])

    def reseed(self, seed: int) -> None:
        """Key and counter at the beginning."""
        self.key = modules()[DRAFT].draft_noise_key(seed)
        self.offset.zero_()

    def describe(self) -> Mapping[str, Any]:
        """It draws and keeps its logits; its noise is the counter dialect, u without a bound."""
        stages = "torch-cpu" if self.setting["device"] == "cpu" else "triton-approx-cuda"
        name = f"SGLang 0.5.23 MarkovSampleStep.{self.path}"
        return {"name": name, "abilities": ("DRAWS", "CLAIMS", "NOISE"), "stages": stages}

    def load(self, inputs: Tensors) -> None:
        """Copy the inputs."""
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}

    def replay(self) -> None:
        """One block."""
        setting, inputs = self.setting, self.inputs
        hidden = inputs["hidden"][:, -setting["drafts"] :]
        base = hidden @ setting["head"][: setting["vocabulary"]].T
        heat = inputs["temperature"].clamp(min=1e-5)
        greedy = admitted(inputs["top_k"], inputs["temperature"]) <= 1
        step_heat = torch.where(greedy, 0.0, heat)
        alone_and_greedy = len(greedy) == 1 and bool(greedy.all())
        kept = torch.empty_like(base)
        previous, picked = inputs["anchor"], []
        for step in range(setting["drafts"]):
            embedded = functional.embedding(previous, setting["w1"])
            bias = functional.linear(embedded, setting["w2"])
            previous = self.sample(
                base_logits=base[:, step].contiguous(),
                bias=bias,
                temperatures=step_heat,
                key=self.key,
                offset=self.offset,
                step=step,
                step_dtype=base.dtype,
                logits_out=kept[:, step],
            )
            if alone_and_greedy:
                previous = self.greedy(
                    base_logits=base[:, step].contiguous(),
                    prev_embeds=embedded,
                    w2_weight=setting["w2"],
                )
            picked.append(previous)
        self.offset.add_(1)
        tokens = torch.stack(picked, 1)
        self.outputs = {
            "tokens": tokens,
            "step_logits": kept,
            "temperature": heat,
            "greedy": greedy,
        }

    def read(self) -> Tensors:
        """The last block."""
        return self.outputs

    def noise_state(self) -> Mapping[str, Any]:
        """Key and counter of the next block."""
        told = {"dialect": "counter-unbounded", "seed_key": self.key}
        return {**told, "block": int(self.offset)}


def step(setting: Setting) -> Steps:
    """Both steps as SGLang dispatches them: torch on a CPU, Triton on a GPU."""
    plain(setting)
    return Steps(setting, "execute")


def kernel(setting: Setting) -> Steps:
    """The Triton kernels of both steps, on a CPU in the interpreter."""
    plain(setting)
    alone.launchable(modules()[STEP]._markov_sample_partial_kernel, setting["device"])
    return Steps(setting, "triton")


def plain(setting: Setting) -> None:
    """NotImplementedError for heads and confidence, which the steps do not know."""
    served(setting)
    if setting.get("markov", "vanilla") != "vanilla" or "confidence_weight" in setting:
        raise NotImplementedError("the two steps know the vanilla head alone")
