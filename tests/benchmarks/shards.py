"""The block over ranks beside the block of one GPU: `torchrun -m tests.benchmarks.shards`.

Every rank first drafts from the whole head, then from its shard of it, in CUDA graphs both. The
floor is the bytes of the weights and kept logits over the bandwidth of a copy measured here. Of the
kernels of a replay the profiler says how many there are and how long the collective takes.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

from impl.assembly import assemble
from impl.bias import MarkovHead
from impl.config import Config
from impl.logits import BorrowedHead
from impl.plan import Plan
from impl.proposal import Batch
from impl.sampler import admit
from impl.shards import Group, ProcessGroup, even_ranges
from impl.subject import GivenForward
from oracle.judge.merge import enter

VOCABULARY, HIDDEN, RANK, DRAFTS = 151_936, 2048, 256, 7
REPEATS, REPLAYS = 15, 20
BF16 = torch.bfloat16
COPIED = 2**30
Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Row:
    """One measured block: microseconds of a replay, kernels, and the share in the collective."""

    family: str
    mix: str
    rows: int
    ranks: int
    microseconds: float
    floor: float
    launches: int
    collective: float


def microseconds(run: Callable[[], object]) -> float:
    """The median over repeats of the mean time of a run, on the device."""
    found = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(REPLAYS):
            run()
        end.record()
        end.synchronize()
        found.append(start.elapsed_time(end) * 1e3 / REPLAYS)
    return statistics.median(found)


def bandwidth() -> float:
    """Bytes a microsecond that a copy reads and writes."""
    source = torch.empty(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPIED / microseconds(lambda: target.copy_(source))


def kernels(run: Callable[[], object]) -> tuple[int, float]:
    """Kernels and copies of one run, and the share of their time that a collective takes."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        run()
        torch.cuda.synchronize()
    spent = [(e.name, e.device_time) for e in seen.events() if e.device_time > 0]
    total = sum(time for _, time in spent)
    inside = sum(time for name, time in spent if "nccl" in name.lower())
    return len(spent), inside / total if total else 0.0


def weights() -> Weights:
    """The same weights on every rank."""
    source = torch.Generator("cuda").manual_seed(5)
    shapes = {"head": (VOCABULARY, HIDDEN), "w1": (VOCABULARY, RANK), "w2": (VOCABULARY, RANK)}
    return {
        name: torch.randn(shape, device="cuda", generator=source).mul_(0.05).to(BF16)
        for name, shape in shapes.items()
    }


def floor_bytes(family: str, mix: str, rows: int, ranks: int) -> float:
    """Bytes that a block has to move: head, base logits, and per step w2 and kept logits."""
    columns = VOCABULARY / ranks
    base = 2 * columns * (HIDDEN + 2 * rows * DRAFTS)
    if family == "dflash":
        return base
    kept = 4 if mix == "sampled" else 2
    return base + DRAFTS * columns * (2 * RANK + kept * rows)


def measured(
    family: str,
    mix: str,
    rows: int,
    group: Group | None,
    held: dict[str, torch.Tensor],
    speed: float,
) -> Row:
    """Build, capture and measure one block."""
    ranks = 1 if group is None else group.size
    head = BorrowedHead(held["head"])
    if group is not None:
        ranges = even_ranges(VOCABULARY, ranks)
        start, end = ranges[group.rank]
        head = BorrowedHead(held["head"][start:end], shard_ranges=ranges)
    plan = Plan(
        DRAFTS,
        VOCABULARY,
        (rows,),
        step_dtype=BF16,
        device=torch.device("cuda"),
        ranks=ranks,
        group=group,
        sample_from_anchor=family != "dflash",
    )
    markov = MarkovHead(held["w1"], held["w2"]) if family == "dspark" else None
    proposer = assemble(plan, head, markov, GivenForward(VOCABULARY), Config(engine="cuda"), 7)
    queries = DRAFTS + (family == "dflash")
    source = torch.Generator("cuda").manual_seed(rows)
    hidden = torch.randn(rows, queries, HIDDEN, device="cuda", generator=source).to(BF16)
    heat = torch.full((rows,), 0.0 if mix == "greedy" else 0.8, device="cuda")
    anchor = torch.arange(rows, device="cuda")
    proposer.load(Batch(hidden, anchor, admit(heat, torch.full((rows,), 2**30, device="cuda"))))
    proposer.run()
    if proposer.runner is None:
        raise RuntimeError(f"{family} was not folded: {proposer.tail}")
    replay = proposer.runner.recordings[rows].replay
    time = microseconds(replay)
    launches, collective = kernels(replay)
    floor = floor_bytes(family, mix, rows, ranks) / speed
    return Row(family, mix, rows, ranks, time, floor, launches, collective)


def shown(found: list[Row]) -> Table:
    """The rows as a table, the sharded block beside the whole one."""
    table = Table(title=f"V {VOCABULARY:,}, D {HIDDEN}, rank {RANK}, {DRAFTS} drafts, bfloat16")
    names = ("block", "rows", "GPUs", "us", "x floor", "x one GPU", "kernels", "in collective")
    for name in names:
        table.add_column(name, justify="left" if name == "block" else "right")
    whole = {(r.family, r.mix, r.rows): r.microseconds for r in found if r.ranks == 1}
    for row in found:
        alone = whole[row.family, row.mix, row.rows]
        table.add_row(
            f"{row.family} {row.mix}",
            str(row.rows),
            str(row.ranks),
            f"{row.microseconds:.0f}",
            f"{row.microseconds / row.floor:.2f}",
            f"{row.microseconds / alone:.2f}",
            str(row.launches),
            f"{row.collective:.0%}",
        )
    return table


def main() -> None:
    """Measure on every rank and print what the first one measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 8, 32])
    options = parser.parse_args()
    world = enter("cuda")
    group = ProcessGroup()
    held, speed, found = weights(), bandwidth(), []
    for family, mix in (("dflash", "greedy"), ("dspark", "greedy"), ("dspark", "sampled")):
        for rows in options.rows:
            found.append(measured(family, mix, rows, None, held, speed))
            world.gather(None)
            found.append(measured(family, mix, rows, group, held, speed))
    if world.rank == 0:
        Console(width=110).print(shown(found))
        if options.json:
            report: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "copy": speed}
            report["rows"] = [vars(row) for row in found]
            options.json.write_text(json.dumps(report, indent=1))
    world.leave()


if __name__ == "__main__":
    main()
