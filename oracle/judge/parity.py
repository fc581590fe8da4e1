"""Token parity of a whole history: every block against the reference under its own noise."""

from typing import Any

import torch

from ..reference import choice
from .continuity import NoiseTrail
from .coupling import block_noise, counter_of, couple
from .history import History
from .margin import ARITHMETIC
from .protocol import Setting, Tensors
from .staleness import explanation
from .timeline import moments
from .verdict import Verdict, holds, not_applicable, violated
from .walk import as_numpy, walk


def parity(history: History) -> Verdict:
    """Walk every block; judge tokens, kept logits, flags, parameters and the noise consumed."""
    arithmetic = ARITHMETIC[history.description["stages"]]
    judged = near = skipped = 0
    noise: torch.Tensor | None = None
    counter = ""
    settings, trail = [history.setting], NoiseTrail()
    for position, event in enumerate(history.events):
        if event["verb"] == "reweight":
            settings.append({**settings[-1], **event["weights"]})
        if moved := trail.complaint(event):
            return violated(moved, judged, unit="draws")
        if event["verb"] in ("replay", "eager"):
            noise, counter = block_noise(history.setting, event), counter_of(event)
        if event["verb"] not in ("read", "eager"):
            continue
        inputs, outputs = history.inputs[event["inputs"]], event["outputs"]
        tokens = outputs["tokens"]
        if bool(((tokens < 0) | (tokens >= history.setting["vocabulary"])).any()):
            return violated(f"tokens lie outside the vocabulary: {tokens.tolist()}", judged)
        result = couple(settings[-1], inputs, outputs, noise, arithmetic)
        judged += result.sampled + result.greedy
        skipped += tokens.numel() - result.sampled - result.greedy
        near += int((result.gaps <= result.windows).sum())
        complaint = result.mismatches[0].sentence() if result.illegal else claims(history, event)
        if complaint:
            stale = parity_reason(history, position)
            because = f" ({stale})" if stale else pre_bias(settings[-1], inputs, outputs)
            because = because if stale or result.illegal else ""
            return violated(
                f"{complaint}{because}; {event['verb']} of {event['inputs']}{counter}",
                judged,
                unit="draws",
                mismatches=[mismatch.sentence() for mismatch in result.mismatches],
            )
    if judged == 0:
        return not_applicable("the noise is not shown and no row was greedy: nothing to compare")
    untold = f", {skipped} sampled tokens without known noise left out" if skipped else ""
    effect = f"one wrong token; {near} near ties{untold}"
    return holds("all tokens equal the reference's", judged, effect, "draws")


def parity_reason(history: History, position: int) -> str:
    """Name what was stale in the block that event `position` shows, with its age; '' if nothing."""
    blocks = moments(history.setting, history.inputs, history.events[: position + 1])
    return explanation(blocks, history.description["stages"])


def claims(history: History, event: dict[str, Any]) -> str:
    """A sentence when flags or exported parameters differ from the inputs, else ''."""
    outputs = event["outputs"]
    inputs = history.inputs[event["inputs"]]
    if "flags" in outputs and bool((outputs["flags"] != choice.SOUND).any()):
        return f"flags: observed {outputs['flags'].unique().tolist()}, required 0 on sound rows"
    if "greedy" in outputs:
        greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
        if not torch.equal(outputs["greedy"], greedy):
            return f"greedy: observed {outputs['greedy'].tolist()}, required {greedy.tolist()}"
    if "temperature" in outputs:
        heat = choice.clamped(inputs["temperature"]).to(torch.float32)
        sampled = ~choice.is_greedy(inputs["temperature"], inputs["top_k"])
        if not torch.equal(outputs["temperature"][sampled], heat[sampled]):
            seen = outputs["temperature"].tolist()
            return f"temperature: observed {seen}, required {heat.tolist()} on sampled rows"
    return ""


def pre_bias(setting: Setting, inputs: Tensors, outputs: Tensors) -> str:
    """Recognise kept logits that hold the base logits, before the bias was added."""
    if "step_logits" not in outputs:
        return ""
    walked = walk(setting, inputs, outputs)
    if (as_numpy(outputs["step_logits"]) == walked.base).all():
        return " (the kept logits are the base logits, before the bias)"
    return ""
