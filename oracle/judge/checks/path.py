"""The recording really ran; where that was not seen, nothing else may be believed."""

import torch

from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..script import Command, Load, Observe, Plan, Poison, Read, Replay
from ..verdict import Verdict, holds, unknown
from .sampling import mixed

NAME = "path"
TITLE = "the graph really ran"
CLAIM = "Every block came from one replay of the recording: counted, folded, poison gone."
NEEDS = ("REPLAYS",)

ROWS, DRAFTS, VOCABULARY, BLOCKS = 5, 3, 61, 3


def plans(context: Context) -> list[Plan]:
    """A few blocks; before each, every output buffer that can be reached is poisoned."""
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(4, 8), forward=context.forward)
    hidden, anchor = context.workload.rows(context.seed, material, ROWS, query_rows(setting))
    inputs = {"x": as_inputs(setting, hidden, anchor, *mixed(ROWS))}
    outputs = [name for name, role in context.buffers.items() if role == "output"]
    commands: list[Command] = [Load("x")]
    for number in range(BLOCKS):
        commands += [Poison(name, number % 2) for name in outputs]
        commands += [Replay(redraw=False)]
        commands += [Observe(name) for name in outputs]
        commands += [Read()]
    return [Plan(NAME, "poisoned outputs", setting, inputs, tuple(commands))]


def check(history: History, _ledger: Ledger) -> Verdict:
    """Unknown unless each replay moved the count by one, folded, and wrote its tokens."""
    replays = history.of("replay")
    for number, event in enumerate(replays):
        before, after = event["before"]["path"], event["after"]["path"]
        if not after.get("folded"):
            reason = after.get("reason", "none given")
            return unknown(f"block {number} did not come from the recording (reason: {reason})")
        moved = after["replays"] - before["replays"]
        if moved != 1:
            return unknown(
                f"the count of replays moved by {moved} for block {number}, required: 1; "
                "the recording was not seen to run"
            )
    for event in history.of("observe"):
        content = event["content"][:ROWS] if event["rows"] else event["content"]
        held = content.isnan() if content.is_floating_point() else content < 0
        if bool(held.any()) and content.dtype != torch.bool:
            return unknown(f"poison survived a replay in output buffer {event['buffer']}")
    kernels = replays[-1]["after"]["path"].get("kernels", [])
    evidence = f"{len(kernels)} kernels recorded" if kernels else "no kernel names offered"
    return holds(
        f"{len(replays)} of {len(replays)} blocks were replays; {evidence}",
        len(replays),
        "one block that was not a replay",
        "replays",
        kernels=len(kernels),
    )
