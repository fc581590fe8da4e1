"""New inputs in the same buffers move the output; two replays draw different noise."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from ..attribution import behind, chance_of_argmax
from ..budget import SHARES, Ledger
from ..context import Context, Size, as_inputs, constant, query_rows, without
from ..history import History
from ..protocol import Tensors
from ..script import Command, Load, Plan
from ..significance import all_equal
from ..staleness import explanation
from ..timeline import timeline
from ..verdict import Verdict, holds, unknown, violated
from ..walk import Walk, walk
from . import lateness

NAME = "freshness"
TITLE = "stale buffer after replay: inputs and noise"
CLAIM = "A replay uses what was loaded for it: hidden states, anchor, temperature, top_k, noise."
NEEDS: tuple[str, ...] = ()

SIZE = Size(rows=8, drafts=3, vocabulary=64)
EVERY_ID = 2**30
COLD, HOT = 1e-5, 50.0


@dataclass(frozen=True)
class Step:
    """One load that changes one field, and what must be seen after it."""

    inputs: str
    field: str
    must: str
    edit: bool = False


STEPS = (
    Step("greedy", "first load", "argmax"),
    Step("other hidden", "hidden", "argmax"),
    Step("other anchor", "anchor", "argmax"),
    Step("hot", "top_k", "spread"),
    Step("hot", "noise", "other noise"),
    Step("cold", "temperature", "argmax value"),
    Step("hot", "temperature", "spread", edit=True),
    Step("other anchor", "top_k", "argmax", edit=True),
    Step("greedy again", "hidden", "argmax", edit=True),
)


def plan(context: Context, forward: str, size: Size = SIZE) -> Plan:
    """A chain of loads of which each changes one field, some by editing tensors in place."""
    rows = size.rows
    material = context.workload.material(context.seed, size.vocabulary, size.dtype, size.padding)
    setting = context.setting(
        material, drafts=size.drafts, buckets=(rows, 2 * rows), forward=forward
    )
    queries = query_rows(setting)
    first, anchor = context.workload.rows(context.seed, material, rows, queries)
    second, _ = context.workload.rows(context.seed + 1, material, rows, queries)
    greedy = as_inputs(setting, first, anchor, *constant(rows, HOT, 1))
    other = as_inputs(setting, second, anchor, *constant(rows, HOT, 1))
    moved = without(other, anchor=(anchor + 1) % material.vocabulary)
    hot = without(moved, top_k=torch.full((rows,), EVERY_ID))
    cold = without(hot, temperature=torch.full((rows,), COLD))
    field = "hidden" if forward == "given" else "context"
    again = without(moved, **{field: greedy[field]})
    inputs: dict[str, Tensors] = {
        "greedy": greedy,
        "other hidden": other,
        "other anchor": moved,
        "hot": hot,
        "cold": cold,
        "greedy again": again,
    }
    steps = [step for step in STEPS if "DRAWS" in context.abilities or step.must == "argmax"]
    commands: list[Command] = []
    quiet = replace(context, buffers={}) if context.workload.real else context
    for step in steps:
        load = Load(step.inputs, step.edit)
        commands += lateness.watched(quiet, load)[0 if step.field != "noise" else 1 :]
    musts = [[step.field, step.must, step.edit] for step in steps]
    return Plan(NAME, f"{forward} hidden", setting, inputs, tuple(commands), notes={"steps": musts})


def plans(context: Context) -> list[Plan]:
    """Loads that all differ, then one change a load: hidden states given, and the own model's."""
    forwards = ["given"] if context.workload.real else sorted({"given", context.forward})
    return [*lateness.plans(context), *(plan(context, forward) for forward in forwards)]


def chance_of_repeat(walked: Walk) -> float:
    """Probability that a second draw repeats the first block: every step again its token."""
    heat = walked.temperature.numpy()[:, None, None]
    law = np.exp((walked.logits - walked.logits.max(-1, keepdims=True)) / heat)
    law /= law.sum(-1, keepdims=True)
    return all_equal(law.max(-1).ravel())


Question = Callable[[Walk, torch.Tensor, torch.Tensor | None], tuple[bool, float]]


def is_argmax(walked: Walk, tokens: torch.Tensor, _: torch.Tensor | None) -> tuple[bool, float]:
    """Whether every token has the largest logit of its row."""
    return bool((behind(walked, tokens) <= 0).all()), 0.0


def is_spread(walked: Walk, tokens: torch.Tensor, _: torch.Tensor | None) -> tuple[bool, float]:
    """Whether some token is not the argmax, and how likely a correct sampler fails this."""
    return bool((behind(walked, tokens) > 0).any()), chance_of_argmax(walked)


def is_other(walked: Walk, tokens: torch.Tensor, before: torch.Tensor | None) -> tuple[bool, float]:
    """Whether two replays of the same load differ, and how likely a correct one repeats."""
    return before is None or not torch.equal(tokens, before), chance_of_repeat(walked)


QUESTIONS: dict[str, tuple[Question, str]] = {
    "argmax": (is_argmax, "tokens are not the argmax of what was loaded"),
    "argmax value": (is_argmax, "rows at temperature 1e-5 did not draw the largest logit"),
    "spread": (is_spread, "rows at temperature 50 all drew the argmax"),
    "other noise": (is_other, "two replays of the same load drew the same block"),
}


def because(history: History, number: int) -> str:
    """Which earlier value explains the outputs of read `number`, as a phrase in brackets."""
    blocks = timeline(history)[: number + 1]
    text = explanation(blocks, history.description["stages"])
    return f" ({text})" if text else ""


def check(history: History, ledger: Ledger) -> Verdict:
    """Ask of every step what its one changed field demands, and of every block how old it is.

    Loads that all differ give a stale value its age: the reference is asked with the values of
    every earlier block in turn, and the one that explains the block is named, with its buffer
    where the subject lists it. `oracle/judge/attribution.py` says how, and what that cannot see.
    """
    limit = ledger.take("freshness", SHARES["freshness"] * ledger.alpha / 64)
    if history.notes.get("ages"):
        return lateness.check(history, limit)
    before: torch.Tensor | None = None
    used = 0
    for number, event in enumerate(history.of("read")):
        field, must, edited = history.notes["steps"][number]
        outputs = event["outputs"]
        walked = walk(history.setting, history.inputs[event["inputs"]], outputs)
        passed, chance = QUESTIONS[must][0](walked, outputs["tokens"], before)
        used += outputs["tokens"].numel()
        if chance > limit:
            return unknown(
                f"the case is too small: a correct sampler fails {must!r} with probability "
                f"{chance:.2g}, required at most {limit:.2g}",
                used,
            )
        if not passed:
            how = " after an edit in place" if edited else ""
            return violated(
                f"stale {field}: {QUESTIONS[must][1]}{how}{because(history, number)}; "
                f"replay {number}",
                used,
                unit="tokens",
                buffer=field,
            )
        if "hidden" in outputs and field in ("hidden", "anchor"):
            previous = history.of("read")[number - 1]["outputs"]["hidden"]
            if torch.equal(previous, outputs["hidden"]):
                return violated(f"stale {field}: the draft model's hidden states stayed", used)
        before = outputs["tokens"]
    return holds("every changed field moved the block", used, "one field one load late", "tokens")
