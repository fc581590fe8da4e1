"""A request: what is asked for, and how far it is."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Request:
    """What is asked for.

    prompt      token ids, two at the least: a block is drafted from the state before its anchor
    temperature, top_k, top_p  as a sampler admits them
    length      new tokens at the most
    stop        ids that end the text; the one that ended it is part of it

    ValueError: a prompt that is too short, or a length below 1.
    """

    prompt: tuple[int, ...]
    temperature: float = 0.0
    top_k: int = 2**30
    top_p: float = 1.0
    length: int = 64
    stop: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.prompt) < 2:
            raise ValueError(f"the prompt has {len(self.prompt)} tokens; it should have at least 2")
        if self.length < 1:
            raise ValueError(f"length is {self.length}; it should be at least 1")


@dataclass
class Live:
    """A request that holds a slot.

    number   its name, in the order of submission
    slot     where the target keeps it
    feature  [D] hidden state that predicted the anchor
    text     committed new tokens
    ended    '' while it runs, else 'length', 'stop' or 'no target law'
    """

    number: int
    request: Request
    slot: int
    feature: Tensor
    text: list[int] = field(default_factory=list)
    ended: str = ""

    @property
    def anchor(self) -> int:
        """The last committed token, which the target has not read."""
        return self.text[-1] if self.text else self.request.prompt[-1]

    @property
    def past(self) -> int:
        """Positions that the target has read and that count: all but the anchor."""
        return len(self.request.prompt) + len(self.text) - 1

    @property
    def left(self) -> int:
        """New tokens that may still come."""
        return self.request.length - len(self.text)

    def commit(self, tokens: list[int], feature: Tensor) -> int:
        """Append what was committed, up to a stop token; returns how many tokens were kept."""
        ends = [place for place, token in enumerate(tokens) if token in self.request.stop]
        kept = tokens[: ends[0] + 1] if ends else tokens
        self.text += kept
        self.feature = feature
        if ends:
            self.ended = "stop"
        elif not tokens:
            self.ended = "no target law"
        elif self.left <= 0:
            self.ended = "length"
        return len(kept)
