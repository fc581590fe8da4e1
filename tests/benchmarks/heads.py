"""Output head with argmax: torch as one would write it, beside our block without a bias."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from .chains import dflash
from .parity import NEAR, SLACK, Parity
from .problem import BF16, SEED, Case
from .variant import Variant, fold

DRAWN_FROM = SEED + 1


def hidden_for(case: Case, device: torch.device) -> Tensor:
    """Hidden states [B, K + 1, D] bf16, scaled so that logits have a deviation near 1."""
    source = torch.Generator(device).manual_seed(DRAWN_FROM)
    made = torch.empty(case.rows, case.drafts + 1, case.hidden, dtype=BF16, device=device)
    return made.normal_(generator=source)


def plain(case: Case, hidden: Tensor, weight: Tensor) -> list[Variant]:
    """A product and an argmax, eager and in a graph."""
    tokens = torch.zeros(case.rows, case.drafts, dtype=torch.int64, device=weight.device)
    rows = hidden[:, 1:].contiguous()

    def body() -> None:
        torch.argmax(functional.linear(rows, weight), -1, out=tokens)

    replay = fold(body, weight.device)
    return [
        Variant("torch argmax, eager", body, tokens, "own"),
        Variant("torch argmax, in a graph", replay, tokens, "own", loose=body),
    ]


def folded(
    case: Case, hidden: Tensor, weight: Tensor, stages: str, *, stored: bool = False
) -> list[Variant]:
    """Our block in a graph; `stored` writes the logits of few rows too."""
    return [dflash(case, weight, hidden, stages, stored=stored)[1]]


def builders(case: Case, hidden: Tensor, weight: Tensor) -> dict[str, Callable[[], list[Variant]]]:
    """Every implementation of a head, by name."""
    return {
        "torch argmax": partial(plain, case, hidden, weight),
        "ours torch": partial(folded, case, hidden, weight, "torch"),
        "ours triton": partial(folded, case, hidden, weight, "triton"),
        "ours triton, stored": partial(folded, case, hidden, weight, "triton", stored=True),
    }


def judged(variant: Variant, hidden: Tensor, weight: Tensor) -> Parity:
    """Run one block; every draft has to come within rounding of the largest logit of its row."""
    variant.run()
    tokens = variant.tokens.clone()
    outside = (tokens < 0) | (tokens >= len(weight))
    if bool(outside.any()):
        return Parity(good=False, judged=1.0, complaint=f"{int(outside.sum())} ids outside")
    logits = functional.linear(hidden[:, 1:], weight).float()
    short = logits.amax(-1) - logits.gather(-1, tokens[..., None])[..., 0]
    wrong = int((short > logits.abs().amax(-1) * SLACK + NEAR).sum())
    text = f"{wrong} of {tokens.numel()} drafts are no winner" if wrong else ""
    return Parity(good=wrong == 0, judged=1.0, complaint=text)
