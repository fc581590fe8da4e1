"""Fold or eager: three ordered tables, the first row that applies decides (README, gates)."""

from collections.abc import Mapping
from typing import Any

GIB = 2**30
DENSE = ("float16", "bfloat16", "float32")

Decision = tuple[str, str]


def build(facts: Mapping[str, Any]) -> Decision:
    """Decide whether a tail is folded into the recording, and how much of it.

    Returns (fold, reason), fold being 'eager', 'greedy' (argmax only) or 'sampled'. ValueError: a
    word of the operator that does not exist.
    """
    dspark = facts["family"] == "dspark"
    rows = (
        (facts["switched_off"], "switched off"),
        (not facts["engine_available"], "no capture engine"),
        (facts["drafts"] < 1, "no drafts"),
        (not facts["has_head"], "no output head"),
        (facts["vocabulary"] < 1, "empty vocabulary"),
        (not facts["has_weight"], "output head has no dense weight"),
        (facts["weight_dtype"] not in DENSE, "quantized output head"),
        (facts["vocabulary"] > facts["stored_rows"], "vocabulary larger than the output head"),
        (stays_eager(facts) and not dspark, "sharded dflash kept eager"),
        (facts["added_vocabulary"] != 0, "added vocabulary"),
        (
            facts["ranks"] > 1 and not facts["has_shard_ranges"],
            "sharded output head without ranges",
        ),
        (dspark and not facts["has_base_logits"], "no base logits"),
        (dspark and not facts["has_markov_head"], "no markov head"),
    )
    for applies, reason in rows:
        if applies:
            return "eager", reason
    if not dspark:
        return "greedy", "folded"
    return sampling(facts["mode"], facts["free_bytes"], facts["need_bytes"])


def stays_eager(facts: Mapping[str, Any]) -> bool:
    """Say whether the operator keeps a DFLASH head out of the recording, as it is over ranks."""
    word = facts["sharded_dflash"]
    if word not in ("fold", "eager"):
        raise ValueError(f"sharded_dflash is {word!r}, required: 'fold' or 'eager'")
    return bool(word == "eager" and facts["ranks"] > 1)


def sampling(mode: str, free_bytes: int | None, need_bytes: int) -> Decision:
    """Decide whether the sampling buffers fit: free - need >= 1 GiB, the bound included.

    mode 'off', 'auto' or 'force'; free_bytes None where there is no device memory to run out of.
    """
    if mode == "off":
        return "greedy", "sampling switched off"
    if mode == "force":
        return "sampled", "folded"
    if mode != "auto":
        raise ValueError(f"mode is {mode!r}, required: 'off', 'auto' or 'force'")
    if free_bytes is not None and free_bytes - need_bytes < GIB:
        return "greedy", "memory short"
    return "sampled", "folded"


def step(facts: Mapping[str, Any]) -> Decision:
    """Decide whether the folded block of one step is believed.

    facts['tail'] is the fold that `build` answered, or 'eager' when there is no sampler.
    """
    if facts["tail"] == "eager":
        return "eager", "no sampler"
    if not facts["recording_ran"]:
        return "eager", "recording did not run"
    if facts["sampled_rows"] and facts["tail"] == "greedy":
        return "eager", "sampled rows with a greedy-only tail"
    return facts["tail"], "folded"


def accept(facts: Mapping[str, Any]) -> Decision:
    """Decide whether the greedy commit computed in the verify recording is believed."""
    rows = (
        (not facts["block_folded"], "block not folded"),
        (facts["sampled_rows"], "sampled rows"),
        (facts["logit_adjustment"], "logits adjusted"),
        (facts["live_grammar"], "live grammar"),
        (not facts["verify_replayed"], "verify did not replay"),
    )
    for applies, reason in rows:
        if applies:
            return "eager", reason
    return "greedy", "folded"
