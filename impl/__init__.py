"""The draft sampler that runs inside a graph. One noun of the pipeline per file.

    hidden -> logits -> bias -> noise -> choice -> draft -> acceptance

config      every DRAFTPROOF_ variable, parsed once
shapes      sizes, declared and checked once
buffers     every tensor that outlives a call: name, role, pad policy, bytes
logits      output head: hidden states to base logits (P1)
bias        Markov head: previous token to a correction of the next logits
noise       race and counter: where the exponential draws of sampled rows come from
choice      step logits (P2), key, winner, flag
stages      one implementation of each arrow; the only place where a path is chosen
draft       the K steps of a block: the function that is captured
confidence  how likely each draft is to be accepted
filters     target law p of sampled rows: temperature, top-k, top-p
claim       claimed law q of drafted tokens
coins       uniforms of an accept, apart from the noise of the draft
residual    residual and bonus token: one draw by inverse CDF
acceptance  greedy, chain, block and mixed accept, with their cut
target      what a verify step hands over, and what is refused
epilogue    the greedy accept, recorded
acceptor    folded or eager, one decision a verify step
gate        three ordered tables: facts to a fold and a reason
sampler     DraftSampler: admission, staging, tail hook, read
backbone    a small real draft model
runner      Runner: buckets, pad rows, warm-up, capture, replay
proposer    Proposer: folded or eager, one decision a step
borrowed    views of the last block, refused after the next replay
assembly    plan, weights and environment to a captured proposer
facts       the build table, asked through objects made to fit facts
subject     the sampler behind the verbs of a judge
graph       the engines that capture and replay
decoding    speculative decoding of a whole text, over a target model
"""

from .proposer import Proposer
from .runner import Runner
from .sampler import DraftSampler
from .shapes import Shapes

__all__ = ["DraftSampler", "Proposer", "Runner", "Shapes"]
