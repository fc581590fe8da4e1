"""Poison twice, differently: what changes the block was read stale, what stays was not written."""

from typing import Any

import torch

from ..budget import Ledger
from ..context import Context, Size, as_inputs, query_rows
from ..history import History
from ..protocol import NEUTRAL
from ..script import Command, Load, Observe, Plan, Poison, Read, Replay, Reseed
from ..verdict import Verdict, holds, unknown, violated
from .sampling import mixed

NAME = "writeset"
TITLE = "stale buffer after replay: poison, by name"
CLAIM = "No buffer's old content reaches a block; outputs are rewritten, pads neutral, in place."
NEEDS = ("BUFFERS",)

SIZE = Size(rows=8, drafts=3, vocabulary=61)
SEED, BATCHES, EVERY_ID = 20, 4, 2**30


def plans(context: Context) -> list[Plan]:
    """One case, which goes through every buffer, and one of batches that leave pad rows behind."""
    return [plan(context), padded(context)]


def padded(context: Context, size: Size = SIZE) -> Plan:
    """A full bucket, then smaller batches; every buffer is looked at after each of them."""
    bucket, live_rows = size.rows, max(1, size.rows - 3)
    material = context.workload.material(context.seed, size.vocabulary, size.dtype)
    setting = context.setting(
        material, drafts=size.drafts, buckets=(bucket,), forward=context.forward
    )
    names = [name for name, role in context.buffers.items() if role != "state"]
    looks = tuple(Observe(name) for name in names)
    inputs, commands = {}, list[Command]()
    for number in range(BATCHES):
        rows = live_rows if number else bucket
        hidden, anchor = context.workload.rows(
            context.seed + number, material, bucket, query_rows(setting)
        )
        heat = 0.5 + torch.arange(bucket) / 16 + number
        parts = (hidden, anchor, heat, torch.full((bucket,), EVERY_ID))
        inputs[f"{number}"] = as_inputs(setting, *(part[:rows] for part in parts))
        commands += [Load(f"{number}"), Replay(redraw=False), *looks]
    notes = {"live_rows": live_rows, "bucket": bucket, "pads": True}
    return Plan(NAME, "pad rows", setting, inputs, tuple(commands), notes=notes)


def plan(context: Context, size: Size = SIZE) -> Plan:
    """A baseline, then two poisoned blocks for each buffer, all from one noise state."""
    bucket, live_rows = size.rows, max(1, size.rows - 3)
    material = context.workload.material(context.seed, size.vocabulary, size.dtype, size.padding)
    setting = context.setting(
        material, drafts=size.drafts, buckets=(bucket,), forward=context.forward
    )
    hidden, anchor = context.workload.rows(context.seed, material, bucket, query_rows(setting))
    before, _ = context.workload.rows(context.seed + 1, material, bucket, query_rows(setting))
    heat, top_k = mixed(bucket)
    if "NOISE" not in context.abilities:
        top_k[:] = 1
    full = as_inputs(setting, before, anchor.flip(0), heat, top_k)
    parts = (hidden, anchor, heat, top_k)
    live = as_inputs(setting, *(part[:live_rows] for part in parts))
    run: tuple[Command, ...] = (Load("live"), Replay(redraw=False))
    commands: list[Command] = [Load("full"), Replay(redraw=False), Reseed(SEED), *run, Read()]
    names = [name for name, role in context.buffers.items() if role != "state"]
    for name in names:
        for which in (0, 1):
            commands += [Reseed(SEED), Poison(name, which), *run, Observe(name), Read()]
    inputs = {"full": full, "live": live}
    notes = {"live_rows": live_rows, "bucket": bucket}
    return Plan(NAME, f"{len(names)} buffers", setting, inputs, tuple(commands), notes=notes)


def differing(one: dict[str, torch.Tensor], two: dict[str, torch.Tensor]) -> str:
    """The first output field in which two blocks differ, or ''."""
    for name, tensor in one.items():
        if not torch.equal(tensor.nan_to_num(nan=-1.5), two[name].nan_to_num(nan=-1.5)):
            return name
    return ""


def complaint(
    seen: list[dict[str, Any]], baseline: dict[str, torch.Tensor], live_rows: int, bucket: int
) -> str:
    """What one buffer's two poisoned blocks show, or ''.

    seen: observe and read events of both blocks, in that order.
    """
    first, first_read, second, second_read = seen
    name = first["buffer"]
    for event in (first_read, second_read):
        field = differing(event["outputs"], baseline)
        if field:
            return f"buffer {name}: what it held before the load reached {field}"
    if first["address"] != second["address"]:
        return f"buffer {name} was moved to other memory by a load; a recording reads the old place"
    contents = [event["content"] for event in (first, second)]
    live = [content[:live_rows] if first["rows"] else content for content in contents]
    if first["role"] == "output" and differing({name: live[0]}, {name: live[1]}):
        return f"buffer {name}: the replay left live rows of this output unwritten"
    if first["pad"] == "neutral":
        pads = contents[0][live_rows:bucket]
        if not bool((pads == NEUTRAL[name]).all()):
            return (
                f"buffer {name}: pad rows hold {pads.flatten()[:3].tolist()}, "
                f"required {NEUTRAL[name]}"
            )
    return ""


def pads_of(history: History) -> Verdict:
    """Compare pad rows with the neutral value; a stale one with all that its rows ever held."""
    live_rows, bucket = history.notes["live_rows"], history.notes["bucket"]
    held: dict[str, list[torch.Tensor]] = {}
    found: dict[str, str] = {}
    for event in history.of("observe"):
        name = event["buffer"]
        before = held.setdefault(name, [])
        rows = event["content"][live_rows:bucket]
        if before and event["pad"] == "neutral" and not bool((rows == NEUTRAL[name]).all()):
            ages = [a for a, old in enumerate(reversed(before), 1) if torch.equal(old, rows)]
            number, age = len(before), max(ages, default=0)
            said = f"pad rows of buffer {name} hold {rows.flatten()[:3].tolist()}, required "
            said += f"{NEUTRAL[name]}, in replay {number}"
            if ages:
                old = "1 replay" if age == 1 else f"{age} replays"
                said += f": they are {old} old, rows {live_rows} to {bucket - 1} as replay "
                said += f"{number - age} left them"
            found[name] = said
        before.append(rows)
    if found:
        return violated("; ".join(found.values()), len(held), unit="buffers", buffers=list(found))
    return holds("pad rows are neutral", len(held), "one pad row that keeps a request", "buffers")


def check(history: History, _ledger: Ledger) -> Verdict:
    """Compare every poisoned block with the baseline, and the buffers with each other.

    Poison has no age. Pad rows have one: they are compared with what the same rows held after each
    earlier block, back to the batch that filled them; a value that no block left there has none.
    """
    if history.notes.get("pads"):
        return pads_of(history)
    seen = history.of("observe", "read")
    baseline, groups = seen[0]["outputs"], seen[1:]
    if not groups:
        return unknown("the subject claims BUFFERS but lists none besides its state")
    found = []
    for start in range(0, len(groups), 4):
        text = complaint(groups[start : start + 4], baseline, **history.notes)
        if text:
            found.append((groups[start]["buffer"], text))
    used = len(groups) // 4
    if found:
        names = [name for name, _ in found]
        return violated(found[0][1], used, unit="buffers", buffers=names)
    return holds(
        "no buffer's old content mattered", used, "one stale value in one buffer", "buffers"
    )
