"""Hidden states times the borrowed output head."""

import torch


def rounded(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round to a storage dtype and come back to float64.

    values [...] float64; dtype the storage dtype. The way leads through float32, the accumulator of
    every matrix unit, so that a bfloat16 value is rounded as hardware rounds it.
    """
    return values.to(torch.float32).to(dtype).to(torch.float64)


def draft_rows(hidden: torch.Tensor, drafts: int) -> torch.Tensor:
    """Select the query rows that predict drafts.

    hidden [B, Q, D]; drafts K, with Q = K (the anchor row predicts draft 0) or Q = K + 1 (the
    anchor row is dropped). Returns [B, K, D]. Any other Q is a ValueError.
    """
    query_rows = hidden.shape[1]
    if query_rows not in (drafts, drafts + 1):
        raise ValueError(f"hidden has {query_rows} query rows, required {drafts} or {drafts + 1}")
    return hidden[:, query_rows - drafts :]


def base_logits(
    hidden: torch.Tensor, weight: torch.Tensor, vocabulary: int, mup: float = 1.0
) -> torch.Tensor:
    """Multiply hidden states with the rows of the head that are real ids.

    hidden [..., D] any float; weight [W, D] float16, bfloat16 or float32; vocabulary V <= W: rows
    past V are padding and take no part; mup the width multiplier, a float32 number. Returns
    [..., V] float64 holding values of weight.dtype (P1). Rounding points: hidden to weight.dtype,
    then once more after the division by mup, then the product. V > W, and a mup that is not finite
    and positive, are a ValueError.
    """
    if vocabulary > weight.shape[0]:
        raise ValueError(f"vocabulary {vocabulary} exceeds the {weight.shape[0]} rows of the head")
    if not 0 < mup < float("inf"):
        raise ValueError(f"mup is {mup}, required: finite and > 0")
    real_ids = weight[:vocabulary].to(torch.float64)
    cast = hidden.to(weight.dtype).to(torch.float64)
    width = torch.tensor(mup, dtype=torch.float32).to(torch.float64)
    divided = rounded(cast / width, weight.dtype)
    return rounded(divided @ real_ids.T, weight.dtype)
