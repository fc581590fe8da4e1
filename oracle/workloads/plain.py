"""Plain decoding: one token at a time, each the model's argmax, requests side by side."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor


class Network(Protocol):
    """A model over slots, as a decoder takes it."""

    slots: int

    def extend(self, slots: Tensor, ids: Tensor, past: Tensor) -> Tensor:
        """Hidden states [B, n, D] of tokens behind what the slots hold."""
        ...

    def logits(self, states: Tensor) -> Tensor:
        """Logits [..., V]."""
        ...


def plainly(network: Network, requests: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The greedy texts of requests, in groups of as many as the network has slots."""
    groups = range(0, len(requests), network.slots)
    return [
        text for start in groups for text in group(network, requests[start : start + network.slots])
    ]


def group(network: Network, requests: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """The greedy texts of one group; a text that has ended leaves the batch."""
    device = getattr(network, "device", "cpu")
    prompts = [torch.as_tensor(one["prompt"]).to(device) for one in requests]
    texts: list[list[int]] = [[] for _ in requests]
    last = []
    for slot, prompt in enumerate(prompts):
        own = torch.tensor([slot], device=device)
        last.append(network.extend(own, prompt[None], torch.zeros_like(own))[0, -1])
    going = list(range(len(requests)))
    while going:
        best = network.logits(torch.stack([last[each] for each in going])).argmax(-1)
        for each, token in zip(going, best.tolist(), strict=True):
            texts[each].append(token)
        going = [
            each
            for each in going
            if len(texts[each]) < requests[each]["length"]
            and texts[each][-1] not in requests[each].get("stop", ())
        ]
        if not going:
            break
        past = [len(prompts[each]) + len(texts[each]) - 1 for each in going]
        states = network.extend(
            torch.tensor(going, device=device),
            torch.tensor([[texts[each][-1]] for each in going], device=device),
            torch.tensor(past, device=device),
        )
        for each, state in zip(going, states[:, 0], strict=True):
            last[each] = state
    return texts
