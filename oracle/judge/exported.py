"""Draws under the laws that a sampler exports: each draw brings its own."""

from collections.abc import Iterator

import numpy as np
import torch

from .checks import claim
from .history import History
from .significance import Counts, Floats


def counts(history: History) -> Counts:
    """Bins of the transform of every token, in order of probability: [1, BINS]."""
    u = claim.integral_transform(history, 1, "probability")
    return np.bincount((u * claim.BINS).astype(np.int64), minlength=claim.BINS)[None]


def laws(history: History) -> Iterator[tuple[Floats, Counts]]:
    """Log of softmax(exported step logits / exported T) [draws, V] and tokens [draws], by read."""
    for event in history.of("read"):
        outputs = event["outputs"]
        heat = outputs["temperature"].double()[:, None, None]
        law = torch.log_softmax(outputs["step_logits"].double() / heat, -1).flatten(0, 1)
        yield law.numpy(), outputs["tokens"].flatten().numpy()


def fault(history: History) -> str:
    """A sentence when there is no law, or a token that its law excludes; tokens are ids."""
    for law, tokens in laws(history):
        if np.isnan(law).any():
            return "exported step logits / exported T are no law: NaN"
        if np.isneginf(law[np.arange(len(tokens)), tokens]).any():
            return "a token was drawn that its exported law excludes"
    return ""
