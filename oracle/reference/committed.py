"""The exact law of committed tokens, by enumeration, with all coins integrated.

A rule is lossless when each committed token, given the ones before it and that it was committed,
follows the target's law. Its accept chances and final draws stand here as formulas, apart from the
functions in `acceptance` that flip coins.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import NamedTuple

import torch

from .filters import target_law
from .law import Prefix, Rows


def target_rows(logits: Rows, temperature: float, top_k: int, top_p: float) -> Rows:
    """The filtered target law after each prefix, from its logits."""

    def row(prefix: Prefix) -> torch.Tensor:
        heat = torch.tensor(temperature, dtype=torch.float64)
        return target_law(logits(prefix), heat, torch.tensor(top_k), torch.tensor(top_p))

    return row


class Rule(NamedTuple):
    """How many drafts are kept, and the law of the token after them, with the coins integrated.

    lengths maps tokens [K], q [K, V], p [K + 1, V] to the law [K + 1] of the accepted length; bonus
    maps the accepted length and the same three to the law [V] of the final draw.
    """

    lengths: Callable[[Prefix, torch.Tensor, torch.Tensor], torch.Tensor]
    bonus: Callable[[int, Prefix, torch.Tensor, torch.Tensor], torch.Tensor]


def normalised(mass: torch.Tensor, otherwise: torch.Tensor) -> torch.Tensor:
    """The law proportional to mass [V], or otherwise [V] when there is no mass."""
    total = mass.sum()
    return mass / total if float(total) > 0 else otherwise


def chain_lengths(tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Stop at the first draft whose coin is not below p / q."""
    law_of_length, kept = [], 1.0
    for t, token in enumerate(tokens):
        accept = min(1.0, float(p[t, token] / q[t, token]))
        law_of_length.append(kept * (1.0 - accept))
        kept = kept * accept
    return torch.tensor([*law_of_length, kept], dtype=torch.float64)


def chain_bonus(n: int, tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """max(p - q, 0) after a rejection, the target's last row after none."""
    if n == len(tokens):
        return p[n]
    return normalised((p[n] - q[n]).clamp(min=0), p[n])


def prefix_ratios(tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> list[float]:
    """r_0 = 1, r_i = min(r_(i-1) p_i / q_i, 1): K + 1 numbers."""
    ratios = [1.0]
    for t, token in enumerate(tokens):
        ratios.append(min(1.0, ratios[-1] * float(p[t, token] / q[t, token])))
    return ratios


def block_lengths(tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """Keep the longest prefix whose own coin lies below h_i = S / (S + 1 - r_i)."""
    ratios, drafts = prefix_ratios(tokens, q, p), len(tokens)
    law_of_length, open_mass = [0.0] * (drafts + 1), 1.0
    for i in range(drafts, 0, -1):
        r = ratios[i]
        if i == drafts or r in (0.0, 1.0):
            accept = r
        else:
            excess = float((r * p[i] - q[i]).clamp(min=0).sum())
            accept = excess / (excess + 1.0 - r)
        law_of_length[i] = open_mass * accept
        open_mass = open_mass * (1.0 - accept)
    law_of_length[0] = open_mass
    return torch.tensor(law_of_length, dtype=torch.float64)


def block_bonus(n: int, tokens: Prefix, q: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    """max(r p - q, 0) with the prefix ratio r, the target's last row after a whole block."""
    if n == len(tokens):
        return p[n]
    r = prefix_ratios(tokens, q, p)[n]
    return normalised((r * p[n] - q[n]).clamp(min=0), p[n])


CHAIN = Rule(chain_lengths, chain_bonus)
BLOCK = Rule(block_lengths, block_bonus)

Committed = Mapping[Prefix, float]


def committed(
    target: Rows,
    drafted: Rows,
    claimed: Rows,
    rule: Rule,
    sizes: tuple[int, int],
    verify_len: Callable[[Prefix], int],
) -> Committed:
    """P(at least k tokens are committed, and the first k are y), for every y of every length k.

    target, drafted, claimed: the laws p, the one that drew the drafts, and the q they are accepted
    with; sizes K, V; verify_len the rows verified of a drafted block. Sums over all V^K blocks, all
    accepted lengths and all final draws.
    """
    drafts, vocabulary = sizes
    mass: defaultdict[Prefix, float] = defaultdict(float)
    for block in product(range(vocabulary), repeat=drafts):
        before = [block[:t] for t in range(drafts + 1)]
        drawn = [float(drafted(before[t])[block[t]]) for t in range(drafts)]
        if prod(drawn) == 0.0:
            continue
        q = torch.stack([claimed(prefix) for prefix in before[:drafts]])
        p = torch.stack([target(prefix) for prefix in before])
        cap = verify_len(block) - 1
        for n, chance in enumerate(rule.lengths(block, q, p).tolist()):
            last = rule.bonus(n, block, q, p)
            for tokens, share in endings(block, n, cap, last).items():
                for k in range(1, len(tokens) + 1):
                    mass[tokens[:k]] += prod(drawn) * chance * share
    return dict(mass)


def endings(block: Prefix, n: int, cap: int, last: torch.Tensor) -> dict[Prefix, float]:
    """What is committed when n drafts are accepted, the cut at cap, and how often.

    last [V] the law of the final draw. A cut block ends with the accepted draft at the cut.
    """
    if n > cap:
        return {block[: cap + 1]: 1.0}
    return {(*block[:n], token): share for token, share in enumerate(last.tolist())}


def next_laws(mass: Committed, vocabulary: int) -> dict[Prefix, torch.Tensor]:
    """The law [V] of the next committed token after each prefix that can be committed so far."""
    befores = {tokens[:-1] for tokens, weight in mass.items() if weight > 0}
    laws = {}
    for before in befores:
        weights = [mass.get((*before, token), 0.0) for token in range(vocabulary)]
        laws[before] = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    return laws


def expected_length(mass: Committed) -> float:
    """The expected number of committed tokens: the sum of P(at least k) over k."""
    return sum(mass.values())
