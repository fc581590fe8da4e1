"""Correct but different samplers: every check must pass them.

stages   other arithmetic in one arrow of the folded sampler
draws    random numbers of another kind, of which only laws and draws are shown
batches  rows, buckets, recordings and results handled in another way
accepts  other ways to accept
ranks    a vocabulary over two ranks in one process
below    faults below the smallest one that a check states, built by faint
"""

from collections.abc import Mapping
from typing import Any

from impl.subject import factory
from oracle.judge.context import Profile
from oracle.judge.protocol import Factory
from oracle.subjects import reference, torch_ops

from .accepts import log_ratios, recomputed_claim
from .batches import (
    copied_at_the_border,
    eager_every_time,
    extra_buffers,
    greedy_drafts,
    more_buckets,
    permuted_rows,
    read_elsewhere,
)
from .below import BELOW
from .draws import inverse_cdf, other_philox, two_level_draw
from .ranks import two_ranks
from .stages import (
    bias_in_bfloat16,
    colder_by_a_hair,
    early_noise,
    float32_kept,
    gumbel_keys,
    halved_head,
    summed_bias,
    tiled,
)


def without_recording(setting: Mapping[str, Any]) -> Any:
    """The folded sampler, run outside any recording, and saying so."""
    return factory({**setting, "engine": "eager"})


CONTROLS: dict[str, Factory] = {
    "reference": reference.factory,
    "torch_multinomial": torch_ops.factory,
    "folded": factory,
    "tiled": tiled,
    "summed_bias": summed_bias,
    "colder_by_a_hair": colder_by_a_hair,
    "gumbel_keys": gumbel_keys,
    "halved_head": halved_head,
    "bias_in_bfloat16": bias_in_bfloat16,
    "float32_kept": float32_kept,
    "early_noise": early_noise,
    "inverse_cdf": inverse_cdf,
    "two_level_draw": two_level_draw,
    "other_philox": other_philox,
    "permuted_rows": permuted_rows,
    "more_buckets": more_buckets,
    "without_recording": without_recording,
    "eager_every_time": eager_every_time,
    "extra_buffers": extra_buffers,
    "read_elsewhere": read_elsewhere,
    "copied_at_the_border": copied_at_the_border,
    "greedy_drafts": greedy_drafts,
    "recomputed_claim": recomputed_claim,
    "log_ratios": log_ratios,
    "two_ranks": two_ranks,
}
# What must not be flagged, healthy or too faint to be told from healthy, in the order of print.
SPARED = (*CONTROLS, *BELOW)


def spared(row: str, profile: Profile) -> Factory:
    """The factory of a control; of one with a faint fault, at its size for a profile."""
    return CONTROLS[row] if row in CONTROLS else BELOW[row].factory(profile)
