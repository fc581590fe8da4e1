"""What a builder is asked for, what it finds around it, and the answer when it declines."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .confidence import ConfidenceHead
from .config import Config
from .shards import Group
from .stages import Stages


@dataclass(frozen=True)
class Refusal:
    """Why no tail is folded."""

    reason: str


@dataclass(frozen=True)
class Plan:
    """What a caller asks for, before anything is checked.

    drafts, vocabulary, buckets, sample_from_anchor  as in Shapes
    step_dtype  dtype of the step logits
    forward     'given' or 'backbone': where hidden states come from
    device      where everything lives
    ranks       processes that share the output head
    mup         hidden states are divided by it before the output head
    confidence  the confidence head that is wanted, None without one
    group       these processes; None where nothing is drafted over ranks
    """

    drafts: int
    vocabulary: int
    buckets: tuple[int, ...]
    sample_from_anchor: bool = True
    step_dtype: torch.dtype = torch.float32
    forward: str = "given"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    ranks: int = 1
    mup: float = 1.0
    confidence: ConfidenceHead | None = None
    group: Group | None = None


@dataclass(frozen=True)
class Surroundings:
    """What a builder is given besides the plan and the weights.

    engine      what captures and replays, None without one
    config      the environment, parsed
    free_bytes  free device memory; None where it is no limit
    restage     maps the chosen stages to those to use
    base_logits whether the draft model offers base logits to a recording
    """

    engine: object | None
    config: Config
    free_bytes: int | None = None
    restage: Callable[[Stages], Stages] = lambda stages: stages
    base_logits: bool = True
