"""Three ordered tables: may a block be folded, and why not. First match wins.

build   is a tail folded at all, and does it sample
step    is the folded block of this step believed
accept  is the commit of the verify graph believed
"""

from collections.abc import Callable
from dataclasses import dataclass

DENSE_DTYPES = ("float16", "bfloat16", "float32")
SPARE_BYTES = 2**30


@dataclass(frozen=True)
class Decision:
    """What a table answered.

    fold        'eager', 'greedy' or 'sampled'
    reason      the row that answered
    need_bytes  with free_bytes, the figures of a memory decision; 0 where none was asked for
    free_bytes  None where memory is no limit
    """

    fold: str
    reason: str
    need_bytes: int = 0
    free_bytes: int | None = None


@dataclass(frozen=True)
class BuildFacts:
    """Facts about a sampler before it is captured.

    family 'dflash' or 'dspark'; weight_dtype a dtype name or None; mode 'auto', 'off' or 'force';
    free_bytes None where there is no device memory to run out of; sharded_dflash 'fold' or 'eager':
    what the operator wants of dflash over ranks; has_base_logits: of the draft model, for dspark
    """

    family: str
    drafts: int
    engine_available: bool
    switched_off: bool
    has_head: bool
    has_weight: bool
    weight_dtype: str | None
    added_vocabulary: int
    vocabulary: int
    stored_rows: int
    ranks: int
    has_shard_ranges: bool
    has_markov_head: bool
    sharded_dflash: str
    has_base_logits: bool
    mode: str = "auto"
    free_bytes: int | None = None
    need_bytes: int = 0


@dataclass(frozen=True)
class StepFacts:
    """Facts about one step; tail is the fold of the sampler, 'eager' without one."""

    tail: str
    recording_ran: bool
    sampled_rows: bool


@dataclass(frozen=True)
class AcceptFacts:
    """Facts about one verify step."""

    block_folded: bool
    sampled_rows: bool
    logit_adjustment: bool
    live_grammar: bool
    verify_replayed: bool


BUILD: tuple[tuple[str, Callable[[BuildFacts], bool]], ...] = (
    ("switched off", lambda facts: facts.switched_off),
    ("no capture engine", lambda facts: not facts.engine_available),
    ("no drafts", lambda facts: facts.drafts < 1),
    ("no output head", lambda facts: not facts.has_head),
    ("empty vocabulary", lambda facts: facts.vocabulary < 1),
    ("output head has no dense weight", lambda facts: not facts.has_weight),
    ("quantized output head", lambda facts: facts.weight_dtype not in DENSE_DTYPES),
    (
        "vocabulary larger than the output head",
        lambda facts: facts.vocabulary > facts.stored_rows,
    ),
    (
        "sharded dflash kept eager",
        lambda facts: (
            facts.family == "dflash" and facts.ranks > 1 and facts.sharded_dflash == "eager"
        ),
    ),
    ("added vocabulary", lambda facts: facts.added_vocabulary != 0),
    (
        "sharded output head without ranges",
        lambda facts: facts.ranks > 1 and not facts.has_shard_ranges,
    ),
    ("no base logits", lambda facts: facts.family == "dspark" and not facts.has_base_logits),
    ("no markov head", lambda facts: facts.family == "dspark" and not facts.has_markov_head),
)

STEP: tuple[tuple[str, Callable[[StepFacts], bool]], ...] = (
    ("no sampler", lambda facts: facts.tail == "eager"),
    ("recording did not run", lambda facts: not facts.recording_ran),
    (
        "sampled rows with a greedy-only tail",
        lambda facts: facts.sampled_rows and facts.tail == "greedy",
    ),
)

ACCEPT: tuple[tuple[str, Callable[[AcceptFacts], bool]], ...] = (
    ("block not folded", lambda facts: not facts.block_folded),
    ("sampled rows", lambda facts: facts.sampled_rows),
    ("logits adjusted", lambda facts: facts.logit_adjustment),
    ("live grammar", lambda facts: facts.live_grammar),
    ("verify did not replay", lambda facts: not facts.verify_replayed),
)


def build(facts: BuildFacts) -> Decision:
    """Decide whether a tail is folded, and whether it holds the sampling buffers.

    ValueError: a family, a rule for sharded dflash or a mode that does not exist.
    """
    if facts.family not in ("dflash", "dspark"):
        raise ValueError(f"the family is {facts.family!r}; it should be 'dflash' or 'dspark'")
    if facts.sharded_dflash not in ("fold", "eager"):
        raise ValueError(
            f"sharded dflash is {facts.sharded_dflash!r}; it should be 'fold' or 'eager'"
        )
    for reason, refuses in BUILD:
        if refuses(facts):
            return Decision("eager", reason)
    return Decision("greedy", "folded") if facts.family == "dflash" else _memory(facts)


def step(facts: StepFacts) -> Decision:
    """Decide whether the folded block of one step is used."""
    for reason, refuses in STEP:
        if refuses(facts):
            return Decision("eager", reason)
    return Decision(facts.tail, "folded")


def accept(facts: AcceptFacts) -> Decision:
    """Decide whether the greedy commit of the verify graph is used."""
    for reason, refuses in ACCEPT:
        if refuses(facts):
            return Decision("eager", reason)
    return Decision("greedy", "folded")


def _memory(facts: BuildFacts) -> Decision:
    if facts.mode == "off":
        return Decision("greedy", "sampling switched off")
    if facts.mode == "force":
        return Decision("sampled", "folded")
    if facts.mode != "auto":
        raise ValueError(f"the mode is {facts.mode!r}; it should be 'auto', 'off' or 'force'")
    need, free = facts.need_bytes, facts.free_bytes
    if free is None or free - need >= SPARE_BYTES:
        return Decision("sampled", "folded", need, free)
    return Decision("greedy", "memory short", need, free)
