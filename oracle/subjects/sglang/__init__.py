"""SGLang 0.5.23, out of its wheel or its installation.

sampler  DsparkDraftSampler behind its builder and the proposer's staging, as a tail over static
         buffers; on CUDA recorded by one graph a bucket. The three Markov heads, confidence.
edited   the same, with the tensors of a batch edited in place, which SGLang says never happens
accept   the same, and chain_speculative_sampling with chain and block verification
step     MarkovSampleStep and MarkovGreedyStep, driven step by step
kernel   the Triton kernels of the two steps; on a CPU in the interpreter
dflash   _DflashDraftSampler behind its gate
factory  dflash for that family, and sampler for dspark: accept where a GPU runs its kernel
"""

from typing import Any

from ...judge.protocol import Setting
from .accepting import accept
from .dflash import dflash
from .sampler import edited, sampler
from .stepwise import kernel, step

__all__ = ["accept", "dflash", "edited", "factory", "kernel", "sampler", "step"]


def factory(setting: Setting) -> Any:
    """Serve what fits: the folded samplers of both families, with the accept on a GPU."""
    if setting["family"] == "dflash":
        return dflash(setting)
    return accept(setting) if setting["device"] != "cpu" else sampler(setting)
