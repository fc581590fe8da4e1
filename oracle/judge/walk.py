"""The reference's step logits along the tokens that were observed, and how far they may be off."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from ..reference import choice, draft, logits
from . import margin
from .binding import bound_head
from .head_margin import gated_bound, recurrent_bounds
from .protocol import Setting, Tensors

Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Walk:
    """Reference step logits along the observed tokens, and the bound on an honest deviation."""

    base: Floats
    logits: Floats
    bound: Floats
    temperature: torch.Tensor
    greedy: torch.Tensor


def dtype_of(name: str) -> torch.dtype:
    """The torch dtype of a name such as 'bfloat16'."""
    return getattr(torch, name)  # type: ignore[no-any-return]


def name_of(dtype: torch.dtype) -> str:
    """The name of a torch dtype, such as 'bfloat16'."""
    return str(dtype).removeprefix("torch.")


def as_numpy(tensor: torch.Tensor) -> Floats:
    """A tensor as float64 numpy values."""
    return tensor.detach().to("cpu", torch.float64).numpy()


@lru_cache(maxsize=8)
def measured(weight: torch.Tensor, rows: int) -> margin.Factor:
    """The first rows of a weight as a factor; kept, since every block multiplies with it."""
    return margin.factor(as_numpy(weight[:rows]))


def product_bound(left: torch.Tensor, weight: torch.Tensor, rows: int) -> Floats:
    """P1 bound of left [..., D] times the first rows of a weight, in the weight's dtype."""
    flat = margin.factor(as_numpy(left.to(weight.dtype)).reshape(-1, left.shape[-1]))
    bound = margin.product(flat, measured(weight, rows), name_of(weight.dtype))
    return bound.reshape(*left.shape[:-1], rows)


def bias_bound(setting: Setting, rows: torch.Tensor, before: torch.Tensor) -> Floats:
    """P1 bound of the bias of every step: [B, K, V]; rows [B, K, D], before [B, K]."""
    w2, vocabulary = setting["w2"], setting["vocabulary"]
    embedded = setting["w1"][before]
    kind = setting.get("markov", "vanilla")
    if kind == "vanilla":
        return product_bound(embedded, w2, vocabulary)
    parts = (as_numpy(rows), as_numpy(embedded), as_numpy(setting["w3"]), as_numpy(setting["b3"]))
    names = (name_of(rows.dtype), name_of(embedded.dtype), name_of(w2.dtype))
    bounds = gated_bound if kind == "gated" else recurrent_bounds
    return bounds(*parts, measured(w2, vocabulary), *names)


def walk(setting: Setting, inputs: Tensors, outputs: Tensors) -> Walk:
    """Reference logits of an observed block.

    hidden states come from the inputs (forward 'given') or from the outputs (forward 'backbone').
    ValueError when an observed token that feeds a later step lies outside the vocabulary.
    """
    hidden = outputs["hidden"] if setting["forward"] == "backbone" else inputs["hidden"]
    head, vocabulary = setting["head"], setting["vocabulary"]
    rows = logits.draft_rows(hidden, setting["drafts"])
    mup = setting.get("mup", 1.0)
    base = logits.base_logits(rows, head, vocabulary, mup)
    divided = (rows.to(head.dtype).double() / mup).to(head.dtype)
    bound = product_bound(divided, head, vocabulary)
    temperature = choice.clamped(inputs["temperature"])
    greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
    if setting.get("greedy_draft", False):
        greedy = torch.ones_like(greedy)
    if setting["family"] == "dflash":
        every = torch.ones_like(greedy)
        return Walk(as_numpy(base), as_numpy(base), bound, temperature, every)
    tokens, anchor = outputs["tokens"], inputs["anchor"]
    step_dtype = getattr(torch, setting["step_dtype"])
    rows = rows.to(head.dtype)
    steps = draft.walked_logits(base, anchor, tokens, bound_head(setting, rows), step_dtype)
    before = draft.tokens_before(anchor, tokens)
    added = bias_bound(setting, rows, before)
    total = margin.step(bound, added, as_numpy(steps), setting["step_dtype"])
    return Walk(as_numpy(base), as_numpy(steps), total, temperature, greedy)
