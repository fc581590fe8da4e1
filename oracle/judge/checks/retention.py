"""What was read stays as read."""

import torch

from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..script import Command, Plan, Reread, block
from ..verdict import Verdict, holds, unknown, violated
from .sampling import mixed

NAME = "retention"
TITLE = "results survive the next replay"
CLAIM = "Tensors that read() returned do not change when a later block is replayed."
NEEDS: tuple[str, ...] = ()

ROWS, DRAFTS, VOCABULARY, BLOCKS = 6, 3, 61, 3


def plans(context: Context) -> list[Plan]:
    """Three blocks of different inputs; the results of each are looked at after the next."""
    material = context.workload.material(context.seed, VOCABULARY, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(8,))
    inputs, commands = {}, list[Command]()
    for number in range(BLOCKS):
        hidden, anchor = context.workload.rows(
            context.seed + number, material, ROWS, query_rows(setting)
        )
        inputs[f"{number}"] = as_inputs(setting, hidden, anchor, *mixed(ROWS))
        commands += block(f"{number}")
        if number:
            commands.append(Reread(1))
    return [Plan(NAME, "three blocks", setting, inputs, tuple(commands))]


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare each earlier result with its copy; blocks must differ for this to mean anything."""
    reads = [event["outputs"] for event in history.of("read")]
    later = [event["outputs"] for event in history.of("reread")]
    used = 0
    told = False
    for number, now in enumerate(later):
        told = told or not torch.equal(reads[number]["tokens"], reads[number + 1]["tokens"])
        for name, tensor in now.items():
            used += 1
            then = reads[number][name]
            if not torch.equal(then.nan_to_num(), tensor.nan_to_num()):
                changed = int((then != tensor).sum())
                return violated(
                    f"{name} as read after block {number}: {changed} of {then.numel()} values were "
                    f"changed by block {number + 1}, required: none (a view, not a copy)",
                    used,
                    buffer=name,
                )
    if not told:
        return unknown("all blocks were equal, so an overwritten result would not show", used)
    return holds("all results stayed", used, "one value overwritten by the next block", "results")
