"""A decision that folds when it must not."""

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


def folds_fp8_head(setting: Mapping[str, Any]) -> Any:
    """The gate tests whether the weight is a floating-point tensor, and fp8 is one."""
    return TestsForFloats(factory(setting))


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
)
