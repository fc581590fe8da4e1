"""Confidence belongs to the block it is read with, and a NaN in it is reported."""

import torch

from ...reference import confidence
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..protocol import Tensors
from ..script import Command, Plan, block
from ..verdict import Verdict, holds, violated
from ..walk import as_numpy
from .sampling import mixed

NAME = "confidence"
TITLE = "confidence head, sequential temperature scaling"
CLAIM = "Confidence is recomputed from anchor and drafted tokens; NaN is flagged in the replay."
NEEDS = ("CONFIDENCE",)

ROWS, DRAFTS, VOCABULARY = 6, 3, 61
# Two float32 products of up to 1,000 terms near 1, and one exponential.
RELATIVE = 1e-4


def plan(context: Context, *, features: bool) -> Plan:
    """Two blocks and one with a NaN in the features of row 2."""
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(8,))
    width = material.head.shape[1] + (material.w1.shape[1] if features else 0)
    source = torch.Generator().manual_seed(context.seed + 11)
    setting["confidence_weight"] = torch.randn(1, width, generator=source) / width**0.5
    setting["confidence_bias"] = torch.tensor([0.25])
    setting["confidence_sts"] = torch.tensor([1.0, 0.5, 2.0])
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    for number in range(3):
        hidden, anchor = context.workload.rows(
            context.seed + number, material, ROWS, query_rows(setting)
        )
        hidden = hidden.clone()
        if number == 1:
            hidden[2, -1, 0] = torch.nan
        inputs[f"{number}"] = as_inputs(setting, hidden, anchor, *mixed(ROWS))
        commands += block(f"{number}", redraw=False)
    case = "with Markov features" if features else "hidden states only"
    return Plan(NAME, case, setting, inputs, tuple(commands))


def plans(context: Context) -> list[Plan]:
    """Hidden states alone, and with the embedding of the token before."""
    if context.workload.real:
        return []
    cases = [plan(context, features=False)]
    if context.family == "dspark":
        cases.append(plan(context, features=True))
    return cases


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare raw and squashed confidence and the flags with the reference."""
    setting, used = history.setting, 0
    for event in history.of("read"):
        inputs, outputs = history.inputs[event["inputs"]], event["outputs"]
        hidden = inputs["hidden"][:, -setting["drafts"] :]
        tokens = outputs["tokens"]
        before = torch.cat([inputs["anchor"].unsqueeze(1), tokens[:, :-1]], 1)
        wide = setting["confidence_weight"].shape[1] > hidden.shape[-1]
        w1 = setting["w1"] if wide else None
        weight, bias = setting["confidence_weight"], setting["confidence_bias"]
        raw = confidence.raw_confidence(hidden, before, w1, weight, bias)
        squashed = confidence.confidence(raw, setting["confidence_sts"])
        flags = confidence.confidence_flags(squashed)
        used += tokens.numel()
        if not torch.equal(outputs["confidence_flags"], flags):
            return violated(
                f"confidence_flags of load {event['inputs']}: observed "
                f"{outputs['confidence_flags'].tolist()}, required {flags.tolist()}",
                used,
            )
        for name, wanted in (("confidence_raw", raw), ("confidence", squashed)):
            seen, required = as_numpy(outputs[name]), as_numpy(wanted)
            apart = abs(seen - required) > RELATIVE * (1 + abs(required))
            if apart.any():
                row, step = (int(i[0]) for i in apart.nonzero())
                return violated(
                    f"{name} of row {row}, step {step}, load {event['inputs']}: observed "
                    f"{seen[row, step]:.6g}, required {required[row, step]:.6g}",
                    used,
                )
    return holds("confidence equals the reference's", used, f"{RELATIVE:g} of one value", "values")
