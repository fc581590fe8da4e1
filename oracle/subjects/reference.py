"""The reference as a subject: plain, eager, and every check must hold on it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ..judge.binding import bound_head
from ..judge.protocol import Setting, Tensors
from ..reference import acceptance, choice, confidence, draft, filters, gate, logits, noise

RULES = {"chain": acceptance.accept_chain, "block": acceptance.accept_block}
COIN_KEY = 0x9E3779B97F4A7C15
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
        abilities: tuple[str, ...] = ("FLAGS", "GATES", "ACCEPTS", "CONFIDENCE")
        if self.setting["family"] == "dspark":
            abilities += ("DRAWS", "CLAIMS", "NOISE", "HEADS")
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
        mup = setting.get("mup", 1.0)
        base = logits.base_logits(rows, setting["head"], setting["vocabulary"], mup)
        if setting["family"] == "dflash":
            marks = torch.stack([choice.flags(base[:, k]) for k in range(base.shape[1])], 1)
            self.outputs = {"tokens": draft.greedy_block(base), "flags": marks}
            self.outputs |= self.confidence(rows)
            return
        heat = choice.clamped(inputs["temperature"])
        greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
        dtype = getattr(torch, setting["step_dtype"])
        tokens, kept, marks = draft.markov_block(
            base,
            inputs["anchor"],
            bound_head(setting, rows.to(setting["head"].dtype)),
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
        self.outputs |= self.confidence(rows)

    def confidence(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """The confidence fields of the block just drafted, when a head is wanted."""
        setting = self.setting
        if "confidence_weight" not in setting:
            return {}
        before = draft.tokens_before(self.inputs["anchor"], self.outputs["tokens"])
        weight, bias = setting["confidence_weight"], setting["confidence_bias"]
        w1 = setting["w1"] if weight.shape[1] > rows.shape[-1] else None
        raw = confidence.raw_confidence(rows, before, w1, weight, bias)
        squashed = confidence.confidence(raw, setting["confidence_sts"])
        return {
            "confidence_raw": raw.float(),
            "confidence": squashed.float(),
            "confidence_flags": confidence.confidence_flags(squashed),
        }

    def coins(self, rows: int) -> torch.Tensor:
        """K accept coins and the final draw of the block drafted last: [B, K + 1] float64."""
        columns = self.setting["drafts"] + 1
        if self.setting["dialect"] == "race":
            return torch.rand(rows, columns, generator=self.generator).double()
        ids = np.arange(columns, dtype=np.uint64)[None, :]
        row = np.arange(rows, dtype=np.uint64)[:, None]
        key = self.seed_key ^ COIN_KEY
        bits = noise.words(ids, row, np.zeros((1, 1), np.uint64), self.blocks - 1, key)
        return torch.from_numpy(noise.uniform(bits))

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Accept the block drafted last by the rule asked for."""
        inputs, outputs = self.inputs, self.outputs
        tokens, rows = outputs["tokens"], len(outputs["tokens"])
        heat = choice.clamped(inputs["temperature"])
        greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
        one_hot = greedy if "step_logits" in outputs else torch.ones_like(greedy)
        values = target["target_logits"].double()
        kept = outputs.get("step_logits", torch.zeros_like(values[:, 1:]))
        q = acceptance.claimed_law(kept.double(), heat, tokens, one_hot)
        top_k, top_p = inputs["top_k"].unsqueeze(1), target["top_p"].double().unsqueeze(1)
        p = filters.target_law(values, heat.unsqueeze(1), top_k, top_p)
        coins = self.coins(rows)
        lengths = (target["verify_len"], target["prefix_len"])
        rule = RULES[target["rule"]]
        by_coins = rule(tokens, q, p, coins, *lengths, outputs["flags"])
        candidates = torch.cat([inputs["anchor"].unsqueeze(1), tokens], 1)
        by_argmax = acceptance.accept_greedy(candidates, values, *lengths)
        commit = acceptance.accept_mixed(by_argmax, by_coins, greedy)
        fields = {name: part for name, part in commit._asdict().items() if name != "flags"}
        flags = commit.flags.to(torch.uint8)
        return {**fields, "accept_flags": flags, "coins": coins.float()}


def factory(setting: Setting) -> Reference:
    """Serve every family and dialect on the CPU with hidden states given."""
    if setting["device"] != "cpu":
        raise NotImplementedError(f"device is {setting['device']!r}, the reference runs on cpu")
    if setting["forward"] != "given":
        raise NotImplementedError("the reference has no draft model of its own")
    return Reference(setting)
