"""Stages: one implementation of each arrow, and the only place where a path is chosen.

Replace one arrow with `stages._replace(bias=...)`; the loop that calls them does not change. A
fused arrow that stands for the one replaced then steps aside, and the others run one by one.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from . import bias, choice, confidence, logits, noise
from .acceptance import RULES, Asked, Commit, accept_greedy
from .bias import MarkovHead
from .fused import (
    DrawnNoise,
    Fused,
    FusedChain,
    FusedHead,
    Run,
    SampledAccept,
    Site,
    SplitAccept,
    SplitChoice,
    cannot_fuse,
    cannot_run,
)
from .logits import OutputHead

Bias = Callable[[MarkovHead, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor | None]]
Accept = Callable[[Tensor, Tensor, Tensor, Tensor, Commit], None]
Rule = Callable[[Asked, Tensor, Tensor, Tensor, Commit], None]
BIASES: dict[str, Bias] = {
    "vanilla": bias.vanilla,
    "gated": bias.gated,
    "rnn": bias.recurrent,
}


class Stages(NamedTuple):
    """The arrows of the sampler pipeline.

    logits   (head, hidden [B, K, D], out [B, K, V]): base logits (P1)
    bias     (markov, previous [B], hidden [B, D], state [B, R] or None) -> [B, V], next state
    step     (base [B, V], bias [B, V], out [B, V]): step logits (P2)
    noise    (noise, rows, step, buffer or None) -> [B, V] float32 or None
    choice   (logits, temperature, greedy, noise, tokens, flags): one draft column
    advance  (noise): the end of a block
    rate     (head, features, raw, confidence, flags): what the confidence head says
    fused    one arrow in the place of bias, step, noise, choice and advance, or None
    output   one arrow in the place of logits and choice, in a block without steps, or None
    chosen   which set this is, and why
    """

    logits: Callable[[OutputHead, Tensor, Tensor], None]
    bias: Bias
    step: Callable[[Tensor, Tensor, Tensor], None]
    noise: Callable[[Any, int, int, Tensor | None], Tensor | None]
    choice: Callable[..., None]
    advance: Callable[[Any], None]
    rate: Callable[..., None]
    fused: Fused | None = None
    output: Fused | None = None
    chosen: str = "torch"

    @property
    def chain(self) -> Run | None:
        """The fused arrow, unless one of the arrows it stands for was replaced."""
        return self.fused.run if self.fused is not None and self.fused.fits(self) else None

    @property
    def head(self) -> Callable[[OutputHead, Tensor, Tensor, Tensor, Tensor], None] | None:
        """The arrow `output`, unless one of the arrows it stands for was replaced."""
        return self.output.run if self.output is not None and self.output.fits(self) else None


_COUNTER = Stages(
    logits=logits.base_logits,
    bias=bias.vanilla,
    step=choice.step_logits,
    noise=noise.counter,
    choice=choice.choose_counter,
    advance=noise.advance_counter,
    rate=confidence.rate,
)
_RACE = _COUNTER._replace(noise=noise.race, choice=choice.choose_race, advance=noise.advance_race)

# Dialect 'none' draws nothing and moves nothing: DFLASH, and a greedy draft. A greedy tail of the
# other two moves the noise state as far as a sampled one would: the counter by one block, the
# generator by the same draws, which are discarded.
TORCH: dict[tuple[str, str], Stages] = {
    ("none", "greedy"): _COUNTER._replace(
        noise=noise.unused, choice=choice.choose_greedy, advance=noise.advance_race
    ),
    ("counter", "sampled"): _COUNTER,
    ("counter", "greedy"): _COUNTER._replace(noise=noise.unused, choice=choice.choose_greedy),
    ("race", "sampled"): _RACE,
    ("race", "greedy"): _RACE._replace(choice=choice.choose_greedy),
}
IMPLEMENTATIONS = ("auto", "torch", "triton")
FUSED = ("bias", "step", "noise", "choice", "advance")


def stages_for(
    implementation: str,
    dialect: str,
    fold: str,
    kind: str = "vanilla",
    site: Site | None = None,
) -> Stages:
    """Return the arrows of an implementation.

    implementation  'torch'; 'triton', kernels wherever there is one; 'auto', those on CUDA alone
    dialect         'none' (nothing is drawn), 'race' or 'counter'
    fold            'greedy' or 'sampled'
    kind            of the Markov head, a key of BIASES
    site            where the block is drafted; kernels need to know it

    ValueError: a combination that does not exist, with those that do; kernels that cannot run.
    """
    if implementation not in IMPLEMENTATIONS or (dialect, fold) not in TORCH:
        raise ValueError(
            f"no stages for {implementation} {dialect, fold}; there are {IMPLEMENTATIONS} and "
            f"{list(TORCH)}"
        )
    found = TORCH[dialect, fold]._replace(bias=BIASES[kind])
    if implementation == "torch":
        return found
    missing = _missing(implementation, site)
    if site is None or missing is not None:
        return found._replace(chosen=f"torch: {missing}")
    missing = cannot_fuse(site, dialect, fold)
    if missing is not None and (dialect, fold) == ("counter", "sampled"):
        return found._replace(noise=DrawnNoise(), chosen=f"torch, noise by triton: {missing}")
    if missing is not None:
        return found._replace(chosen=f"torch: {missing}")
    if site.markov is None:
        found = found._replace(choice=SplitChoice(), chosen="triton: head with its argmax")
        stands_for = {"logits": found.logits, "choice": found.choice}
        return found._replace(output=Fused(FusedHead(found.logits, found.choice), stands_for))
    run = FusedChain(drawn=fold == "sampled", counts=dialect == "counter")
    fused = Fused(run, {name: getattr(found, name) for name in FUSED})
    return found._replace(fused=fused, chosen="triton: one launch a step")


class Accepts(NamedTuple):
    """The arrows of a verification.

    greedy  (candidates, target logits, verify lengths, prefixes, out): rows that take the argmax
    rules   (asked, target law, claimed law, coins, out) of sampled rows, by name
    chosen  which set this is, and why
    """

    greedy: Accept = accept_greedy
    rules: Mapping[str, Rule] = RULES
    chosen: str = "torch"


def accepts_for(implementation: str, site: Site) -> Accepts:
    """Return the accepts of an implementation, as `stages_for` its arrows.

    ValueError: kernels that cannot run.
    """
    if implementation == "torch":
        return Accepts()
    missing = _missing(implementation, site)
    if missing is not None:
        return Accepts(chosen=f"torch: {missing}")
    rules = {rule: SampledAccept(rule) for rule in RULES}
    return Accepts(SplitAccept(), rules, "triton: sums in parts")


def _missing(implementation: str, site: Site | None) -> str | None:
    if implementation == "auto" and site is not None and site.device.type != "cuda":
        return f"the device is {site.device}"
    missing = "nothing is said of the device" if site is None else cannot_run(site)
    if implementation == "triton" and missing is not None:
        raise ValueError(f"stages 'triton': {missing}")
    return missing
