"""Claimed law q: what the tokens of a drafted block are said to be drawn from."""

import torch
from torch import Tensor


def claimed_law(
    drafts: Tensor,
    step_logits: Tensor | None,
    temperature: Tensor,
    one_hot: Tensor,
    flags: Tensor,
    vocabulary: int,
) -> Tensor:
    """Return q of every position; a law of zeros where nothing may be accepted.

    drafts      [B, K] int64
    step_logits [B, K, V] step dtype: the kept ones, bit for bit; None when every row is one-hot
    temperature [B] float32: the clamped value that drew the token
    one_hot     [B] bool: the row drafted without drawing, so that all its mass is at its tokens
    flags       [B, K] uint8: what the draft signalled
    vocabulary  V
    result      [B, K, V] float32

    A flagged position ends the block: it and all later ones claim nothing. Logits whose softmax is
    NaN claim nothing either; the token was then the argmax, and q could not say so.
    """
    law = point_law(drafts, vocabulary)
    if step_logits is not None:
        scaled = step_logits.float() / temperature[:, None, None]
        drawn = torch.softmax(scaled, -1).nan_to_num(0.0)
        law = torch.where(one_hot[:, None, None], law, drawn)
    return law * (flags == 0).long().cumprod(1)[:, :, None]


def point_law(drafts: Tensor, vocabulary: int) -> Tensor:
    """Return the law that has all its mass at the drafts.

    drafts [B, K] int64; result [B, K, V] float32
    """
    place = torch.arange(vocabulary, device=drafts.device)
    return (drafts[:, :, None] == place).float()
