"""Accept: what the target commits of a drafted block, written into given tensors.

greedy   leading drafts that equal the target's argmax
chain    leading drafts whose coin falls below p / q
block    block verification: the longest prefix whose ratio r its coin falls below
mixed    both are computed for every row, and a mask selects

A one-hot draft is an accept with a q that has all its mass at the draft.
"""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .residual import inverse_cdf, residual

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

    @classmethod
    def empty(cls, rows: int, drafts: int, device: torch.device) -> "Commit":
        """Allocate for `rows` requests of K = `drafts`; int64, flags uint8."""

        def zeros(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.int64, device=device)

        return cls(
            correct_len=zeros(rows),
            bonus=zeros(rows),
            trim=zeros(rows),
            commit=zeros(rows),
            new_seq_lens=zeros(rows),
            out_tokens=zeros(rows, drafts + 1),
            flags=torch.zeros(rows, dtype=torch.uint8, device=device),
        )

    def rows(self, count: int) -> "Commit":
        """Views of the first `count` requests."""
        return Commit(*(getattr(self, field.name)[:count] for field in fields(self)))

    def clone(self) -> "Commit":
        """Copies that the next accept does not change."""
        return Commit(*(getattr(self, field.name).clone() for field in fields(self)))


@dataclass(frozen=True)
class Asked:
    """What an accept is asked for besides laws.

    candidates [B, K + 1] int64: anchor, then the drafts
    verify_len [B] int: rows that may be used, at most K + 1; 0 marks a pad row
    prefix     [B] int: committed length before the block
    """

    candidates: Tensor
    verify_len: Tensor
    prefix: Tensor

    @property
    def drafts(self) -> Tensor:
        """The drafts, [B, K]."""
        return self.candidates[:, 1:]

    @property
    def place(self) -> Tensor:
        """Numbers of the target rows, [1, K + 1] int64."""
        return torch.arange(self.candidates.shape[1], device=self.candidates.device)[None, :]


def accept_greedy(
    candidates: Tensor, target_logits: Tensor, verify_len: Tensor, prefix: Tensor, out: Commit
) -> None:
    """Accept leading drafts that equal the target's argmax, cut, and add the bonus.

    candidates, verify_len, prefix  as in Asked
    target_logits [B * (K + 1), V] float: row t is the law after candidate t

    No rounding: comparisons and integers only. Writes every tensor of `out` whole.
    """
    asked = Asked(candidates, verify_len, prefix)
    target = target_logits.view(*candidates.shape, -1)
    predicted = target.argmax(-1)
    accepted = (asked.drafts == predicted[:, :-1]).long().cumprod(1).sum(1)
    kept = _cut(asked, accepted)
    broken = (target.isnan().any(-1) & (asked.place <= kept[:, None])).any(1)
    bonus = predicted.gather(1, kept[:, None])[:, 0]
    _finalise(asked, accepted, kept, bonus, broken, out)


def accept_chain(asked: Asked, target: Tensor, claimed: Tensor, coins: Tensor, out: Commit) -> None:
    """Accept leading drafts with coin * q < p, cut, and draw the residual or bonus token.

    target  [B, K + 1, V] float32: p, filtered; row t is the law after candidate t
    claimed [B, K, V] float32: q; zeros where nothing may be accepted
    coins   [B, K + 1] float32: the accept coins, then the final draw

    Float32. Writes every tensor of `out` whole.
    """
    wanted, offered = _at(target[:, :-1], asked.drafts), _at(claimed, asked.drafts)
    taken = (offered > 0) & (coins[:, :-1] * offered < wanted)
    accepted = taken.long().cumprod(1).sum(1)
    reached = asked.place <= accepted[:, None]
    ratio = torch.ones_like(coins)
    _settle(asked, target, claimed, ratio, coins[:, -1], accepted, reached, out)


def accept_block(asked: Asked, target: Tensor, claimed: Tensor, coins: Tensor, out: Commit) -> None:
    """Accept the longest prefix that block verification lets pass; arguments as in `accept_chain`.

    r_0 = 1 and r_i = min(r_{i-1} p_i / q_i, 1); prefix i passes when its coin is below
    h_i = S / (S + 1 - r_i), S = sum max(r_i p - q, 0) of the next position, and below r_i.
    """
    wanted, offered = _at(target[:, :-1], asked.drafts), _at(claimed, asked.drafts)
    ratios = [torch.ones_like(coins[:, 0])]
    for step in range(asked.drafts.shape[1]):
        ratio = (ratios[-1] * wanted[:, step] / offered[:, step]).clamp(max=1)
        possible = (offered[:, step] > 0) & ~ratio.isnan()
        ratios.append(torch.where(possible, ratio, 0.0))
    ratio = torch.stack(ratios, 1)
    inner = ratio[:, :-1]
    spare = (inner[:, :, None] * target[:, :-1] - claimed).clamp(min=0).sum(-1)
    inside = (inner > 0) & (inner < 1)
    bound = torch.where(inside | spare.isnan(), spare / (spare + 1 - inner), inner)
    # A row that may not be used says nothing: the block then ends before it.
    unused = asked.place[:, :-1] >= asked.verify_len[:, None]
    bound = torch.where(unused & bound.isnan(), inner, bound)
    bound = torch.cat((bound, ratio[:, -1:]), 1)[:, 1:]
    passes = (coins[:, :-1] < ratio[:, 1:]) & (coins[:, :-1] < bound)
    accepted = (passes * asked.place[:, 1:]).amax(1)
    _settle(asked, target, claimed, ratio, coins[:, -1], accepted, ratio > 0, out)


RULES = {"chain": accept_chain, "block": accept_block}


def select(greedy: Tensor, one: Commit, other: Commit, out: Commit) -> None:
    """Write the rows of `one` where `greedy` [B] bool is set, else those of `other`."""
    for field in fields(Commit):
        first, second = getattr(one, field.name), getattr(other, field.name)
        mask = greedy.view(-1, *(1,) * (first.dim() - 1))
        getattr(out, field.name).copy_(torch.where(mask, first, second))


def _at(law: Tensor, tokens: Tensor) -> Tensor:
    return law.gather(-1, tokens[..., None])[..., 0]


def _cut(asked: Asked, accepted: Tensor) -> Tensor:
    return torch.minimum(accepted, (asked.verify_len - 1).clamp(min=0).long())


def _settle(
    asked: Asked,
    target: Tensor,
    claimed: Tensor,
    ratio: Tensor,
    uniform: Tensor,
    accepted: Tensor,
    reached: Tensor,
    out: Commit,
) -> None:
    # After the last draft, and after a position that claims nothing, the whole law is left.
    claims = torch.cat((claimed, torch.zeros_like(claimed[:, :1])), 1)
    row = accepted[:, None, None].expand(-1, 1, target.shape[-1])
    law, claim = target.gather(1, row)[:, 0], claims.gather(1, row)[:, 0]
    share = ratio.gather(1, accepted[:, None])[:, 0].masked_fill(~claim.any(-1), 1.0)
    drawn = inverse_cdf(residual(law, claim, share), uniform)

    kept = _cut(asked, accepted)
    follower = asked.candidates.gather(1, (kept + 1).clamp(max=claimed.shape[1])[:, None])[:, 0]
    bonus = torch.where(kept < accepted, follower, drawn)
    decides = reached & (asked.place < asked.verify_len[:, None])
    broken = (target.isnan().any(-1) & decides).any(1)
    _finalise(asked, accepted, kept, bonus, broken, out)


def _finalise(
    asked: Asked, accepted: Tensor, kept: Tensor, bonus: Tensor, broken: Tensor, out: Commit
) -> None:
    wanted = asked.verify_len > 0
    sound = wanted & ~broken
    shifted = torch.cat([asked.drafts, bonus[:, None]], 1)
    tokens = torch.where(asked.place == kept[:, None], bonus[:, None], shifted)
    committed = (asked.place <= kept[:, None]) & sound[:, None]
    commit = (kept + 1).masked_fill(~sound, 0)
    out.correct_len.copy_(kept.masked_fill(~sound, 0))
    out.bonus.copy_(bonus.masked_fill(~sound, -1))
    out.trim.copy_((accepted - kept).masked_fill(~sound, 0))
    out.commit.copy_(commit)
    out.new_seq_lens.copy_(asked.prefix + commit)
    out.out_tokens.copy_(tokens.masked_fill(~committed, -1))
    out.flags.copy_((broken & wanted) * NAN)
