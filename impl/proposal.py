"""What a step is given and what it answers: plain records of tensors."""

from dataclasses import dataclass

from torch import Tensor

from .sampler import Admitted


@dataclass(frozen=True)
class Batch:
    """The inputs of one step.

    source   [B, Q, D] hidden states when the forward is 'given', else [B, D] target features
    anchor   [B] int64: last committed tokens, in [0, V)
    admitted sampling parameters after admission

    ValueError: another number of rows in one of them.
    """

    source: Tensor
    anchor: Tensor
    admitted: Admitted

    def __post_init__(self) -> None:
        counts = [len(part) for part in (self.source, self.anchor, self.admitted.greedy)]
        if len(set(counts)) != 1:
            raise ValueError(
                f"source, anchor and parameters have {counts} rows; equal counts needed"
            )


@dataclass(frozen=True)
class Proposal:
    """A drafted block; every tensor is a copy.

    tokens      [B, K] int64
    step_logits [B, K, V] step dtype, None when the tail keeps none
    temperature [B] float32, None for a family that never samples
    greedy      [B] bool, None likewise; a greedy row has the one-hot law of its token, whatever
                its step logits are
    greedy_draft True when every row drafted its argmax, whatever it asked for: each draft then has
                the one-hot law of its token
    flags       [B, K] uint8: 0 sound, 1 NaN in the step logits, 2 no finite logit
    hidden      [B, Q, D]: the hidden states that were drafted from
    confidence  [B, K] float32 in [0, 1]; None, as the next two, without a confidence head
    confidence_raw   [B, K] float32: before scaling and squashing
    confidence_flags [B, K] uint8: 1 where the confidence is NaN
    folded      True when the block came from a replay
    reason      the row of the step table that decided
    bucket      rows that the block ran at, pad rows included
    """

    tokens: Tensor
    step_logits: Tensor | None
    temperature: Tensor | None
    greedy: Tensor | None
    greedy_draft: bool
    flags: Tensor
    hidden: Tensor
    confidence: Tensor | None
    confidence_raw: Tensor | None
    confidence_flags: Tensor | None
    folded: bool
    reason: str
    bucket: int
