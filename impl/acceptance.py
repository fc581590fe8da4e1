"""Greedy accept: what the target commits of a drafted block, written into given tensors."""

from dataclasses import dataclass

import torch
from torch import Tensor

NAN = 1


@dataclass(frozen=True)
class Commit:
    """Where an accept writes; integer tensors of any width.

    correct_len  [B]: accepted drafts after the cut, without the bonus
    bonus        [B]: the target's own next token; -1 when nothing is committed
    trim         [B]: accepted drafts that the cut dropped
    commit       [B]: committed tokens, accepted drafts and the bonus
    new_seq_lens [B]: prefix + commit
    out_tokens   [B, K + 1]: accepted drafts, the bonus, then -1
    flags        [B]: 1 when a target row that decides holds a NaN; such a request commits nothing
    """

    correct_len: Tensor
    bonus: Tensor
    trim: Tensor
    commit: Tensor
    new_seq_lens: Tensor
    out_tokens: Tensor
    flags: Tensor


def accept_greedy(
    candidates: Tensor, target_logits: Tensor, verify_len: Tensor, prefix: Tensor, out: Commit
) -> None:
    """Accept leading drafts that equal the target's argmax, cut, and add the bonus.

    candidates    [B, K + 1] int64: anchor, then the drafts
    target_logits [B * (K + 1), V] float: row t is the law after candidate t
    verify_len    [B] int: rows that may be used, at most K + 1; 0 marks a pad row
    prefix        [B] int: committed length before the block

    No rounding: comparisons and integers only. Writes every tensor of `out` whole.
    """
    rows, wide = candidates.shape
    target = target_logits.view(rows, wide, -1)
    predicted = target.argmax(-1)
    accepted = (candidates[:, 1:] == predicted[:, :-1]).long().cumprod(1).sum(1)
    kept = torch.minimum(accepted, (verify_len - 1).clamp(min=0).long())

    place = torch.arange(wide, device=candidates.device)[None, :]
    decides = place <= kept[:, None]
    asked = verify_len > 0
    broken = (target.isnan().any(-1) & decides).any(1) & asked
    sound = asked & ~broken

    bonus = predicted.gather(1, kept[:, None])
    shifted = torch.cat([candidates[:, 1:], bonus], 1)
    tokens = torch.where(place == kept[:, None], bonus, shifted)
    commit = (kept + 1).masked_fill(~sound, 0)
    out.correct_len.copy_(kept.masked_fill(~sound, 0))
    out.bonus.copy_(bonus[:, 0].masked_fill(~sound, -1))
    out.trim.copy_((accepted - kept).masked_fill(~sound, 0))
    out.commit.copy_(commit)
    out.new_seq_lens.copy_(prefix + commit)
    out.out_tokens.copy_(tokens.masked_fill(~(decides & sound[:, None]), -1))
    out.flags.copy_(broken * NAN)
