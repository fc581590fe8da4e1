"""How much of a draft the target keeps, when both are greedy."""

from typing import NamedTuple

import torch

from .choice import winner


class Commit(NamedTuple):
    """What one verification commits; every field has one row a request."""

    correct_len: torch.Tensor
    bonus: torch.Tensor
    trim: torch.Tensor
    commit_len: torch.Tensor
    new_seq_len: torch.Tensor
    out_tokens: torch.Tensor


def accept_greedy(
    candidates: torch.Tensor,
    target_logits: torch.Tensor,
    verify_len: torch.Tensor,
    prefix_len: torch.Tensor,
) -> Commit:
    """Keep the longest prefix of the draft that the target's own argmax repeats.

    candidates [B, K + 1] int64 = anchor, drafts; target_logits [B, K + 1, V], row t the law after
    candidate t; verify_len [B] int64 in [0, K + 1], how many rows were verified; prefix_len [B]
    int64. Accepted drafts past verify_len - 1 are cut, and the bonus is the target's token at the
    cut. verify_len 0 commits nothing and has bonus -1. out_tokens [B, K + 1] holds the accepted
    drafts, then the bonus, then -1.
    """
    predicted = winner(target_logits.to(torch.float64))
    agrees = candidates[:, 1:] == predicted[:, :-1]
    accepted = agrees.to(torch.int64).cumprod(dim=1).sum(dim=1)
    verified = verify_len > 0
    cap = (verify_len - 1).clamp(min=0)
    correct_len = torch.minimum(accepted, cap)
    bonus = predicted.gather(1, correct_len.unsqueeze(1)).squeeze(1)
    bonus = torch.where(verified, bonus, -1)
    trim = torch.where(verified, accepted - correct_len, 0)
    commit_len = torch.where(verified, correct_len + 1, 0)
    slots = torch.arange(candidates.shape[1]).unsqueeze(0)
    shifted = torch.cat([candidates[:, 1:], bonus.unsqueeze(1)], dim=1)
    at_bonus = torch.where(slots == correct_len.unsqueeze(1), bonus.unsqueeze(1), shifted)
    out_tokens = torch.where(slots < commit_len.unsqueeze(1), at_bonus, -1)
    return Commit(correct_len, bonus, trim, commit_len, prefix_len + commit_len, out_tokens)
