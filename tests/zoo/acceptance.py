"""Accept paths and confidence that go wrong after a right draft."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from impl.subject import factory
from oracle.judge.protocol import Tensors
from oracle.subjects.reference import Reference

from .noise import refuse_unreachable
from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")
TILE = 16


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
    refuse_unreachable(setting)
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


class StopsAtTiles(Reference):
    """The last row of each tile of TILE rows is verified one draft at most."""

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Cut the verified length of these rows to one."""
        lengths = target["verify_len"].clone()
        lengths[TILE - 1 :: TILE] = lengths[TILE - 1 :: TILE].clamp(max=1)
        return super().accept({**target, "verify_len": lengths})


def stops_at_tiles(setting: Setting) -> Any:
    """Some rows commit one token a block: lossless, and slow."""
    refuse_unreachable(setting)
    return StopsAtTiles(setting)


class RepeatsTheLastRow(Reference):
    """Past row TILE, the token after a whole block is drawn from the row of its last draft."""

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Copy the row before the last over the last, which nothing but that draw reads."""
        logits = target["target_logits"].clone()
        logits[TILE:, -1] = logits[TILE:, -2]
        return super().accept({**target, "target_logits": logits})


def repeated_last_row(setting: Setting) -> Any:
    """The bonus token of a whole block follows the law of the draft before it."""
    refuse_unreachable(setting)
    return RepeatsTheLastRow(setting)


HERE = "tests.zoo.acceptance"
SPECIMENS = (
    Specimen(
        "leftovers",
        HERE,
        "The output row of an accept is the drafts shifted left with the bonus token written in. A "
        "consumer that reads past the committed length takes rejected drafts for tokens.",
        "vectorch-ai/ScaleLLM#114",
        COUNTER,
        "accept_rule",
        "lossless",
        "one rejected draft",
    ),
    Specimen(
        "skewed_final_draw",
        HERE,
        "The token after a rejection is not drawn from the residual, since its uniform is "
        "transformed twice on its way to the kernel. Each accept follows its rule on the coin it "
        "was given; the committed tokens are off.",
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
        "deepseek-ai/DeepSpec#63",
        COUNTER,
        "confidence",
        "equality",
        "one block",
    ),
    Specimen(
        "stops_at_tiles",
        HERE,
        "An edge of a tile is verified one row short: its requests commit one token a block, which "
        "is the right token by the right law, so that only the gain of speculation is lost.",
        "jundot/omlx#3370",
        COUNTER,
        "accept_length",
        "lossless",
        "16 rows",
    ),
    Specimen(
        "repeated_last_row",
        HERE,
        "The index of the row that a bonus token is drawn from is clipped to the number of drafts "
        "less one in all but the first tile. Whole blocks end with a second draw from the law of "
        "their last draft; how many are whole stays right.",
        "vllm-project/tpu-inference#514",
        COUNTER,
        "lossless",
        "accept_length",
        "17 rows, 30,000 blocks at V = 8",
    ),
)
