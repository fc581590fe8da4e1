"""Seeds as pure functions of what they are for: never a clock, hash() or the order of tests."""

import hashlib
import json


def seed_of(
    check: str, case: str, purpose: str, stage: int = 0, shard: int = 0, run: int = 0
) -> int:
    """The seed of one purpose, in [0, 2^63): blake2b of its name as canonical JSON.

    purpose: 'subject' for a sampler's noise, 'transform', 'completion' or 'logits' for the judge's
    own draws. shard: the number of a chunk of draws. run: the seed of the whole run.
    """
    name = json.dumps([check, case, purpose, stage, shard, run], separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big") >> 1
