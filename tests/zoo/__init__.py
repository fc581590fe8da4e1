"""Deliberate bugs, each with its story and the check that must kill it, and healthy controls.

arithmetic  wrong numbers in one stage
acceptance  accept paths and confidence after a right draft
blocks      steps of another row or tile, noise, coins and seeds that are shared
noise       noise that is shared, or keyed by what it must not be
noise_law   noise of another law than declared
memory      buffers that are stale, moved, shared or left unwritten
staleness   exactly one buffer a replay, or several, behind
capture     what a recording froze, or a recording that never runs
ranks       ranks that are not one sampler, judged under torchrun
gate        a decision that folds when it must not
controls    correct but different samplers, and faults too faint to be told: nobody may flag them
"""

from .acceptance import SPECIMENS as ACCEPTANCE
from .arithmetic import SPECIMENS as ARITHMETIC
from .blocks import SPECIMENS as BLOCKS
from .capture import SPECIMENS as CAPTURE
from .gate import SPECIMENS as GATE
from .memory import SPECIMENS as MEMORY
from .noise import SPECIMENS as NOISE
from .noise_law import SPECIMENS as NOISE_LAW
from .specimen import Specimen
from .staleness import SPECIMENS as STALENESS

SPECIMENS: tuple[Specimen, ...] = (
    *ARITHMETIC,
    *ACCEPTANCE,
    *NOISE,
    *BLOCKS,
    *NOISE_LAW,
    *MEMORY,
    *STALENESS,
    *CAPTURE,
    *GATE,
)
