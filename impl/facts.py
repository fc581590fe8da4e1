"""The build table asked about facts: real objects are made to fit them, and the builders look."""

from dataclasses import replace

import torch

from .bias import MarkovHead
from .config import Config
from .gate import BuildFacts, Decision
from .logits import BorrowedHead
from .plan import Plan, Surroundings
from .ranks import seat_for
from .sampler import decide, need_bytes
from .shards import Group, even_ranges

WIDE = 8


def build_decision(facts: BuildFacts, group: Group | None = None) -> Decision:
    """Make the objects that the facts speak of, without memory, and let the builders' rule look.

    group: the ranks that ask at the same time, each with free memory of its own; None for one.

    Returns what the table answers for them; a head of the facts' dtype, which torch may lack, too.
    """
    # A storage dtype that torch does not have is held packed in bytes.
    dtype = getattr(torch, facts.weight_dtype or "uint8", torch.uint8)
    ranges, rows = tuple((rank, rank + 1) for rank in range(facts.ranks)), facts.stored_rows
    if group is not None:
        ranges = even_ranges(facts.vocabulary, facts.ranks)
        start, end = ranges[group.rank]
        # As many rows short as the facts say, or as many too many.
        rows = max(end - start + facts.stored_rows - facts.vocabulary, 0)
    weight = torch.empty(rows, WIDE, dtype=dtype, device="meta")
    head = BorrowedHead(
        weight if facts.has_weight else None,
        facts.added_vocabulary,
        ranges if facts.has_shard_ranges else None,
    )
    table = torch.empty(max(facts.vocabulary, 0), WIDE, device="meta")
    markov = MarkovHead(table, table) if facts.has_markov_head else None
    plan = Plan(facts.drafts, facts.vocabulary, (1,), ranks=facts.ranks, group=group)
    config = Config(
        folded_sampling=facts.mode.lower(),
        folded_proposal=not facts.switched_off,
        eager_draft=facts.switched_off,
        sharded_dflash=facts.sharded_dflash,
    )
    engine = object() if facts.engine_available else None
    around = Surroundings(engine, config, base_logits=facts.has_base_logits)
    parts = (facts.family, plan, head if facts.has_head else None, markov, "counter")
    decision = decide(*parts, around)
    if decision.fold != "sampled" or facts.free_bytes is None:
        return decision
    # The objects need other bytes than the facts say; the margin between free and need is kept.
    seat = seat_for(group, facts.ranks, head)
    need = need_bytes(plan, weight, markov, "counter", seat)
    free = facts.free_bytes - facts.need_bytes + need
    return decide(*parts, replace(around, free_bytes=free))
