"""The reference as a subject: plain, eager, and every check must hold on it."""

from collections.abc import Mapping
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors
from ..reference import choice, draft, gate, logits, noise

TABLES = {"build": gate.build, "step": gate.step, "accept": gate.accept}


class Reference:
    """The float64 pipeline behind the verbs of a subject."""

    def __init__(self, setting: Setting) -> None:
        """Keep the setting and start the noise from its seed."""
        self.setting = setting
        self.inputs: Tensors = {}
        self.outputs: Tensors = {}
        self.reseed(setting["seed"])

    def describe(self) -> Mapping[str, Any]:
        """Name and abilities; DFLASH draws nothing and keeps nothing."""
        abilities: tuple[str, ...] = ("FLAGS", "GATES")
        if self.setting["family"] == "dspark":
            abilities += ("DRAWS", "CLAIMS", "NOISE")
        return {"name": "reference", "abilities": abilities}

    def load(self, inputs: Tensors) -> None:
        """Copy the inputs."""
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}

    def read(self) -> Tensors:
        """The last block."""
        return self.outputs

    def reseed(self, seed: int) -> None:
        """Restart both kinds of noise."""
        self.seed_key, self.blocks = seed, 0
        self.generator = torch.Generator().manual_seed(seed)

    def noise_state(self) -> Mapping[str, Any]:
        """Where the next block's noise starts."""
        if self.setting["dialect"] == "race":
            return {"dialect": "race", "generator": self.generator.get_state()}
        return {"dialect": "counter", "seed_key": self.seed_key, "block": self.blocks}

    def gate(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """The reference tables."""
        fold, reason = TABLES[facts["table"]](facts)
        return {"fold": fold, "reason": reason}

    def block_noise(self, rows: int) -> torch.Tensor:
        """E [B, K, V] of one block, and the state moved past it."""
        drafts, vocabulary = self.setting["drafts"], self.setting["vocabulary"]
        self.blocks += 1
        if self.setting["dialect"] == "counter":
            return noise.counter_noise(rows, drafts, vocabulary, self.blocks - 1, self.seed_key)
        steps = [
            torch.empty(rows, vocabulary).exponential_(generator=self.generator)
            for _ in range(drafts)
        ]
        return noise.floored(torch.stack(steps, 1))

    def replay(self) -> None:
        """One block, in float64."""
        setting, inputs = self.setting, self.inputs
        rows = logits.draft_rows(inputs["hidden"], setting["drafts"])
        base = logits.base_logits(rows, setting["head"], setting["vocabulary"])
        if setting["family"] == "dflash":
            marks = torch.stack([choice.flags(base[:, k]) for k in range(base.shape[1])], 1)
            self.outputs = {"tokens": draft.greedy_block(base), "flags": marks}
            return
        heat = choice.clamped(inputs["temperature"])
        greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
        dtype = getattr(torch, setting["step_dtype"])
        tokens, kept, marks = draft.markov_block(
            base,
            inputs["anchor"],
            draft.vanilla(setting["w1"], setting["w2"]),
            heat,
            greedy,
            self.block_noise(len(heat)),
            setting["dialect"],
            dtype,
        )
        self.outputs = {
            "tokens": tokens,
            "flags": marks,
            "step_logits": kept.to(dtype),
            "temperature": heat.to(torch.float32),
            "greedy": greedy,
        }


def factory(setting: Setting) -> Reference:
    """Serve every family and dialect on the CPU with hidden states given."""
    if setting["device"] != "cpu":
        raise NotImplementedError(f"device is {setting['device']!r}, the reference runs on cpu")
    if setting["forward"] != "given":
        raise NotImplementedError("the reference has no draft model of its own")
    return Reference(setting)
