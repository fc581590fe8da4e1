"""The reference with other ways to accept."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oracle.judge.binding import bound_head
from oracle.judge.protocol import Tensors
from oracle.reference import acceptance, choice, draft, filters, logits
from oracle.subjects.reference import Reference

from ..noise import refuse_unreachable

Setting = Mapping[str, Any]


class Recomputes(Reference):
    """Keeps nothing for the accept but tokens and inputs, and makes the claimed laws from them."""

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Walk the block again, and accept with the logits of the walk."""
        setting, inputs, read = self.setting, self.inputs, self.outputs
        if "step_logits" in read:
            rows = logits.draft_rows(inputs["hidden"], setting["drafts"])
            head, mup = setting["head"], setting.get("mup", 1.0)
            base = logits.base_logits(rows, head, setting["vocabulary"], mup)
            markov = bound_head(setting, rows.to(head.dtype))
            dtype = getattr(torch, setting["step_dtype"])
            again = draft.walked_logits(base, inputs["anchor"], read["tokens"], markov, dtype)
            self.outputs = {**read, "step_logits": again}
        commit = super().accept(target)
        self.outputs = read
        return commit


def recomputed_claim(setting: Setting) -> Any:
    """The accept walks the block again, instead of reading what was kept of it."""
    refuse_unreachable(setting)
    return Recomputes(setting)


class AcceptsByLogs(Reference):
    """Both rules as sums of logarithms, compared with the logarithm of the coin."""

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Lay out what the logarithms say; greedy rows go by argmax."""
        inputs, outputs = self.inputs, self.outputs
        tokens, heat = outputs["tokens"], choice.clamped(inputs["temperature"])
        greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
        values, (rows, drafts) = target["target_logits"].double(), tokens.shape
        kept = outputs.get("step_logits", torch.zeros_like(values[:, :drafts])).double()
        one_hot = greedy if "step_logits" in outputs else torch.ones_like(greedy)
        q = acceptance.claimed_law(kept, heat, tokens, one_hot)
        top = (inputs["top_k"].unsqueeze(1), target["top_p"].double().unsqueeze(1))
        p = filters.target_law(values, heat.unsqueeze(1), *top)
        coins = self.coins(rows).float()
        lengths = (target["verify_len"], target["prefix_len"])
        claim = acceptance.usable(q, outputs["flags"])
        by_coins = by_logs(
            tokens, claim, p, coins.double(), lengths, blocks=target["rule"] == "block"
        )
        candidates = torch.cat([inputs["anchor"].unsqueeze(1), tokens], 1)
        by_argmax = acceptance.accept_greedy(candidates, values, *lengths)
        commit = acceptance.accept_mixed(by_argmax, by_coins, greedy)._asdict()
        flags = commit.pop("flags").to(torch.uint8)
        return {**commit, "accept_flags": flags, "coins": coins}


def by_logs(
    tokens: Tensor, claim: Tensor, p: Tensor, coins: Tensor, lengths: Any, *, blocks: bool
) -> acceptance.Commit:
    """One commit of the chain rule, or of block verification, all ratios as logarithms.

    tokens [B, K]; claim, p [B, K + 1, V], claim zero where nothing is claimed; coins [B, K + 1];
    lengths verified and committed before, [B] each; blocks: which rule.
    """
    drafts, place = tokens.shape[1], torch.arange(tokens.shape[1] + 1)
    offered = acceptance.of_tokens(claim, tokens)
    quotient = torch.where(
        offered > 0, acceptance.of_tokens(p, tokens).log() - offered.log(), -torch.inf
    )
    said = coins[:, :-1].log()
    if blocks:
        ratios = [torch.zeros(len(tokens), dtype=torch.float64)]
        for k in range(drafts):
            ratios.append((ratios[-1] + quotient[:, k]).clamp(max=0.0))
        ratio = torch.stack(ratios, 1).exp()
        excess = (ratio.unsqueeze(2) * p - claim).clamp(min=0)
        spare = excess.sum(2)
        height = torch.where((ratio > 0) & (ratio < 1), spare / (spare + 1 - ratio), ratio)
        passes = said < torch.minimum(ratio, height)[:, 1:].log()
        accepted = (passes * place[1:]).amax(1)
        decides = (ratio > 0) & (place < lengths[0].unsqueeze(1))
    else:
        excess = (p - claim).clamp(min=0)
        accepted = (said < quotient).long().cumprod(1).sum(1)
        cap = (lengths[0] - 1).clamp(min=0)
        decides = place <= torch.minimum(accepted, cap).unsqueeze(1)
    bonus = acceptance.ending(tokens, accepted, excess, p, coins[:, -1], lengths[0])
    broken = (p.isnan().any(2) & decides).any(1)
    return acceptance.commit(tokens, accepted, bonus, broken, *lengths)


def log_ratios(setting: Setting) -> Any:
    """Drafts are accepted where log coin < log p - log q, and prefixes by sums of such terms."""
    refuse_unreachable(setting)
    return AcceptsByLogs(setting)
