"""Cases of the table, and their data: the same for every implementation of one run."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

SEED = 7
RANK = 256
TEMPERATURE = 0.8
BF16 = torch.bfloat16
MIXES = ("greedy", "sampled", "half")
UNLIMITED = 2**30


@dataclass(frozen=True)
class Case:
    """One size: V, B, K, how the rows are mixed, Markov rank R, and D of a head.

    mix  'greedy': every draft is an argmax and no logits are kept. 'sampled': every row draws.
         'half': rows 1, 3, ... of a sampling batch are greedy
    """

    vocabulary: int
    rows: int
    drafts: int
    mix: str = "greedy"
    rank: int = RANK
    hidden: int = 0

    @property
    def samples(self) -> bool:
        """Whether the batch draws, and keeps its step logits."""
        return self.mix != "greedy"


@dataclass(frozen=True)
class Problem:
    """What a block is drafted from.

    base        [B, K, V] bf16; w1, w2 [V, R] bf16
    temperature [B] float32, at a greedy row too; greedy [B] bool; anchor [B] int64
    """

    case: Case
    base: Tensor
    w1: Tensor
    w2: Tensor
    temperature: Tensor
    greedy: Tensor
    anchor: Tensor

    @property
    def device(self) -> torch.device:
        """Where everything lies."""
        return self.base.device


@lru_cache(maxsize=1)
def _markov(vocabulary: int, rank: int, device: torch.device) -> tuple[Tensor, Tensor]:
    source = torch.Generator(device).manual_seed(SEED)
    shape = (vocabulary, rank)
    one, two = (torch.randn(shape, device=device, generator=source) for _ in range(2))
    return one.to(BF16), (two / rank**0.5).to(BF16)


@lru_cache(maxsize=1)
def head_weight(vocabulary: int, hidden: int, device: torch.device) -> Tensor:
    """An output head [V, D] bf16."""
    source = torch.Generator(device).manual_seed(SEED + hidden)
    made = torch.empty(vocabulary, hidden, dtype=BF16, device=device)
    return made.normal_(0.0, hidden**-0.5, generator=source)


def problem_for(case: Case, device: torch.device) -> Problem:
    """The data of a case."""
    source = torch.Generator(device).manual_seed(SEED + case.rows)
    rows = torch.arange(case.rows, device=device)
    base = torch.empty(case.rows, case.drafts, case.vocabulary, dtype=BF16, device=device)
    base.normal_(0.0, 2.0, generator=source)
    greedy = torch.full_like(rows, case.mix == "greedy", dtype=torch.bool)
    if case.mix == "half":
        greedy = rows % 2 == 1
    return Problem(
        case=case,
        base=base,
        w1=_markov(case.vocabulary, case.rank, device)[0],
        w2=_markov(case.vocabulary, case.rank, device)[1],
        temperature=torch.full((case.rows,), TEMPERATURE, device=device),
        greedy=greedy,
        anchor=rows * 97 % case.vocabulary,
    )


def chain_cases(*, quick: bool) -> Iterator[Case]:
    """The sizes of the chain, largest vocabulary first."""
    wide = (151_936, 129_280) if quick else (151_936, 129_280, 128_000)
    drafts = (7,) if quick else (7, 5, 15)
    for vocabulary, count, rows, mix in product(wide, drafts, (1, 8, 32, 64), MIXES):
        # A batch of one has no half.
        if (rows, mix) != (1, "half"):
            yield Case(vocabulary, rows, count, mix)


def head_cases(*, quick: bool) -> Iterator[Case]:
    """The sizes of an output head with argmax; n = B K."""
    wide = (151_936, 129_280) if quick else (151_936, 129_280, 128_000)
    for vocabulary, hidden in product(wide, (4096,) if quick else (4096, 2048, 7168)):
        for rows in (1, 8, 32, 64):
            yield Case(vocabulary, rows, 7, hidden=hidden)
