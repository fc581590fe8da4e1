"""What an adapter of one sampling call has to do itself: step logits, the chain, the commit.

A block is drafted step by step in torch; a subclass picks the tokens of a step. Laws of the target
and the layout of a commit are made here too, for libraries that take laws and give tokens.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors


class Stepwise:
    """A DSPARK block by K calls of a sampler; the step logits are kept as they were picked from."""

    name = "stepwise"
    accepts = False

    def __init__(self, setting: Setting) -> None:
        """Start before the first block."""
        self.setting, self.blocks = setting, 0
        self.generator = torch.Generator(setting["device"])
        self.generator.manual_seed(setting["seed"])
        self.inputs: Tensors = {}
        self.outputs: dict[str, torch.Tensor] = {}

    def describe(self) -> Mapping[str, Any]:
        """On a CPU a kernel is interpreted, too slowly for the laws of an accept."""
        drawn = ("DRAWS",) if self.setting["device"] != "cpu" or not self.accepts else ()
        accepts = ("ACCEPTS",) if self.accepts else ()
        told = {"name": self.name, "abilities": ("CLAIMS", *drawn, *accepts)}
        return {**told, "rules": ("chain",)}

    def load(self, inputs: Tensors) -> None:
        """Copy the inputs."""
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}

    def replay(self) -> None:
        """K steps."""
        setting, inputs = self.setting, self.inputs
        dtype = getattr(torch, setting["step_dtype"])
        head = setting["head"][: setting["vocabulary"]]
        base = inputs["hidden"][:, -setting["drafts"] :] @ head.T
        greedy = (inputs["top_k"] <= 1) | (inputs["temperature"] < 1e-6)
        heat = inputs["temperature"].clamp(min=1e-5)
        previous, tokens, kept = inputs["anchor"], [], []
        for step in range(setting["drafts"]):
            # An id outside the vocabulary is reported as it is, and embedded as the last one.
            embedded = setting["w1"][previous.clamp(0, setting["vocabulary"] - 1)]
            bias = torch.nn.functional.linear(embedded, setting["w2"])
            logits = (base[:, step].float() + bias.float()).to(dtype)
            previous = self.pick(logits, heat, greedy, step)
            tokens.append(previous)
            kept.append(logits)
        self.blocks += 1
        self.outputs = {
            "tokens": torch.stack(tokens, 1),
            "step_logits": torch.stack(kept, 1),
            "temperature": heat,
            "greedy": greedy,
        }

    def pick(
        self, logits: torch.Tensor, heat: torch.Tensor, greedy: torch.Tensor, step: int
    ) -> torch.Tensor:
        """One token a row from step logits [B, V]: [B] int64."""
        raise NotImplementedError

    def read(self) -> Tensors:
        """The last block."""
        return self.outputs

    def laws(self, target: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Target law p [B, K + 1, V] and claimed law q [B, K, V] of the block just run, float32.

        Greedy rows have one-hot laws.
        """
        read = self.outputs
        heat, top_k = read["temperature"], self.inputs["top_k"]
        one = read["greedy"][:, None, None]
        logits = target["target_logits"]
        p = target_law(logits, heat, top_k, target["top_p"])
        q = torch.softmax(read["step_logits"].float() / heat[:, None, None], -1)
        width = p.shape[-1]
        best = torch.nn.functional.one_hot(logits.argmax(-1), width).float()
        drafted = torch.nn.functional.one_hot(read["tokens"].clamp(0, width - 1), width).float()
        return torch.where(one, best, p).contiguous(), torch.where(one, drafted, q).contiguous()

    def raced(self, law: torch.Tensor) -> torch.Tensor:
        """One token a law [..., V] by an exponential race: [...] int64."""
        noise = torch.empty_like(law).exponential_(generator=self.generator)
        return (law / noise).argmax(-1)


def target_law(
    logits: torch.Tensor, heat: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor
) -> torch.Tensor:
    """Softmax of logits / T, then top-k, then top-p, each renormalised: [B, K + 1, V] float32."""
    law = torch.softmax(logits / heat[:, None, None], -1)
    order = law.sort(dim=-1, descending=True, stable=True)
    place = torch.arange(law.shape[-1], device=law.device)
    ranked = torch.where(place < top_k.clamp(min=1)[:, None, None], order.values, 0.0)
    ranked = ranked / ranked.sum(-1, keepdim=True)
    before = ranked.cumsum(-1) - ranked
    ranked = torch.where((before < top_p[:, None, None]) | (top_p[:, None, None] == 1), ranked, 0.0)
    ranked = ranked / ranked.sum(-1, keepdim=True)
    return torch.zeros_like(law).scatter_(-1, order.indices, ranked)


def laid_out(
    cut: torch.Tensor,
    bonus: torch.Tensor,
    trim: torch.Tensor,
    tokens: torch.Tensor,
    target: Mapping[str, Any],
) -> dict[str, torch.Tensor]:
    """The fields of a commit; a row of verify length 0 commits nothing."""
    present = target["verify_len"] > 0
    length = torch.where(present, cut + 1, 0)
    last = torch.where(present, bonus, -1)
    slots = torch.arange(tokens.shape[1] + 1, device=tokens.device)
    laid = torch.nn.functional.pad(tokens, (0, 1))
    laid = torch.where(slots == cut[:, None], last[:, None], laid)
    return {
        "correct_len": torch.where(present, cut, 0),
        "bonus": last,
        "trim": torch.where(present, trim, 0),
        "commit_len": length,
        "new_seq_len": target["prefix_len"] + length,
        "out_tokens": torch.where(slots < length[:, None], laid, -1),
        "accept_flags": torch.zeros(len(tokens), dtype=torch.uint8, device=tokens.device),
    }


def hidden_coins(tokens: torch.Tensor) -> torch.Tensor:
    """What stands for coins that a library draws inside its kernel: NaN [B, K + 1]."""
    shape = (len(tokens), tokens.shape[1] + 1)
    return torch.full(shape, torch.nan, device=tokens.device)


def served(setting: Setting, name: str) -> None:
    """NotImplementedError for what a chain of single calls does not serve."""
    if setting["family"] != "dspark":
        raise NotImplementedError(f"{name} draws; dflash is greedy")
    if setting["forward"] != "given":
        raise NotImplementedError("no draft model of its own")
    if setting["dialect"] != "counter":
        raise NotImplementedError(f"{name} draws from counted noise of its own, judged as counter")
    if setting.get("markov", "vanilla") != "vanilla" or "confidence_weight" in setting:
        raise NotImplementedError(f"{name} is driven behind a vanilla head alone")
