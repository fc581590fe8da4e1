"""A tiny target network and an unfitted drafter, for tests of the decode loop.

The state of a position is a decaying sum of the embeddings up to it, which depends on the whole
text, in sums of a fixed order; so a text read in pieces gives the bits of one read at once.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from impl.decoding.subject import Subject, factory

V, D, K, R, INNER = 12, 8, 3, 4, 5
DECAY = 0.6


class Tiny:
    """Keeps the running sum after each position of each slot."""

    def __init__(self, slots: int = 4, length: int = 64, seed: int = 0) -> None:
        source = torch.Generator().manual_seed(seed)
        self.slots, self.length = slots, length
        self.head = torch.randn(V, D, generator=source)
        self.embedding = torch.randn(V, D, generator=source)
        self.kept = torch.full((slots, length, D), float("nan"))

    def extend(self, slots: torch.Tensor, ids: torch.Tensor, past: torch.Tensor) -> torch.Tensor:
        """Go on from the sum that is kept before each position."""
        found = []
        for slot, row, start in zip(slots.tolist(), ids, past.tolist(), strict=True):
            state = self.kept[slot, start - 1] if start else torch.zeros(D)
            for place, token in enumerate(row):
                state = DECAY * state + self.embedding[token]
                self.kept[slot, start + place] = state
            found.append(self.kept[slot, start : start + len(row)].clone())
        return torch.stack(found)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Row by row, so that no product depends on the batch."""
        flat = [self.head @ row for row in states.reshape(-1, D)]
        return torch.stack(flat).view(*states.shape[:-1], V)

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits [n, V] of a whole text [n]."""
        other = Tiny.__new__(Tiny)
        other.__dict__ = {**vars(self), "kept": torch.zeros(1, len(ids), D)}
        nothing = torch.tensor([0])
        return self.logits(other.extend(nothing, ids[None], nothing)[0])


def states_of(network: Tiny, text: torch.Tensor) -> torch.Tensor:
    """The states [n, D] of a whole text."""
    reader = Tiny.__new__(Tiny)
    reader.__dict__ = {**vars(network), "kept": torch.zeros(1, len(text), D)}
    nothing = torch.tensor([0])
    return reader.extend(nothing, text[None], nothing)[0]


def weights(kind: str, seed: int = 1) -> dict[str, Any]:
    """The drafter and Markov weights of a setting, drawn and not fitted."""
    source = torch.Generator().manual_seed(seed)

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=source) / 2

    drafter = {
        "project": drawn(K * D, 2 * D),
        "lift": drawn(K * D, INNER),
        "widen": drawn(INNER, 2 * D),
        "gain": torch.ones(D),
    }
    markov = {"w1": drawn(V, R), "w2": drawn(V, R)}
    if kind == "gated":
        markov |= {"w3": drawn(R, D + R), "b3": drawn(R)}
    if kind == "rnn":
        markov |= {"w3": drawn(3 * R, 2 * R + D), "b3": drawn(3 * R)}
    return {"drafter": drafter, "markov": markov}


def setting(network: Any, kind: str = "vanilla", **changes: Any) -> dict[str, Any]:
    """A setting of the decoder over a network."""
    own = {"network": network, "kind": kind, "buckets": (4,), "engine": "emulator"}
    return {**own, "rule": "chain", "seed": 5, **weights(kind), **changes}


def requests(count: int, seed: int = 2, **fields: Any) -> list[dict[str, Any]]:
    """Prompts of different lengths; fields may be functions of the number."""
    source = torch.Generator().manual_seed(seed)
    found = []
    for number in range(count):
        size = 2 + int(torch.randint(6, (), generator=source))
        prompt = torch.randint(V, (size,), generator=source)
        own = {name: given(number) if callable(given) else given for name, given in fields.items()}
        found.append({"prompt": prompt, "length": 10 + number, **own})
    return found


def decoded(
    subject: Subject, asked: Sequence[Mapping[str, Any]]
) -> tuple[dict[int, list[int]], list[dict[str, Any]]]:
    """Submit everything and step to the end: new tokens by request, and all steps."""
    texts: dict[int, list[int]] = {subject.submit(request): [] for request in asked}
    steps = []
    while (step := subject.step()) is not None:
        steps.append(step)
        rows = zip(step["request"].tolist(), step["out_tokens"], step["kept"].tolist(), strict=True)
        for number, tokens, kept in rows:
            texts[number] += tokens[:kept].tolist()
    return texts, steps


def plainly(network: Tiny, request: Mapping[str, Any]) -> list[int]:
    """Greedy decoding, one token at a time, each from the whole text."""
    text = request["prompt"].tolist()
    start = len(text)
    while len(text) - start < request["length"]:
        text.append(int(network.read(torch.tensor(text))[-1].argmax()))
        if text[-1] in request.get("stop", ()):
            break
    return text[start:]


__all__ = ["Subject", "Tiny", "decoded", "factory", "plainly", "requests", "setting", "states_of"]
