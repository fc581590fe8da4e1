"""New inputs in the same buffers move the output; two replays draw different noise."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ..attribution import stale_field
from ..budget import SHARES, Ledger
from ..context import Context, Size, as_inputs, constant, query_rows, without
from ..history import History
from ..margin import ARITHMETIC
from ..protocol import Tensors
from ..script import Command, Load, Plan, Read, Replay
from ..significance import all_equal
from ..verdict import Verdict, holds, unknown, violated
from ..walk import Walk, walk

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
    for step in steps:
        if step.field != "noise":
            commands.append(Load(step.inputs, step.edit))
        commands += [Replay(), Read()]
    musts = [[step.field, step.must, step.edit] for step in steps]
    return Plan(NAME, f"{forward} hidden", setting, inputs, tuple(commands), notes={"steps": musts})


def plans(context: Context) -> list[Plan]:
    """Hidden states as input, and the own draft model where there is one."""
    forwards = ["given"] if context.workload.real else sorted({"given", context.forward})
    return [plan(context, forward) for forward in forwards]


def behind(walked: Walk, tokens: torch.Tensor) -> np.ndarray:
    """How far each token's logit lies behind the largest, beyond what rounding explains."""
    picked = tokens.numpy()[..., None]
    top = walked.logits.max(-1)
    at_token = np.take_along_axis(walked.logits, picked, -1)[..., 0]
    slack = 2 * walked.bound.max(-1)
    return np.asarray(top - at_token - slack)


def chance_of_argmax(walked: Walk) -> float:
    """Probability that sampled rows draw the argmax at every position."""
    heat = walked.temperature.numpy()[:, None, None]
    scaled = (walked.logits - walked.logits.max(-1, keepdims=True)) / heat
    return all_equal(1.0 / np.exp(scaled).sum(-1).ravel())


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


def age(history: History, number: int) -> str:
    """Which earlier load explains the outputs of read `number`, as a phrase."""
    reads, loads = history.of("read"), history.of("load")
    names = [event["inputs"] for event in loads][: number + 1]
    current = reads[number]["inputs"]
    earlier = [history.inputs[name] for name in reversed(names) if name != current]
    arithmetic = ARITHMETIC[history.description["stages"]]
    return stale_field(
        history.setting,
        history.inputs[current],
        earlier,
        reads[number]["outputs"],
        None,
        arithmetic,
    )


def check(history: History, ledger: Ledger) -> Verdict:
    """Ask of every step what its one changed field demands."""
    limit = ledger.take("freshness", SHARES["freshness"] * ledger.alpha / 64)
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
            stale = age(history, number) if must == "argmax" else ""
            because = f" ({stale})" if stale else ""
            return violated(
                f"stale {field}: {QUESTIONS[must][1]}{how}{because}; replay {number}",
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
