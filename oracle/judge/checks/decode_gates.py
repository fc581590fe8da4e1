"""How each step of a decoder came about: folded where it may, and eager for its own reason."""

from collections import Counter
from typing import Any

from ...reference import gate
from ..budget import Ledger
from ..history import History
from ..verdict import Verdict, holds, unknown, violated

NAME = "decode_gates"
TITLE = "gates: every step folds, or says why not"
CLAIM = "Each block and each accept takes the path, and gives the reason, that its facts ask for."
NEEDS = ("decoder",)


def required(step: dict[str, Any], engine: str, largest: int) -> dict[str, tuple[bool, str]]:
    """What the tables answer for the facts of one step: block and accept, (folded, reason)."""
    fits = step["rows"] <= largest
    block = gate.step(
        {
            "tail": "eager" if engine == "eager" else "sampled",
            "recording_ran": fits,
            "sampled_rows": step["sampled_rows"],
        }
    )
    accept = gate.accept(
        {
            "block_folded": block[0] != "eager",
            "sampled_rows": step["sampled_rows"],
            "logit_adjustment": False,
            "live_grammar": False,
            "verify_replayed": fits,
        }
    )
    return {"block": (block[0] != "eager", block[1]), "accept": (accept[0] != "eager", accept[1])}


def check(history: History, _ledger: Ledger) -> Verdict:
    """The tables of the reference are asked for every step."""
    event = history.of("decode")[0]
    buckets = history.setting["buckets"]
    used = len(event["steps"])
    for number, step in enumerate(event["steps"]):
        wanted = required(step, history.setting["engine"], max(buckets))
        seen = {
            "block": (step["folded"], step["reason"]),
            "accept": (step["accept_folded"], step["accept_reason"]),
        }
        for name, answer in wanted.items():
            if seen[name] != answer:
                return violated(
                    f"{name} of step {number + 1}: observed {seen[name]}, required {answer}",
                    used,
                    "steps",
                )
        fitting = min((size for size in buckets if size >= step["rows"]), default=0)
        if step["folded"] and step["bucket"] != fitting:
            return violated(
                f"step {number + 1} of {step['rows']} rows ran in bucket {step['bucket']}, "
                f"required: {fitting}",
                used,
                "steps",
            )
    if not used:
        return unknown("no step was made")
    blocks = Counter(step["reason"] for step in event["steps"])
    accepts = Counter(step["accept_reason"] for step in event["steps"])
    text = "; ".join(
        f"{name}: " + ", ".join(f"{count} {reason}" for reason, count in found.most_common())
        for name, found in (("blocks", blocks), ("accepts", accepts))
    )
    return holds(text, used, "one step on another path or with another reason", "steps")
