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


def base_logits(hidden: torch.Tensor, weight: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """Multiply hidden states with the rows of the head that are real ids.

    hidden [..., D] any float; weight [W, D] float16, bfloat16 or float32; vocabulary V <= W: rows
    past V are padding and take no part. Returns [..., V] float64 holding values of weight.dtype
    (P1). V > W is a ValueError.
    """
    if vocabulary > weight.shape[0]:
        raise ValueError(f"vocabulary {vocabulary} exceeds the {weight.shape[0]} rows of the head")
    real_ids = weight[:vocabulary].to(torch.float64)
    cast = hidden.to(weight.dtype).to(torch.float64)
    product = cast @ real_ids.T
    return rounded(product, weight.dtype)
