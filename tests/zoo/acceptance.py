"""Accept paths and confidence that go wrong after a right draft."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.subject import factory
from oracle.subjects.reference import Reference

from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")


class LeavesDrafts(Wrapped):
    """Leaves the rejected drafts behind the bonus token."""

    def read(self) -> dict[str, Tensor]:
        """Remember the drafts."""
        outputs: dict[str, Tensor] = self.inside.read()
        self.drafts = outputs["tokens"]
        return outputs

    def accept(self, target: Mapping[str, Any]) -> dict[str, Tensor]:
        """Fill what lies past the commit with what was drafted there."""
        commit: dict[str, Tensor] = self.inside.accept(target)
        rest = torch.nn.functional.pad(self.drafts, (0, 1))
        tokens = torch.where(commit["out_tokens"] < 0, rest, commit["out_tokens"])
        return {**commit, "out_tokens": tokens}


def leftovers(setting: Setting) -> Any:
    """Tokens past the committed length are drafts, not -1."""
    return LeavesDrafts(factory(setting))


class SkewsTheLastDraw(Reference):
    """The final draw of an accept is the square of a uniform variable."""

    def coins(self, rows: int) -> Tensor:
        """Square the last column."""
        coins = super().coins(rows)
        return torch.cat([coins[:, :-1], coins[:, -1:] ** 2], 1)


def skewed_final_draw(setting: Setting) -> Any:
    """The residual is drawn with a uniform that is none."""
    if setting["forward"] != "given" or setting["device"] != "cpu":
        raise NotImplementedError("hidden states are given, on the cpu")
    return SkewsTheLastDraw(setting)


class ForgetsScaling(Wrapped):
    """Squashes confidence without the calibrated temperatures."""

    def read(self) -> dict[str, Tensor]:
        """Squash the raw values."""
        outputs: dict[str, Tensor] = self.inside.read()
        if "confidence_raw" not in outputs:
            return outputs
        return {**outputs, "confidence": torch.sigmoid(outputs["confidence_raw"])}


def unscaled_confidence(setting: Setting) -> Any:
    """Sequential temperature scaling is left out."""
    return ForgetsScaling(factory(setting))


HERE = "tests.zoo.acceptance"
SPECIMENS = (
    Specimen(
        "leftovers",
        HERE,
        "The output row of an accept is the drafts shifted left with the bonus token written in. A "
        "consumer that reads past the committed length takes rejected drafts for tokens.",
        "lightseekorg/tokenspeed#298",
        COUNTER,
        "accept_rule",
        "lossless",
        "one rejected draft",
    ),
    Specimen(
        "skewed_final_draw",
        HERE,
        "The uniform that draws the residual is transformed twice on its way to the kernel. Each "
        "accept follows its rule on the coin it was given; the committed tokens are off.",
        "xLLM-AI/xllm#2175",
        COUNTER,
        "lossless",
        "accept_rule",
        "100,000 blocks at V = 8",
    ),
    Specimen(
        "unscaled_confidence",
        HERE,
        "The confidence head is squashed without its calibrated temperatures, so that the "
        "scheduler of verify lengths believes the last drafts of a block too much.",
        "NVIDIA/TensorRT-LLM#15715",
        COUNTER,
        "confidence",
        "equality",
        "one block",
    ),
)
