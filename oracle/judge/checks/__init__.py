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
    decode_accept,
    decode_drafts,
    decode_gates,
    decode_identity,
    decode_law,
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

# Of whole texts, decoded with a real model: run by `draftproof decode`, in this order.
DECODING: tuple[ModuleType, ...] = (
    decode_gates,
    decode_identity,
    decode_accept,
    decode_drafts,
    decode_law,
)


def named(name: str) -> ModuleType:
    """The check of that name; KeyError lists the names there are."""
    return among(ALL, name)


def stored(name: str) -> ModuleType:
    """The check of a stored history, those of decoding included; KeyError as for `named`."""
    return among((*ALL, *DECODING), name)


def among(checks: tuple[ModuleType, ...], name: str) -> ModuleType:
    """The check of that name among some."""
    for check in checks:
        if name == check.NAME:
            return check
    raise KeyError(f"no check {name!r}, required: one of {[check.NAME for check in checks]}")
