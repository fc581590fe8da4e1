"""Decisions that fold when they must not."""

from collections.abc import Mapping
from typing import Any

from impl.subject import factory

from .specimen import Specimen, Wrapped


class TestsForFloats(Wrapped):
    """Takes every floating-point weight for a dense one."""

    def gate(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """Ask the real gate about a 16-bit weight when the weight is an 8-bit float."""
        seen = dict(facts)
        if str(seen.get("weight_dtype", "")).startswith("float8"):
            seen["weight_dtype"] = "bfloat16"
        answer: Mapping[str, str] = self.inside.gate(seen)
        return answer


class TakesBaseLogitsForGranted(Wrapped):
    """Never asks whether the draft model offers its base logits."""

    def gate(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """Ask the real gate about a model that offers them, whichever it is."""
        changed = {"has_base_logits": True} if facts["table"] == "build" else {}
        answer: Mapping[str, str] = self.inside.gate({**facts, **changed})
        return answer


def folds_fp8_head(setting: Mapping[str, Any]) -> Any:
    """The gate tests whether the weight is a floating-point tensor, and fp8 is one."""
    return TestsForFloats(factory(setting))


def folds_without_base_logits(setting: Mapping[str, Any]) -> Any:
    """The gate builds a DSPARK tail over whatever model there is."""
    return TakesBaseLogitsForGranted(factory(setting))


SPECIMENS = (
    Specimen(
        "folds_fp8_head",
        "tests.zoo.gate",
        "The gate asks whether the head's weight is a floating-point tensor. An 8-bit float "
        "passes, is folded, and its product fails or is wrong inside the recording.",
        "sgl-project/sglang#35288",
        ("dflash", "none"),
        "gates",
        "equality",
        "one question",
    ),
    Specimen(
        "folds_without_base_logits",
        "tests.zoo.gate",
        "The gate takes it for granted that the base logits of the draft model can be made "
        "inside the recording. Where they cannot, the tail is built all the same, and the server "
        "dies in the capture, where a gate would have given a reason.",
        "sgl-project/sglang#34742",
        ("dspark", "counter"),
        "gates",
        "equality",
        "one question",
    ),
)
