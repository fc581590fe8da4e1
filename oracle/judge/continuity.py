"""Whether the noise state moves as declared: by blocks, by coins of race, back on a reseed."""

from collections.abc import Mapping
from typing import Any

import torch


def same_state(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two noise states are equal in every field."""
    return set(one) == set(other) and all(
        torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        for name, value in one.items()
    )


def named(state: Mapping[str, Any]) -> str:
    """A noise state as a phrase for a report."""
    return f"block {state['block']}" if "block" in state else "another generator state"


class NoiseTrail:
    """Follows the noise state of a subject from block to block; the first one is taken as it is."""

    def __init__(self) -> None:
        """Begin before any block."""
        self.seed: int | None = None
        self.left: Mapping[str, Any] | None = None
        self.starts: dict[int, Mapping[str, Any]] = {}

    def complaint(self, event: Mapping[str, Any]) -> str:
        """A sentence when an event shows a state that was not moved as declared, else ''."""
        if event["verb"] == "reseed":
            self.seed = event["seed"]
        if event["verb"] not in ("replay", "eager", "accept"):
            return ""
        return self.began(event["before"]["noise"]) or self.ended(event)

    def began(self, before: Mapping[str, Any]) -> str:
        """Judge the state that a block or an accept began at."""
        required, since = self.left, "what ran before left"
        if self.seed is not None:
            required, since = self.starts.setdefault(self.seed, before), "the same seed gave first"
            if before.get("block", 0) != 0:
                return f"the first state of seed {self.seed} is {named(before)}, required: block 0"
        if required is None or same_state(before, required):
            return ""
        return f"the noise stood at {named(before)}, required: {named(required)}, which {since}"

    def ended(self, event: Mapping[str, Any]) -> str:
        """Judge the state that a block or an accept left."""
        accepts = event["verb"] == "accept"
        before, after = event["before"]["noise"], event["after"]["noise"]
        self.seed, self.left = None, after
        if event.get("state_as_declared") is False:
            if accepts:
                return "the accept left another generator state than its buffer of coins does"
            return (
                "the generator ended elsewhere than one draw of the bucket's shape before "
                "each step leaves it: noise was drawn that the block did not use"
            )
        if "block" not in before:
            return ""
        required = before if accepts else {**before, "block": before["block"] + 1}
        if same_state(after, required):
            return ""
        what = "accept" if accepts else "block"
        return f"the {what} left {named(after)}, required: {named(required)} of the same key"
