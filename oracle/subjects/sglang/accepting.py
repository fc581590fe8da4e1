"""The accept of SGLang: chain_speculative_sampling on known coins, greedy rows by AcceptGreedy.

Coins are drawn here, since the server takes torch.rand. Target laws with top-k and top-p are made
here in float32: SGLang makes them by kernels for the GPU. A row of verify length 0 is not handed
over, and positions behind the bonus token are filled with -1.
"""

from collections.abc import Mapping
from typing import Any

import torch

from ...judge.protocol import Setting, Tensors
from .. import alone
from ..stepwise import laid_out, target_law
from .sampler import Batches, Sampler, served
from .shipped import ACCEPT, CHAIN, modules


class Accepting(Sampler):
    """The folded sampler, and what verifies its blocks."""

    name = "SGLang 0.5.23 DsparkDraftSampler, chain_speculative_sampling"

    def __init__(self, setting: Setting, batches: Batches) -> None:
        """Start the coins."""
        super().__init__(setting, batches)
        self.coins = torch.Generator(setting["device"])
        self.coins.manual_seed(setting["seed"])

    def describe(self) -> Mapping[str, Any]:
        """In the interpreter one block takes milliseconds: no law is judged there."""
        told = dict(super().describe())
        on_cpu = self.setting["device"] == "cpu"
        drawn = tuple(n for n in told["abilities"] if n != "DRAWS" or not on_cpu)
        return {**told, "abilities": (*drawn, "ACCEPTS")}

    def load(self, inputs: Tensors) -> None:
        """Stage, and keep top_k for the target law."""
        self.inputs = {name: tensor.clone() for name, tensor in inputs.items()}
        super().load(inputs)

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Accept the block drafted last."""
        read, kernels = self.read(), modules()[ACCEPT]
        tokens, heat, greedy = read["tokens"], read["temperature"], read["greedy"]
        rows, slots = len(tokens), self.drafts + 1
        candidates = torch.cat([self.inputs["anchor"][:, None], tokens], 1)
        logits, length = target["target_logits"], target["verify_len"]
        verified = length.clamp(min=1).to(torch.int32)
        coins = torch.rand(rows, slots, generator=self.coins, device=tokens.device)
        p = target_law(logits, heat, self.inputs["top_k"], target["top_p"])
        q = torch.softmax(read["step_logits"].float() / heat[:, None, None], -1)
        cut, bonus, trim = self.chained(
            candidates, p, q, coins, verified, blocks=target["rule"] == "block"
        )
        by_argmax = kernels.AcceptGreedy.execute(
            candidates=candidates,
            target_logits=logits.reshape(rows * slots, -1),
            verify_num_draft_tokens=slots,
            cutoff_verify_lens=verified,
        )
        cut, bonus, trim = (
            torch.where(greedy, first.long(), then.long())
            for first, then in zip(by_argmax, (cut, bonus, trim), strict=True)
        )
        return laid_out(cut, bonus, trim, tokens, target) | {"coins": coins}

    def chained(
        self,
        candidates: torch.Tensor,
        p: torch.Tensor,
        q: torch.Tensor,
        coins: torch.Tensor,
        verified: torch.Tensor,
        *,
        blocks: bool,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Accepted drafts after the cut, the token there, and what was cut."""
        rows, slots = candidates.shape
        place = torch.arange(rows * slots, device=p.device).view(rows, slots)
        following = torch.arange(1, slots + 1, device=p.device)
        following[-1] = -1
        predicted = torch.zeros(rows * slots, dtype=torch.int32, device=p.device)
        index = torch.zeros(rows, slots, dtype=torch.int32, device=p.device)
        accepted = torch.zeros(rows, dtype=torch.int32, device=p.device)
        modules()[CHAIN].chain_speculative_sampling_triton(
            predicted,
            index,
            accepted,
            candidates,
            place,
            following.repeat(rows, 1),
            torch.full_like(candidates, -1),
            coins[:, :-1].contiguous(),
            coins[:, -1].contiguous(),
            p,
            q,
            1.0,
            1.0,
            True,  # noqa: FBT003  (deterministic, by its place)
            block_verification=blocks,
        )
        reached, trim = modules()[ACCEPT].CapCorrectLen.execute(
            correct_len=accepted, verify_lens=verified
        )
        at = index[torch.arange(rows, device=p.device), reached.long()].long()
        return reached, predicted[at], trim


def accept(setting: Setting) -> Accepting:
    """The sampler with its accept; the kernel exists in Triton alone."""
    served(setting)
    alone.launchable(modules()[CHAIN].speculative_sampling_classic_kernel, setting["device"])
    return Accepting(setting, Batches())
