"""From a setting to the reference's Markov head."""

import torch

from ..reference import draft
from .protocol import Setting


def bound_head(setting: Setting, rows: torch.Tensor) -> draft.Head:
    """Bind the Markov head a setting describes to the draft rows [B, K, D] of a block.

    ValueError for a kind the reference does not know.
    """
    kind = setting.get("markov", "vanilla")
    if kind == "vanilla":
        return draft.vanilla(setting["w1"], setting["w2"])
    weights = (setting["w1"], setting["w2"], setting["w3"], setting["b3"])
    if kind == "gated":
        return draft.gated(rows, *weights)
    if kind == "rnn":
        return draft.recurrent(rows, *weights)
    raise ValueError(f"markov is {kind!r}, required: 'vanilla', 'gated' or 'rnn'")
