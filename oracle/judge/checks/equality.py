"""Token parity: the reference draws the same tokens from the same noise."""

from typing import Any

import torch

from ...reference import choice
from ...workloads.synthetic import sampling_parameters
from ..attribution import stale_field
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..continuity import NoiseTrail
from ..coupling import block_noise, counter_of, couple
from ..history import History
from ..margin import ARITHMETIC
from ..protocol import Setting, Tensors
from ..script import Command, Eager, Load, Plan, Read, Replay
from ..verdict import Verdict, holds, not_applicable, violated
from ..walk import as_numpy, dtype_of, walk

NAME = "equality"
TITLE = "token parity under the same noise"
CLAIM = "Tokens, kept logits and flags equal the float64 reference's, but for counted near ties."
NEEDS: tuple[str, ...] = ()

BUCKETS = (1, 4, 8)
LIVE_ROWS = (8, 3, 1, 5, 2, 7, 4, 6)


def plan(context: Context, case: str, dtype: str, **shape: object) -> Plan:
    """Blocks of growing and shrinking batches, folded and, where claimed, eager."""
    vocabulary = int(str(shape.pop("vocabulary")))
    padding = int(str(shape.pop("padding", 0)))
    markov, mup = str(shape.pop("markov", "vanilla")), float(str(shape.pop("mup", 1.0)))
    material = context.workload.material(context.seed, vocabulary, dtype_of(dtype), padding)
    setting = context.setting(material, buckets=BUCKETS, **shape)  # type: ignore[arg-type]
    setting |= head_weights(context.seed, markov, setting) | ({"mup": mup} if mup != 1 else {})
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    blocks = min(3, context.profile.blocks) if context.workload.real else context.profile.blocks
    for number in range(blocks):
        rows = LIVE_ROWS[number % len(LIVE_ROWS)]
        seed = context.seed + number
        hidden, anchor = context.workload.rows(seed, material, rows, query_rows(setting))
        heat, top_k = sampling_parameters(seed, rows)
        name = f"block {number}"
        inputs[name] = as_inputs(setting, hidden, anchor, heat, top_k)
        commands += [Load(name), Replay(), Read()]
        if "EAGER" in context.abilities and number % 2:
            commands.append(Eager(name))
    return Plan(NAME, case, setting, inputs, tuple(commands))


def head_weights(seed: int, markov: str, setting: Setting) -> dict[str, Any]:
    """w3 and b3 of a gated or recurrent head, on a grid; nothing for a vanilla one."""
    if markov == "vanilla":
        return {}
    rank, hidden = setting["w1"].shape[1], setting["head"].shape[1]
    rows = (rank, hidden + rank) if markov == "gated" else (3 * rank, 2 * rank + hidden)
    source = torch.Generator().manual_seed(seed + 17)
    w3 = 0.125 * torch.randint(-4, 5, rows, generator=source).float()
    b3 = 0.25 * torch.randint(-4, 5, rows[:1], generator=source).float()
    dtype = setting["head"].dtype
    return {"markov": markov, "w3": w3.to(dtype), "b3": b3.to(dtype)}


def plans(context: Context) -> list[Plan]:
    """Every dtype, both query layouts, padding, another step dtype, and the own draft model."""
    sizes = {"float32": 97, "bfloat16": 301, "float16": 33}
    cases = [
        plan(context, dtype, dtype, vocabulary=sizes[dtype], padding=19, drafts=3)
        for dtype in context.profile.dtypes
    ]
    if context.family == "dspark":
        cases.append(
            plan(
                context,
                "anchor row dropped, float32 steps",
                "bfloat16",
                vocabulary=64,
                drafts=4,
                sample_from_anchor=False,
                step_dtype="float32",
            )
        )
    if context.family == "dspark" and "HEADS" in context.abilities:
        cases += [
            plan(context, f"{kind} head", dtype, vocabulary=45, drafts=4, markov=kind, mup=2.0)
            for kind in ("gated", "rnn")
            for dtype in context.profile.dtypes[:2]
        ]
    if context.forward == "backbone":
        cases.append(
            plan(context, "own draft model", "float32", vocabulary=97, drafts=3, forward="backbone")
        )
    return cases


def parity_reason(
    history: History, position: int, noise: torch.Tensor | None, settings: list[Setting]
) -> str:
    """Name the stale input or weight that would explain a mismatch, if one does.

    settings: the setting with the weights of each time, in order; the last is in force.
    """
    events = history.events[: position + 1]
    name, outputs = events[-1]["inputs"], events[-1]["outputs"]
    loads = [e["inputs"] for e in events if e["verb"] in ("load", "eager")]
    current = history.inputs[name]
    earlier = [history.inputs[load] for load in reversed(loads) if load != name]
    earlier = [old for old in earlier if set(old) == set(current)][:3]
    arithmetic = ARITHMETIC[history.description["stages"]]
    for past in settings[-2:-1]:
        if couple(past, current, outputs, noise, arithmetic).illegal == 0:
            return "the weights are one update old"
    return stale_field(settings[-1], current, earlier, outputs, noise, arithmetic)


def check(history: History, _ledger: Ledger) -> Verdict:
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
            stale = parity_reason(history, position, noise, settings)
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
