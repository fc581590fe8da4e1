"""How much of a draft the target keeps: greedy rows by argmax, sampled rows by coins."""

from typing import NamedTuple

import torch

from .choice import law, winner


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
    rows = torch.arange(candidates.shape[1])
    cap = (verify_len - 1).clamp(min=0)
    reached = torch.minimum(accepted, cap)
    bonus = predicted.gather(1, reached.unsqueeze(1)).squeeze(1)
    decides = rows <= reached.unsqueeze(1)
    has_nan = target_logits.isnan().any(dim=2)
    broken = (has_nan & decides).any(dim=1)
    return commit(candidates[:, 1:], accepted, bonus, broken, verify_len, prefix_len)


def commit(
    tokens: torch.Tensor,
    accepted: torch.Tensor,
    bonus: torch.Tensor,
    broken: torch.Tensor,
    verify_len: torch.Tensor,
    prefix_len: torch.Tensor,
) -> Commit:
    """Cut and lay out what a rule decided.

    tokens [B, K] int64 the drafts; accepted [B] int64 how many of them, before the cut; bonus [B]
    int64 the token after the cut; broken [B] bool a NaN decided. A broken request, and one of
    verify_len 0, commits nothing: lengths 0, bonus -1. out_tokens [B, K + 1] holds the accepted
    drafts, then the bonus, then -1.
    """
    present = verify_len > 0
    commits = present & ~broken
    reached = torch.minimum(accepted, (verify_len - 1).clamp(min=0))
    correct_len = torch.where(commits, reached, 0)
    own_bonus = torch.where(commits, bonus, -1)
    trim = torch.where(commits, accepted - reached, 0)
    commit_len = torch.where(commits, reached + 1, 0)
    drafts_then_any = torch.nn.functional.pad(tokens, (0, 1))
    slots = torch.arange(drafts_then_any.shape[1])
    at_bonus = slots == correct_len.unsqueeze(1)
    with_bonus = torch.where(at_bonus, own_bonus.unsqueeze(1), drafts_then_any)
    out_tokens = torch.where(slots < commit_len.unsqueeze(1), with_bonus, -1)
    new_seq_len = prefix_len + commit_len
    flags = present & broken
    return Commit(correct_len, own_bonus, trim, commit_len, new_seq_len, out_tokens, flags)


def claimed_law(
    logits: torch.Tensor, temperature: torch.Tensor, tokens: torch.Tensor, one_hot: torch.Tensor
) -> torch.Tensor:
    """The law q that drafts are accepted with.

    logits [B, K, V] float64, kept step logits; temperature [B] clamped; tokens [B, K] int64;
    one_hot [B] bool the rows that drafted their argmax. Returns [B, K, V] float64: softmax(l / T),
    or all mass at the token.
    """
    softmax = law(logits, temperature.unsqueeze(1).expand(tokens.shape))
    at_token = torch.nn.functional.one_hot(tokens, logits.shape[2]).to(torch.float64)
    return torch.where(one_hot[:, None, None], at_token, softmax)


def usable(q: torch.Tensor, marks: torch.Tensor) -> torch.Tensor:
    """The claimed law with a zero row behind it, and zeros where nothing can be claimed.

    q [B, K, V]; marks [B, K] flags of the draft. Returns [B, K + 1, V]: zero on flagged rows and
    where q is NaN or lies outside [0, 1]. Without a claim a draft is not accepted, and what p
    exceeds the claim by is p itself; so it is after the last draft.
    """
    sound = (q >= 0) & (q <= 1) & (marks == 0).unsqueeze(2)
    return torch.nn.functional.pad(torch.where(sound, q, 0.0), (0, 0, 0, 1))


def of_tokens(laws: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The probability of each draft: laws [B, >= K, V], tokens [B, K]. Returns [B, K]."""
    return laws[:, : tokens.shape[1]].gather(2, tokens.unsqueeze(2)).squeeze(2)


def drawn(mass: torch.Tensor, otherwise: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Inverse CDF: the first id whose cumulated mass exceeds u times the sum.

    mass [B, V] float64; otherwise [B, V] the law where there is no mass at all; u [B] in [0, 1).
    Returns [B] int64. When rounding leaves no such id, the last one with mass; an id without mass
    is never drawn. A row without any mass, NaN included, yields 0.
    """
    used = torch.where((mass > 0).any(dim=1, keepdim=True), mass, otherwise)
    cumulated = used.cumsum(dim=1)
    exceeds = (cumulated > u.to(torch.float64).unsqueeze(1) * cumulated[:, -1:]) & (used > 0)
    ids = torch.arange(used.shape[1])
    first = torch.where(exceeds, ids, used.shape[1]).amin(dim=1)
    last = torch.where(used > 0, ids, 0).amax(dim=1)
    return torch.minimum(first, last)


def accept_chain(
    tokens: torch.Tensor,
    q: torch.Tensor,
    p: torch.Tensor,
    coins: torch.Tensor,
    verify_len: torch.Tensor,
    prefix_len: torch.Tensor,
    marks: torch.Tensor,
) -> Commit:
    """Keep drafts until the first whose coin q is not below p; then draw from max(p - q, 0).

    tokens [B, K] int64; q [B, K, V] the claimed law; p [B, K + 1, V] the target law, row t after t
    drafts; coins [B, K + 1] in (0, 1), the last for the final draw; verify_len, prefix_len [B] as
    in `accept_greedy`; marks [B, K] flags of the draft. A whole block ends with a draw from p. A
    flagged draft is not accepted, and the draw in its place is from p. A cut row ends with the
    accepted draft at the cut. The rows of p up to the one that ends the commit decide.
    """
    claim = usable(q, marks)
    q_token, p_token = of_tokens(claim, tokens), of_tokens(p, tokens)
    keeps = (q_token > 0) & (coins[:, :-1].to(torch.float64) * q_token < p_token)
    accepted = keeps.to(torch.int64).cumprod(dim=1).sum(dim=1)
    excess = (p - claim).clamp(min=0)
    bonus = ending(tokens, accepted, excess, p, coins[:, -1], verify_len)
    reached = torch.minimum(accepted, (verify_len - 1).clamp(min=0))
    decides = torch.arange(p.shape[1]) <= reached.unsqueeze(1)
    broken = (p.isnan().any(dim=2) & decides).any(dim=1)
    return commit(tokens, accepted, bonus, broken, verify_len, prefix_len)


def accept_block(
    tokens: torch.Tensor,
    q: torch.Tensor,
    p: torch.Tensor,
    coins: torch.Tensor,
    verify_len: torch.Tensor,
    prefix_len: torch.Tensor,
    marks: torch.Tensor,
) -> Commit:
    """Block verification: keep the longest prefix whose own coin lies below r and h.

    Arguments as in `accept_chain`. r_0 = 1 and r_i = min(r_(i-1) p_i / q_i, 1), 0 where nothing is
    claimed; S_i = sum of max(r_i p_(i+1) - q_(i+1), 0) with q_(K+1) = 0; h_i = S_i / (S_i + 1 -
    r_i), and r_i where it is 0 or 1. The final draw is from max(r p - q, 0) at the kept length.
    A decision is made from the end, so that every verified row decides that a prefix can reach.
    """
    claim = usable(q, marks)
    q_token, p_token = of_tokens(claim, tokens), of_tokens(p, tokens)
    ratio = prefix_ratio(q_token, p_token)
    excess = (ratio.unsqueeze(2) * p - claim).clamp(min=0)
    surplus = excess.sum(dim=2)
    between = (ratio > 0) & (ratio < 1)
    height = torch.where(between, surplus / (surplus + 1 - ratio), ratio)
    coin = coins[:, :-1].to(torch.float64)
    keeps = (coin < ratio[:, 1:]) & (coin < height[:, 1:])
    keeps_none_or_more = torch.nn.functional.pad(keeps, (1, 0), value=True)
    lengths = torch.arange(tokens.shape[1] + 1)
    accepted = torch.where(keeps_none_or_more, lengths, 0).amax(dim=1)
    bonus = ending(tokens, accepted, excess, p, coins[:, -1], verify_len)
    decides = (ratio > 0) & (lengths < verify_len.unsqueeze(1))
    broken = (p.isnan().any(dim=2) & decides).any(dim=1)
    return commit(tokens, accepted, bonus, broken, verify_len, prefix_len)


def prefix_ratio(q_token: torch.Tensor, p_token: torch.Tensor) -> torch.Tensor:
    """r_0 to r_K of block verification: q_token, p_token [B, K]. Returns [B, K + 1] float64."""
    ratios = [torch.ones(q_token.shape[0], dtype=torch.float64)]
    for t in range(q_token.shape[1]):
        quotient = torch.where(q_token[:, t] > 0, p_token[:, t] / q_token[:, t], 0.0)
        ratios.append((ratios[-1] * quotient).clamp(max=1))
    return torch.stack(ratios, dim=1)


def ending(
    tokens: torch.Tensor,
    accepted: torch.Tensor,
    excess: torch.Tensor,
    p: torch.Tensor,
    u: torch.Tensor,
    verify_len: torch.Tensor,
) -> torch.Tensor:
    """The token after the accepted ones: the accepted draft at the cut, else the final draw.

    excess [B, K + 1, V] what the final draw follows at each length, p where it is zero.
    Returns [B] int64.
    """
    every = torch.arange(tokens.shape[0])
    cap = (verify_len - 1).clamp(min=0)
    final = drawn(excess[every, accepted], p[every, accepted], u)
    at_cut = torch.nn.functional.pad(tokens, (0, 1))[every, cap]
    return torch.where(accepted > cap, at_cut, final)


def accept_mixed(by_argmax: Commit, by_coins: Commit, greedy: torch.Tensor) -> Commit:
    """The commit of a mixed batch: greedy rows [B] bool by argmax, the others by coins."""
    mask = greedy.unsqueeze(1)
    fields = [
        torch.where(mask if own.dim() == 2 else greedy, own, other)
        for own, other in zip(by_argmax, by_coins, strict=True)
    ]
    return Commit(*fields)
