"""Fused arrows: a chain of draft steps, or an argmax, as kernels where device and head allow it.

Which set of arrows is used is decided in stages.py; here is said whether a fused one can be, and
what tensors it is given. Kernels are imported only when one is built.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from .acceptance import Asked, Commit
from .bias import MarkovHead
from .buffers import Buffers
from .logits import OutputHead, factors
from .noise import CounterNoise, Noise

CAPABILITY = (8, 0)
# An exact product of float32 has no such instruction, and the library's is faster than ours.
TENSOR_CORES = (torch.float16, torch.bfloat16)
Run = Callable[[MarkovHead, Noise, Buffers, Tensor], None]


@dataclass(frozen=True)
class Site:
    """Where a block is drafted, as far as the choice of its arrows depends on it.

    device    of every tensor
    markov    the Markov head, None for DFLASH
    ranks     processes that share the vocabulary
    recorded  an engine records the block
    """

    device: torch.device
    markov: MarkovHead | None = None
    ranks: int = 1
    recorded: bool = False


@dataclass(frozen=True)
class Fused:
    """One arrow in the place of several.

    run         of a chain (markov, noise, buffers, anchor [B] int64): all steps of a block, tokens
                to flags; of a block without steps (head, hidden, base logits, tokens, flags)
    stands_for  the arrows whose place it takes, by name; with one of them replaced it is not used,
                so that what was put in takes effect
    """

    run: Callable[..., None]
    stands_for: dict[str, Any]

    def fits(self, arrows: Any) -> bool:
        """Say whether these arrows are still the ones it stands for."""
        return all(getattr(arrows, name) is arrow for name, arrow in self.stands_for.items())


def cannot_run(site: Site, capability: tuple[int, int] | None = None) -> str | None:
    """Say why no kernel of ours runs at a site, None when one can.

    capability  of its GPU; None to ask the driver
    """
    if find_spec("triton") is None:
        return "triton is not installed"
    if site.device.type == "cuda":
        found = capability or torch.cuda.get_device_capability(site.device)
        if found < CAPABILITY:
            return f"compute capability {found} is below {CAPABILITY}"
        return None
    from .kernels.chain import INTERPRETED

    if not INTERPRETED:
        return f"the device is {site.device}, and kernels are not interpreted"
    return "an engine cannot record interpreted kernels" if site.recorded else None


def cannot_fuse(site: Site, dialect: str, fold: str) -> str | None:
    """Say why a site has no fused arrow, None when it has one."""
    from .kernels.chain import RANK_MAX

    over_ranks = "the vocabulary lies over ranks, and a choice ends with their gather"
    markov = site.markov
    if markov is None or site.ranks > 1:
        return over_ranks if site.ranks > 1 else None
    framework = dialect == "race" or (dialect == "none" and fold != "greedy")
    ragged = markov.w1.stride(1) != 1 or markov.w2.stride(1) != 1
    reasons = {
        f"the Markov head is {markov.kind}": markov.kind != "vanilla",
        f"the noise is {dialect}, whose draws come from the framework": framework,
        f"the Markov rank is {markov.rank}, above {RANK_MAX}": markov.rank > RANK_MAX,
        f"w2 is {markov.w2.dtype}, not of 16 bits": markov.w2.dtype not in TENSOR_CORES,
        "rows of w1 or w2 are not contiguous": ragged,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class FusedChain:
    """The chain of a vanilla Markov head with counter noise, or greedy.

    drawn   rows that are not greedy are sampled; False makes every row take its argmax
    counts  a block moves the block counter of the noise
    """

    def __init__(self, *, drawn: bool, counts: bool) -> None:
        from .kernels import chain

        self.kernels = chain
        self.drawn = drawn
        self.counts = counts
        self.slots = chain.Slots()

    def __call__(self, markov: MarkovHead, noise: Noise, buffers: Buffers, anchor: Tensor) -> None:
        """Draft all steps from the base logits in the buffers; see Fused."""
        rows = anchor.shape[0]
        tokens, kept = buffers["tokens"][:rows], buffers.get("step_logits")
        state = None
        if self.counts and isinstance(noise, CounterNoise):
            state = noise.seed_key, noise.block
        chain = self.kernels.Chain(
            w1=markov.w1,
            w2=markov.w2,
            base=buffers["base_logits"][:rows],
            kept=None if kept is None else kept[:rows],
            step_dtype=buffers.layout.step_dtype,
            anchor=anchor,
            temperature=buffers["temperature"][:rows],
            greedy=buffers["greedy"][:rows],
            tokens=tokens,
            flags=buffers["flags"][:rows],
            noise=state,
            drawn=self.drawn,
        )
        self.kernels.launch(chain, self.slots.of(tokens))


class DrawnNoise:
    """The noise arrow of the counter dialect, where the chain of its steps is not fused."""

    def __init__(self) -> None:
        from .kernels import noise

        self.draw = noise.draw

    def __call__(self, noise: CounterNoise, rows: int, step: int, buffer: Tensor | None) -> Tensor:
        """Return E of one step, [rows, V] float32, in memory of the recording.

        The result of `noise.counter`, but for the last bits of its logarithm.
        """
        del buffer
        device = noise.block.device
        out = torch.empty(rows, noise.vocabulary, dtype=torch.float32, device=device)
        self.draw((noise.seed_key, noise.block), noise.vocab_start, step, out)
        return out


class SplitChoice:
    """The choice arrow of a greedy block without steps: rows of logits are read once, in parts."""

    def __init__(self) -> None:
        from .kernels import chain, head

        self.largest = head.largest
        self.slots = chain.Slots()

    def __call__(
        self,
        logits: Tensor,
        temperature: Tensor | None,
        greedy: Tensor | None,
        noise: Tensor | None,
        tokens: Tensor,
        flags: Tensor,
    ) -> None:
        """Write the argmax and the flag of every row; arguments as in `choice.choose_greedy`.

        logits [B, K, V] float; tokens [B, K] int64; flags [B, K] uint8
        """
        del temperature, greedy, noise
        self.largest(logits, self.slots.of(tokens), tokens, flags)


class FusedHead:
    """Head and argmax of a greedy block without steps: one launch where rows are few.

    logits, choice  the arrows for more rows, and for weights that have no such launch

    In one launch the base logits are not written.
    """

    def __init__(
        self, logits: Callable[[OutputHead, Tensor, Tensor], None], choice: Callable[..., None]
    ) -> None:
        from .kernels import chain, head

        self.kernels = head
        self.logits, self.choice = logits, choice
        self.slots = chain.Slots()

    def fits(self, head: OutputHead, tokens: Tensor) -> bool:
        """Say whether drafts [B, K] of a head are made in one launch."""
        weight = head.weight
        dense = weight.dtype in TENSOR_CORES and weight.stride(1) == 1
        return dense and tokens.numel() <= self.kernels.FEW

    def __call__(
        self, head: OutputHead, hidden: Tensor, base: Tensor, tokens: Tensor, flags: Tensor
    ) -> None:
        """Write the argmax and the flag of every position.

        hidden [B, K, D]: query rows; base [B, K, V]: base logits, when they are stored
        tokens [B, K] int64; flags [B, K] uint8
        """
        if self.fits(head, tokens):
            rows, weight = factors(head, hidden)
            self.kernels.largest_of_product(rows, weight, self.slots.of(tokens), tokens, flags)
        else:
            self.logits(head, hidden, base)
            self.choice(base, None, None, None, tokens, flags)


class SplitAccept:
    """The greedy accept of `acceptance.accept_greedy`, its argmax in parts."""

    def __init__(self) -> None:
        from .kernels import acceptance, chain

        self.accept = acceptance.accept_greedy
        self.slots = chain.Slots()

    def __call__(
        self,
        candidates: Tensor,
        target_logits: Tensor,
        verify_len: Tensor,
        prefix: Tensor,
        out: Commit,
    ) -> None:
        """Write what every request commits; arguments as in `acceptance.accept_greedy`."""
        target = target_logits.view(*candidates.shape, -1)
        written = [getattr(out, field.name) for field in fields(Commit)]
        lengths = (verify_len, prefix)
        self.accept(candidates, target, lengths, self.slots.of(candidates), written)


class SampledAccept:
    """An accept of sampled rows, `acceptance.accept_chain` or `accept_block`, in three launches.

    rule  'chain' or 'block'
    """

    def __init__(self, rule: str) -> None:
        from .kernels import rejection

        self.accept = rejection.accept_sampled
        self.block = rule == "block"

    def __call__(
        self, asked: Asked, target: Tensor, claimed: Tensor, coins: Tensor, out: Commit
    ) -> None:
        """Write what every request commits; arguments as in `acceptance.accept_chain`."""
        written = [getattr(out, field.name) for field in fields(Commit)]
        parts = (asked.candidates, asked.verify_len, asked.prefix)
        self.accept(parts, (target, claimed), coins.contiguous(), written, block=self.block)
