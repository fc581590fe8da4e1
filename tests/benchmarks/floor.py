"""Ceilings of the device, measured in the same run, and floors of a block at them.

A floor is the least time that its traffic and its products take there: a yardstick and no
bound, since weights that stay on chip between steps beat it.
"""

from dataclasses import dataclass

import torch

from .clock import Clock
from .problem import BF16, RANK, Case
from .variant import fold

FEW, MANY = 32, 256


@dataclass(frozen=True)
class Ceilings:
    """copy, read: bytes a microsecond; gemm: bf16 operations a microsecond; node: microseconds."""

    copy: float
    read: float
    gemm: float
    node: float


def measured(clock: Clock, device: torch.device, moved: int = 2**30, side: int = 8192) -> Ceilings:
    """Measure them.

    moved  bytes that are copied and read; side of the square product
    """
    copy, read = _memory(clock, device, moved)
    return Ceilings(copy, read, _product(clock, device, side), _node(clock, device))


def _memory(clock: Clock, device: torch.device, moved: int) -> tuple[float, float]:
    source = torch.zeros(moved // 4, dtype=torch.float32, device=device)
    target, total = torch.empty_like(source), torch.zeros((), device=device)
    copied = clock.hot(lambda: target.copy_(source))
    return 2 * moved / copied, moved / clock.hot(lambda: torch.sum(source, 0, out=total))


def _product(clock: Clock, device: torch.device, side: int) -> float:
    left = torch.randn(side, side, device=device).to(BF16)
    out = torch.empty_like(left)
    return 2 * side**3 / clock.hot(lambda: torch.mm(left, left, out=out))


def _node(clock: Clock, device: torch.device) -> float:
    tiny = torch.zeros(1, device=device)

    def chain(nodes: int) -> float:
        def body() -> None:
            for _ in range(nodes):
                tiny.add_(1.0)

        return clock.hot(fold(body, device))

    return (chain(MANY) - chain(FEW)) / (MANY - FEW)


def chain_floor(case: Case, found: Ceilings) -> float:
    """K steps: w2, base logits read and, in a sampling batch, step logits written; bf16."""
    wide, rows = case.vocabulary, case.rows
    moved = 2 * wide * case.rank + 2 * rows * wide * (2 if case.samples else 1)
    return case.drafts * max(moved / found.copy, 2 * rows * wide * case.rank / found.gemm)


def head_floor(case: Case, found: Ceilings, *, stored: bool = False) -> float:
    """The head's weight and the hidden states, with the logits written where they are stored."""
    wide, deep, count = case.vocabulary, case.hidden, case.rows * case.drafts
    moved = 2 * wide * deep + 2 * count * deep + (2 * count * wide if stored else 0)
    return max(moved / found.copy, 2 * count * wide * deep / found.gemm)


def block_floor(case: Case, found: Ceilings) -> float:
    """Head with base logits stored, then the chain."""
    return head_floor(case, found, stored=True) + chain_floor(case, found)


def rank_note() -> str:
    """What the floors assume."""
    return f"rank {RANK}, bfloat16 weights and logits"
