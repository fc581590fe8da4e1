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
    flags: torch.Tensor


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
    cut. verify_len 0 commits nothing and has bonus -1. A NaN in a row that decided anything, up to
    the one the bonus comes from, flags the request 1, and nothing of it is committed. out_tokens
    [B, K + 1] holds the accepted drafts, then the bonus, then -1.
    """
    predicted = winner(target_logits.to(torch.float64))
    agrees = candidates[:, 1:] == predicted[:, :-1]
    accepted = agrees.to(torch.int64).cumprod(dim=1).sum(dim=1)
    slots = torch.arange(candidates.shape[1]).unsqueeze(0)
    cap = (verify_len - 1).clamp(min=0)
    reached = torch.minimum(accepted, cap)
    has_nan = target_logits.isnan().any(dim=2)
    broken = (has_nan & (slots <= reached.unsqueeze(1))).any(dim=1) & (verify_len > 0)
    commits = (verify_len > 0) & ~broken
    own_token = predicted.gather(1, reached.unsqueeze(1)).squeeze(1)
    bonus = torch.where(commits, own_token, -1)
    correct_len = torch.where(commits, reached, 0)
    trim = torch.where(commits, accepted - reached, 0)
    commit_len = torch.where(commits, reached + 1, 0)
    drafts_then_any = torch.cat([candidates[:, 1:], bonus.unsqueeze(1)], dim=1)
    with_bonus = torch.where(slots == correct_len.unsqueeze(1), bonus.unsqueeze(1), drafts_then_any)
    out_tokens = torch.where(slots < commit_len.unsqueeze(1), with_bonus, -1)
    new_seq_len = prefix_len + commit_len
    return Commit(correct_len, bonus, trim, commit_len, new_seq_len, out_tokens, broken)
