"""A chain of loads of which no two have a value in common, so that a stale one has an age."""

from typing import Any

import torch

from ..attribution import DEPTH
from ..context import Context, Size, as_inputs, query_rows
from ..history import History
from ..protocol import OUTPUTS, Tensors
from ..script import Command, Load, Observe, Plan, Read, Replay, Reweight
from ..staleness import judged, told
from ..timeline import timeline
from ..verdict import Verdict, holds, violated

SIZE = Size(rows=16, drafts=3, vocabulary=64)
EVERY_ID = 2**30
COLD, HOT = 1e-5, 50.0
# The first load is replayed this often, for the noise; every other one once, some edited in place.
FIRST, LOADS, EDITED = 4, 8, (3, 4, 7)
# Which weights change before which load.
UPDATES = {2: "head", 4: "w1", 5: "w2"}
CASE = "no two loads alike"


def patterns(seed: int, loads: int, width: int) -> torch.Tensor:
    """Boolean rows [loads, width], half of each True, no two the same."""
    source = torch.Generator().manual_seed(seed)
    found: list[torch.Tensor] = []
    while len(found) < loads:
        bits = torch.zeros(width, dtype=torch.bool)
        bits[torch.randperm(width, generator=source)[: width // 2]] = True
        if not any(torch.equal(bits, other) for other in found):
            found.append(bits)
    return torch.stack(found)


def looks(context: Context, *roles: str) -> tuple[Command, ...]:
    """Look at every buffer of these roles, and at those that are named as an output is."""
    named = {name: role for name, role in context.buffers.items() if role in roles}
    if named and "output" in roles:
        named |= dict.fromkeys(OUTPUTS, "output")
    return tuple(Observe(name, must=False) for name in named)


def watched(context: Context, load: Load, replays: int = 1) -> list[Command]:
    """A load and its replays; what the recording will read, and what it then left, is stored."""
    after = looks(context, "input", "parameter", "noise", "scratch", "output")
    blocks: list[Command] = [Replay(), *after, Read()]
    return [load, *looks(context, "input", "parameter"), *(blocks * replays)]


def plans(context: Context) -> list[Plan]:
    """One chain; designed input, since every value of it has to differ from every other."""
    return [] if context.workload.real else [plan(context)]


def plan(context: Context, size: Size = SIZE) -> Plan:
    """Loads that all differ in every field, and weights that change one after the other.

    The first half of the rows is hot or cold, the second half sampled and hot or greedy, in a
    pattern that belongs to its load alone: draws show it where nothing else is shown.
    """
    half = size.rows // 2
    material = context.workload.material(context.seed, size.vocabulary, size.dtype)
    other = context.workload.material(context.seed + 1, size.vocabulary, size.dtype)
    setting = context.setting(material, drafts=size.drafts, buckets=(size.rows,))
    if "CONFIDENCE" in context.abilities:
        source = torch.Generator().manual_seed(context.seed + 13)
        width = material.head.shape[1]
        setting["confidence_weight"] = torch.randn(1, width, generator=source) / width**0.5
        setting["confidence_bias"] = torch.tensor([0.25])
        setting["confidence_sts"] = torch.linspace(0.5, 2.0, size.drafts)
    hot, greedy = patterns(context.seed, LOADS, half), patterns(context.seed + 1, LOADS, half)
    weights = {"head": other.head, "w1": other.w1, "w2": other.w2}
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    for number in range(LOADS):
        hidden, anchor = context.workload.rows(
            context.seed + number, material, size.rows, query_rows(setting)
        )
        anchor = (torch.arange(size.rows) * 5 + number * 7) % size.vocabulary
        heat = torch.full((size.rows,), HOT + number)
        heat[:half][~hot[number]] = COLD * (1 + number / 1000)
        top_k = torch.full((size.rows,), EVERY_ID)
        top_k[half:][greedy[number]] = 1
        inputs[f"load {number}"] = as_inputs(setting, hidden, anchor, heat, top_k)
        update = UPDATES.get(number, "")
        if update in setting and "WEIGHTS" in context.abilities:
            commands.append(Reweight({update: weights[update]}))
        load = Load(f"load {number}", number in EDITED)
        commands += watched(context, load, 1 if number else FIRST)
    return Plan("freshness", CASE, setting, inputs, tuple(commands), notes={"ages": True})


def check(history: History, limit: float) -> Verdict:
    """Violated when an earlier value explains a block that its own values do not."""
    used = 0
    for event in history.of("read"):
        tokens = event["outputs"]["tokens"]
        used += tokens.numel()
        if bool(((tokens < 0) | (tokens >= history.setting["vocabulary"])).any()):
            return violated("tokens lie outside the vocabulary", used, unit="tokens")
    # Every block may be contradicted by chance, and repeat the draws of any of those before it.
    each = limit / (len(history.of("read")) * DEPTH)
    run = judged(timeline(history), history.description["stages"], each)
    phrase, ages = told(run)
    line: dict[str, Any] = {"replays": len(run.blocks), "stale": {}}
    for found in run.found:
        for name, age in found.what.ages.items():
            line["stale"].setdefault(name, []).append([found.moment.number, age])
    if phrase:
        return violated(f"stale: {phrase}", used, unit="tokens", ages=ages, timeline=line)
    rest = f"; {run.unexplained} blocks are off, and by no age" if run.unexplained else ""
    said = f"no earlier value explains a block{rest}"
    return holds(said, used, "one field one replay late", "tokens", timeline=line)
