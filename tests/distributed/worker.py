"""What each rank runs: blocks over shards, eager and recorded, beside the unsharded block.

Writes what it saw to RANK.json in the folder it is given: per scenario the results that differ.
A second argument 'cuda' assembles proposers on one GPU a rank, over NCCL and inside CUDA graphs.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from impl import gate, ranks
from impl.assembly import assemble
from impl.buffers import Buffers
from impl.config import Config
from impl.graph import engine_for
from impl.logits import BorrowedHead
from impl.noise import CounterNoise
from impl.plan import Plan
from impl.proposal import Batch
from impl.proposer import Proposer
from impl.sampler import admit
from impl.shards import Group, ProcessGroup, Shard, ShardedChoice, agree
from impl.subject import GivenForward
from oracle.judge.checks.gates import OPEN_BUILD
from oracle.judge.merge import enter
from tests.sharding import Case, Ranges, case, differences, load, rank_parts, results, whole
from tests.strategies import Shape

V, SEED, BLOCKS = 13, 21, 3
PLAIN = Config(engine="emulator")
DEVICES = {"emulator": "cpu", "cuda": "cuda"}
SPLITS: dict[str, Ranges] = {
    "uneven": ((0, 4), (4, V)),
    "last empty": ((0, V), (V, V)),
    "first empty": ((0, 0), (0, V)),
}
FOLDS = (("dspark", "sampled"), ("dspark", "greedy"), ("dflash", "greedy"))
FOLD = {"dspark": "sampled", "dflash": "greedy"}
Parts = Callable[[Case, Ranges, ProcessGroup], tuple[Any, Buffers]]


def drawn(family: str, fold: str, number: int) -> Case:
    """Case `number`: the weights of number 0 with inputs of its own; bfloat16 ties are common."""
    shape = Shape(5, 3, 1, V, V + 3, 6, 2, torch.bfloat16, torch.float32, SEED)
    first = case(shape, family, fold, spoil=False)
    other = case(replace(shape, seed=SEED + number), family, fold)
    return replace(other, weight=first.weight, markov=first.markov, noise_seed=SEED)


def sound(given: Case, ranges: Ranges, group: ProcessGroup) -> tuple[Any, Buffers]:
    """A rank as it should be."""
    return rank_parts(given, ranges, group, given.noise())


def local_seed(given: Case, ranges: Ranges, group: ProcessGroup) -> tuple[Any, Buffers]:
    """A rank that seeds its noise by its number."""
    noise = CounterNoise.seeded(V, SEED + group.rank, torch.device("cpu"))
    return rank_parts(given, ranges, group, noise)


class Misplaced(Shard):
    """A shard that believes it starts four ids early."""

    @property
    def start(self) -> int:
        """The wrong first id of every rank but the first."""
        return max(super().start - 4, 0)


@dataclass(frozen=True)
class WrongOffset:
    """A draft whose choice counts ids from the wrong place."""

    draft: Any

    def block(self, *arguments: Any) -> None:
        """Draft with the planted choice."""
        sound_choice = ranks._choice

        def planted(shard: Shard, group: Group, buffers: Buffers) -> ShardedChoice:
            return sound_choice(Misplaced(shard.ranges, shard.rank), group, buffers)

        ranks._choice = planted
        try:
            self.draft.block(*arguments)
        finally:
            ranks._choice = sound_choice


def wrong_offset(given: Case, ranges: Ranges, group: ProcessGroup) -> tuple[Any, Buffers]:
    """A rank whose ids are off by four."""
    draft, buffers = sound(given, ranges, group)
    return WrongOffset(draft), buffers


def mismatches(family: str, fold: str, ranges: Ranges, parts: Parts, how: str) -> list[str]:
    """Draft several blocks on shards and list every result that the unsharded block does not have.

    how  'eager', or 'recorded': by the emulator once, then replayed over inputs copied in place
    """
    start = drawn(family, fold, 0)
    draft, buffers = parts(start, ranges, ProcessGroup())
    hidden, anchor, spoil = start.hidden.clone(), start.anchor.clone(), start.spoil.clone()
    stages = replace(start, spoil=spoil).stages

    def block() -> None:
        draft.block(stages, buffers, hidden, anchor)

    run = block
    if how == "recorded":
        engine = engine_for("cpu")
        run = engine.record(block, pool=engine.pool()).replay
    found = []
    for number in range(BLOCKS):
        given = drawn(family, fold, number)
        for held, fresh in ((hidden, given.hidden), (anchor, given.anchor), (spoil, given.spoil)):
            held.copy_(fresh)
        load(given, buffers)
        run()
        wrong = differences(results(buffers), whole(given, number))
        found += [f"block {number}: {name}" for name in wrong]
    return found


def batch_of(given: Case, rows: int, device: str) -> Batch:
    """The first rows of a case as a batch on a device."""
    hidden = given.hidden.view(5, -1, given.shape.hidden)
    parts = (hidden, given.anchor, given.heat, given.top_k)
    hidden, anchor, heat, top_k = (part[:rows].to(device) for part in parts)
    return Batch(hidden, anchor, admit(heat, top_k))


def proposals(
    family: str, ranges: Ranges, group: ProcessGroup, config: Config = PLAIN
) -> list[str]:
    """Assemble proposers over the ranks and on one, and list what differs between their blocks.

    Batches shrink and grow over two buckets, and one block in three is drafted eagerly.
    """
    lone, shared = (proposer(family, part, ranges, config=config) for part in (None, group))
    found = []
    for number, rows in enumerate((5, 2, 3, 4, 5, 1)):
        given = drawn(family, FOLD[family], number)
        batch = batch_of(given, rows, DEVICES[config.engine])
        eager = number % 3 == 2
        one, two = (made.eager(batch) if eager else made.propose(batch) for made in (lone, shared))
        found += [f"block {number}: folded {two.folded}"] * (two.folded == eager)
        names = ("tokens", "flags", *(("step_logits",) if family == "dspark" else ()))
        pairs = [{name: getattr(block, name) for name in names} for block in (one, two)]
        found += [f"block {number}: {name}" for name in differences(*pairs)]
    return found


def proposer(
    family: str,
    group: ProcessGroup | None,
    ranges: Ranges,
    seed: int = SEED,
    config: Config = PLAIN,
) -> Proposer:
    """Assemble a proposer of the config's engine, over the ranks of a group or on one."""
    start, device = drawn(family, FOLD[family], 0), DEVICES[config.engine]
    plan = Plan(3, V, (2, 5), sample_from_anchor=False, device=torch.device(device))
    weight = start.weight.to(device)
    head = BorrowedHead(weight)
    if group is not None:
        plan = replace(plan, ranks=group.size, group=group)
        first, last = ranges[group.rank]
        head = BorrowedHead(weight[first:last].clone(), shard_ranges=ranges)
    whole = start.markov
    placed = replace(whole, w1=whole.w1.to(device), w2=whole.w2.to(device))
    markov = placed if family == "dspark" else None
    return assemble(plan, head, markov, GivenForward(V), config, seed)


def kept_eager(group: ProcessGroup) -> dict[str, Any]:
    """How ranks draft under the old rule of dflash, and what differs from a folded whole head."""
    given, config = drawn("dflash", "greedy", 1), replace(PLAIN, sharded_dflash="eager")
    batch = batch_of(given, 5, "cpu")
    lone, shared = (
        proposer("dflash", part, SPLITS["uneven"], config=config) for part in (None, group)
    )
    one, two = (vars(made.propose(batch)) for made in (lone, shared))
    paths = (lone.path(), shared.path())
    return {
        "folded": [path["folded"] for path in paths],
        "reasons": [path["reason"] for path in paths],
        "differences": differences(*({"tokens": block["tokens"]} for block in (one, two))),
    }


def seed_of_its_own(group: ProcessGroup) -> str:
    """What the assembly says when every rank brings a seed of its own."""
    try:
        proposer("dspark", group, SPLITS["uneven"], SEED + group.rank)
    except ValueError as error:
        return str(error)
    return "nobody noticed"


def gate_answer(group: ProcessGroup) -> dict[str, Any]:
    """Ask the gate with other free memory on every rank."""
    free = (2**40, 2**30 - 1)[group.rank]
    facts = {**OPEN_BUILD, "family": "dspark", "free_bytes": free, "need_bytes": 5}
    return vars(ranks.asked(group, gate.BuildFacts(**facts)))


def disagreement(group: ProcessGroup) -> str:
    """What a rank says when another one drafts another number of tokens."""
    try:
        agree(group, {"drafts": 3 + group.rank})
    except ValueError as error:
        return str(error)
    return "nobody noticed"


def blocks(group: ProcessGroup) -> dict[str, Any]:
    """Every scenario on CPUs."""
    seen: dict[str, Any] = {"gate": gate_answer(group), "seed": seed_of_its_own(group)}
    seen |= {"disagreement": disagreement(group), "kept eager": kept_eager(group)}
    for how in ("eager", "recorded"):
        for name, ranges in SPLITS.items():
            for family, fold in FOLDS:
                key = f"{how} {family} {fold} {name}"
                seen[key] = mismatches(family, fold, ranges, sound, how)
        for planted in (local_seed, wrong_offset):
            key = f"{how} {planted.__name__}"
            seen[key] = mismatches("dspark", "sampled", SPLITS["uneven"], planted, how)
    return seen


def assembled(group: ProcessGroup, config: Config) -> dict[str, Any]:
    """Proposers over the ranks beside one that holds the whole head, by family and split."""
    return {
        f"assembled {family} {name}": proposals(family, ranges, group, config)
        for family in FOLD
        for name, ranges in SPLITS.items()
    }


def main(folder: Path, device: str = "cpu") -> None:
    """Run every scenario on this rank and write what was seen."""
    torch.set_num_threads(1)
    world = enter(device)
    group = ProcessGroup()
    if device == "cuda":
        seen = {"gate": gate_answer(group)} | assembled(group, Config(engine="cuda"))
    else:
        seen = blocks(group) | assembled(group, PLAIN)
    (folder / f"{world.rank}.json").write_text(json.dumps(seen))
    world.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
