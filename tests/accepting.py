"""Acceptance in plain float64 loops, one request at a time, and random requests for it."""

import math
from dataclasses import dataclass

import torch

from impl.acceptance import RULES, Asked, Commit, select
from impl.claim import claimed_law
from impl.filters import target_law

from .strategies import source

ALL = 2**30
NAMES = ("correct_len", "bonus", "trim", "commit", "new_seq_lens", "out_tokens", "flags")
Law = list[float]


@dataclass
class Requests:
    """Everything an accept of sampled rows is given; shapes as in the parts of impl."""

    candidates: torch.Tensor
    target: torch.Tensor
    step_logits: torch.Tensor
    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    flags: torch.Tensor
    one_hot: torch.Tensor
    coins: torch.Tensor
    verify_len: torch.Tensor
    prefix: torch.Tensor


def requests(rows: int, drafts: int, vocabulary: int, seed: int) -> Requests:
    """Random requests: masks, filters, cuts, flags and one-hot rows among them."""
    draw = source(seed)

    def pick(values: list[float]) -> torch.Tensor:
        return torch.tensor(values)[torch.randint(0, len(values), (rows,), generator=draw)]

    def normal(*size: int) -> torch.Tensor:
        logits = 2 * torch.randn(size, generator=draw)
        logits[torch.rand(size, generator=draw) < 0.1] = -torch.inf
        return logits

    target = normal(rows, drafts + 1, vocabulary)
    target[torch.rand(rows, drafts + 1, generator=draw) < 0.04, 0] = torch.nan
    return Requests(
        candidates=torch.randint(0, vocabulary, (rows, drafts + 1), generator=draw),
        target=target,
        step_logits=normal(rows, drafts, vocabulary),
        temperature=pick([0.3, 1.0, 3.0]),
        top_k=pick([2, 3, ALL]).long(),
        top_p=pick([0.35, 0.8, 1.0]),
        flags=(torch.rand(rows, drafts, generator=draw) < 0.1).to(torch.uint8),
        one_hot=torch.rand(rows, generator=draw) < 0.3,
        coins=torch.rand(rows, drafts + 1, generator=draw),
        verify_len=torch.randint(0, drafts + 2, (rows,), generator=draw),
        prefix=torch.randint(0, 99, (rows,), generator=draw),
    )


def fold(rule: str, asked: Requests) -> Commit:
    """The accept of impl, into tensors that hold junk."""
    law = target_law(asked.target, asked.temperature, asked.top_k, asked.top_p)
    claim = claimed_law(
        asked.candidates[:, 1:],
        asked.step_logits,
        asked.temperature,
        asked.one_hot,
        asked.flags,
        law.shape[-1],
    )
    return fold_laws(rule, asked, law, claim)


def fold_laws(rule: str, asked: Requests, law: torch.Tensor, claim: torch.Tensor) -> Commit:
    """The accept of impl with given laws p and q."""
    rows, wide = asked.candidates.shape
    junk = Commit.empty(rows, wide - 1, asked.candidates.device)
    for value in vars(junk).values():
        value.fill_(99)
    RULES[rule](
        Asked(asked.candidates, asked.verify_len, asked.prefix), law, claim, asked.coins, junk
    )
    return junk


def plain_law(logits: Law, temperature: float, top_k: int, top_p: float) -> Law | None:
    """Softmax, top-k, top-p, renormalised after each; None where there is no law."""
    top = max(logits)
    if any(math.isnan(logit) for logit in logits) or math.isinf(top):
        return None
    mass = [math.exp((logit - top) / temperature) for logit in logits]
    order = sorted(range(len(mass)), key=lambda place: (-logits[place], place))[:top_k]
    whole = sum(mass[place] for place in order)
    kept, before = [], 0.0
    for place in order:
        if before < top_p or top_p == 1:
            kept.append(place)
        before += mass[place] / whole
    whole = sum(mass[place] for place in kept)
    return [mass[place] / whole if place in kept else 0.0 for place in range(len(mass))]


def plain_draw(mass: Law, uniform: float) -> int:
    """First id whose cumulated mass exceeds u times the sum, else the last one with mass."""
    run, last = 0.0, -1
    for place, share in enumerate(mass):
        run += share
        if share > 0:
            last = place
            if run > uniform * sum(mass):
                return place
    return last


def plain_claims(asked: Requests, row: int) -> list[Law]:
    """Q of every position of a row; zeros from the first flag on."""
    claims = []
    for step, draft in enumerate(asked.candidates[row, 1:].tolist()):
        logits = asked.step_logits[row, step].tolist()
        law = plain_law(logits, float(asked.temperature[row]), ALL, 1.0)
        if bool(asked.one_hot[row]):
            law = [float(place == draft) for place in range(len(logits))]
        if law is None or bool(asked.flags[row, : step + 1].any()):
            law = [0.0] * len(logits)
        claims.append(law)
    return claims


def plain_lengths(
    rule: str, drafts: list[int], laws: list[Law | None], claims: list[Law], coins: Law
) -> tuple[int, list[float]]:
    """Accepted drafts before the cut, and the prefix ratio of every row that was reached."""
    ratios = [1.0]
    for step, draft in enumerate(drafts):
        law, claimed = laws[step], claims[step][draft]
        if law is None or claimed == 0:
            break
        if rule == "chain":
            if coins[step] * claimed >= law[draft]:
                break
            ratios.append(1.0)
            continue
        ratios.append(min(ratios[-1] * law[draft] / claimed, 1.0))
    if rule == "chain":
        return len(ratios) - 1, ratios
    for length in range(len(ratios) - 1, 0, -1):
        ratio, bound = ratios[length], ratios[length]
        law = laws[length]
        if length < len(drafts) and law is not None and 0 < ratio < 1:
            pairs = zip(law, claims[length], strict=True)
            spare = sum(max(ratio * share - claimed, 0.0) for share, claimed in pairs)
            bound = spare / (spare + 1 - ratio)
        if coins[length - 1] < min(ratio, bound):
            return length, ratios
    return 0, ratios


def plain_accept(rule: str, asked: Requests, row: int) -> list[object]:
    """What one request commits, in the order of NAMES."""
    candidates, wide = asked.candidates[row].tolist(), asked.candidates.shape[1]
    keep, share = int(asked.top_k[row]), float(asked.top_p[row])
    heat, prefix = float(asked.temperature[row]), int(asked.prefix[row])
    laws = [plain_law(row_logits, heat, keep, share) for row_logits in asked.target[row].tolist()]
    claims, coins = plain_claims(asked, row), asked.coins[row].tolist()
    allowed = int(asked.verify_len[row])
    accepted, ratios = plain_lengths(rule, candidates[1:], laws, claims, coins)
    reached = [law for law, ratio in zip(laws, ratios, strict=False) if ratio > 0]
    broken = None in reached[:allowed]
    if allowed == 0 or broken:
        return [0, -1, 0, 0, prefix, [-1] * wide, int(broken)]
    kept = min(accepted, allowed - 1)
    if kept < accepted:
        bonus = candidates[kept + 1]
    else:
        law = laws[kept]
        assert law is not None
        claim = claims[kept] if kept < len(claims) else [0.0] * len(law)
        ratio = ratios[kept] if any(claim) else 1.0
        rest = [max(ratio * p - q, 0.0) for p, q in zip(law, claim, strict=True)]
        bonus = plain_draw(rest if sum(rest) > 0 else law, coins[-1])
    tokens = [*candidates[1 : kept + 1], bonus]
    tokens += [-1] * (wide - len(tokens))
    return [kept, bonus, accepted - kept, kept + 1, prefix + kept + 1, tokens, 0]


def mixed(greedy: torch.Tensor, one: Commit, other: Commit) -> Commit:
    """Rows of `one` where the mask is set, else those of `other`, in fresh tensors."""
    out = one.clone()
    select(greedy, one, other, out)
    return out
