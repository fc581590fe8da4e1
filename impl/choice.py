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
    tokens.copy_(largest(logits))
    flags.copy_(flags_of(logits.amax(-1)))


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
    _store(logits, scaled, counter_keys(scaled, noise), greedy, tokens, flags)


def counter_keys(scaled: Tensor, noise: Tensor) -> Tensor:
    """Return l / T - log E of scaled logits l / T: a matter of each id alone."""
    return scaled - noise.log()


def _store(
    logits: Tensor, scaled: Tensor, keys: Tensor, greedy: Tensor, tokens: Tensor, flags: Tensor
) -> None:
    drawn = is_drawn(greedy, scaled.amax(-1))
    tokens.copy_(torch.where(drawn, largest(keys), largest(logits)))
    flags.copy_(flags_of(logits.amax(-1)))


def is_drawn(greedy: Tensor, top: Tensor) -> Tensor:
    """Tell which rows take the winner of their keys; the others take the argmax of the logits.

    top [B] float32: the largest l / T; it overflows for l near the end of float32 and a small T,
    and the law is then a point mass
    """
    return ~greedy & torch.isfinite(top)


def largest(values: Tensor) -> Tensor:
    """Return the index of the largest value of each row; the first NaN counts as the largest."""
    # torch.argmax takes the lowest index of equal maxima, and NaN as larger than anything.
    return torch.argmax(values, -1)


def flags_of(top: Tensor) -> Tensor:
    """Return the flag of rows whose largest logit is `top`, NaN when one is NaN."""
    return top.isnan() * NAN + top.isneginf() * EMPTY
