"""A result as plain values, which travel from the process that judged to the one that reports."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .context import Context
from .report import case_document
from .trial import Result
from .verdict import Outcome, Verdict


def packed(result: Result) -> dict[str, Any]:
    """The case as a report has it, its check, and what the subject could do; no history."""
    context = result.context
    found = case_document(result) | {"check": result.check, "served": None}
    if context is not None:
        found["served"] = {
            "family": context.family,
            "dialect": context.dialect,
            "abilities": list(context.abilities),
            "buffers": dict(context.buffers),
        }
    return found


def unpacked(found: Mapping[str, Any], context: Context) -> Result:
    """The result of `packed`; context: of the run, for what does not travel."""
    verdict = Verdict(
        Outcome(found["verdict"]),
        found["reason"],
        found["used"],
        found["unit"],
        found["smallest_detectable_effect"],
        found["evidence"],
    )
    own = found["served"]
    place: tuple[int, int] = tuple(found["place"])
    return Result(
        found["check"],
        found["combination"],
        found["case"],
        verdict,
        found["seconds"],
        sums=found["sums"],
        seeds=tuple(found["seeds"]),
        place=place,
        context=None if own is None else replace(context, **own),
    )
