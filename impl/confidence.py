"""Confidence head: how likely each draft is to be accepted, calibrated step by step.

With features f = h, or [h ; e] where e belongs to the token before the draft:

    raw = weight f + bias;  confidence = sigmoid(raw / sts)

h is the hidden state before the muP division. All of it is float32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True)
class ConfidenceHead:
    """The weights of the head and its calibration.

    weight [1, D] or [1, D + R] float32; the wider one takes the Markov embedding too
    bias   [1] float32
    sts    [K] float32, all > 0: sequential temperature scaling, one temperature a step

    Waits for the device, to look at sts. ValueError: another dtype or shape, or an sts that is
    not positive, with its step and value.
    """

    weight: Tensor
    bias: Tensor
    sts: Tensor

    def __post_init__(self) -> None:
        held = (self.weight, self.bias, self.sts)
        if any(tensor.dtype != torch.float32 for tensor in held):
            raise ValueError(
                f"weight, bias and sts have dtypes {[tensor.dtype for tensor in held]}; "
                "the confidence head should be float32"
            )
        shapes = [tuple(tensor.shape) for tensor in held]
        if [len(shape) for shape in shapes] != [2, 1, 1] or shapes[0][0] != 1 or shapes[1] != (1,):
            raise ValueError(
                f"weight, bias and sts have shapes {shapes}; they should be [1, features], [1], [K]"
            )
        for step, value in enumerate(self.sts.tolist()):
            # A NaN is not positive either.
            if not value > 0:
                raise ValueError(f"sts of step {step} is {value}; it should be > 0")

    def weights(self) -> dict[str, Tensor]:
        """Every tensor by name."""
        held = {"weight": self.weight, "bias": self.bias, "sts": self.sts}
        return {f"confidence.{name}": tensor for name, tensor in held.items()}

    def fit(self, drafts: int, hidden: int, rank: int) -> None:
        """Compare with the sizes of a block; rank 0 has no embedding to look at.

        ValueError: an sts of another length than K, or a width that is neither D nor D + R.
        """
        if len(self.sts) != drafts:
            raise ValueError(
                f"sts has {len(self.sts)} entries; it should have one a draft, {drafts}"
            )
        allowed = sorted({hidden, hidden + rank})
        if self.weight.shape[1] not in allowed:
            raise ValueError(
                f"the confidence weight has {self.weight.shape[1]} columns; "
                f"hidden width {hidden} and Markov rank {rank} allow {allowed}"
            )

    def takes_tokens(self, hidden: int) -> bool:
        """Say whether the features hold more than a hidden state of width `hidden`."""
        return self.weight.shape[1] > hidden


def rate(
    head: ConfidenceHead,
    features: tuple[Tensor, ...],
    raw: Tensor,
    confidence: Tensor,
    flags: Tensor,
) -> None:
    """Write what the head says about a block.

    features   [B, K, D], and [B, K, R] when the head takes tokens; cast to float32 and joined
    raw        [B, K] float32: written; before scaling and squashing
    confidence [B, K] float32: written; in [0, 1], or NaN
    flags      [B, K] uint8: written; 1 where the confidence is NaN
    """
    joined = torch.cat([part.float() for part in features], -1)
    raw.copy_(functional.linear(joined, head.weight, head.bias).squeeze(-1))
    confidence.copy_(torch.sigmoid(raw / head.sts))
    flags.copy_(confidence.isnan())
