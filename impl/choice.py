"""One draft column: step logits (P2), key, winner and flag.

Greedy rows and rows without a finite maximum take the argmax of the step logits, chosen by a mask:
noise and temperature never reach them, and no branch looks at data.
"""

import torch
from torch import Tensor

NAN, EMPTY = 1, 2


def step_logits(base: Tensor, bias: Tensor, out: Tensor) -> None:
    """Write base + bias, rounded once to the dtype of `out` (P2).

    base [B, V] head's dtype
    bias [B, V] dtype of w2
    out  [B, V] step dtype
    """
    out.copy_(base.float() + bias.float())


def choose_greedy(
    logits: Tensor,
    temperature: Tensor | None,
    greedy: Tensor | None,
    noise: Tensor | None,
    tokens: Tensor,
    flags: Tensor,
) -> None:
    """Write the argmax and the flag of every row; parameters and noise are not looked at.

    logits [..., V] float; tokens [...] int64; flags [...] uint8
    """
    del temperature, greedy, noise
    tokens.copy_(_largest(logits))
    flags.copy_(_flags(logits))


def choose_race(
    logits: Tensor,
    temperature: Tensor,
    greedy: Tensor,
    noise: Tensor,
    tokens: Tensor,
    flags: Tensor,
) -> None:
    """Write winners of the key p / E with p = softmax(l / T); arguments as in `choose_counter`."""
    scaled = logits.float() / temperature[:, None]
    _store(logits, scaled, torch.softmax(scaled, -1) / noise, greedy, tokens, flags)


def choose_counter(
    logits: Tensor,
    temperature: Tensor,
    greedy: Tensor,
    noise: Tensor,
    tokens: Tensor,
    flags: Tensor,
) -> None:
    """Write winners of the key l / T - log E.

    logits      [B, V] step dtype, widened to float32 (P3)
    temperature [B] float32, clamped at admission
    greedy      [B] bool: the row takes the argmax
    noise       [B, V] float32: E > 0
    tokens      [B] int64: written
    flags       [B] uint8: written; 1 NaN in the logits, 2 no finite logit, else 0
    """
    scaled = logits.float() / temperature[:, None]
    _store(logits, scaled, scaled - noise.log(), greedy, tokens, flags)


def _store(
    logits: Tensor, scaled: Tensor, keys: Tensor, greedy: Tensor, tokens: Tensor, flags: Tensor
) -> None:
    # l / T overflows for l near the end of float32 and a small T; the law is then a point mass.
    drawn = ~greedy & torch.isfinite(scaled.amax(-1))
    tokens.copy_(torch.where(drawn, _largest(keys), _largest(logits)))
    flags.copy_(_flags(logits))


def _largest(values: Tensor) -> Tensor:
    # torch.argmax takes the lowest index of equal maxima, and NaN as larger than anything.
    return torch.argmax(values, -1)


def _flags(logits: Tensor) -> Tensor:
    top = logits.amax(-1)
    return top.isnan() * NAN + top.isneginf() * EMPTY
