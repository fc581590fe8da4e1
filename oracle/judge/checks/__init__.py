"""The checks, in the order in which they are run and read: the first violated is the diagnosis.

path first (did anything run), then what is certain (bounds, spike, gates), then staleness
(freshness, writeset, retention), then the race (equality, invariance, ranks, coupled,
noise_law, independence), then the laws (draft_law, block_law, claim, lossless, accept_length).
"""

from types import ModuleType

from . import (
    accept_length,
    accept_rule,
    block_law,
    bounds,
    claim,
    confidence,
    coupled,
    draft_law,
    equality,
    freshness,
    gates,
    independence,
    invariance,
    lossless,
    noise_law,
    path,
    ranks,
    retention,
    spike,
    writeset,
)

ALL: tuple[ModuleType, ...] = (
    path,
    bounds,
    spike,
    gates,
    freshness,
    writeset,
    retention,
    equality,
    invariance,
    ranks,
    coupled,
    confidence,
    accept_rule,
    noise_law,
    independence,
    draft_law,
    block_law,
    claim,
    lossless,
    accept_length,
)


def named(name: str) -> ModuleType:
    """The check of that name; KeyError lists the names there are."""
    for check in ALL:
        if name == check.NAME:
            return check
    raise KeyError(f"no check {name!r}, required: one of {[check.NAME for check in ALL]}")
