"""Chains beside ours: torch as one would write it, the same compiled, and FlashInfer's sampler.

Each takes W1, W2, base logits and temperatures of the problem, keeps its step logits when the batch
samples, and draws noise of its own.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from oracle.subjects import alone
from oracle.subjects import flashinfer as shipped

from .problem import SEED, Problem
from .variant import Variant, fold

# (base, previous, w1, w2, temperature, greedy, noise) -> tokens, step logits
Pick = Callable[..., tuple[Tensor, Tensor]]


class AbsentError(RuntimeError):
    """A peer is not here, and why."""


def corrected(base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Base logits with the bias of the token before, in the dtype of both."""
    return base + functional.linear(functional.embedding(previous, w1), w2)


def pick_greedy(base: Tensor, previous: Tensor, w1: Tensor, w2: Tensor) -> tuple[Tensor, Tensor]:
    """The argmax of one step."""
    logits = corrected(base, previous, w1, w2)
    return torch.argmax(logits, -1), logits


def pick_sampled(
    base: Tensor,
    previous: Tensor,
    w1: Tensor,
    w2: Tensor,
    temperature: Tensor,
    greedy: Tensor,
    noise: Tensor,
) -> tuple[Tensor, Tensor]:
    """One step by the exponential race; greedy rows take the argmax."""
    logits = corrected(base, previous, w1, w2)
    law = torch.softmax(logits.float() / temperature[:, None], -1)
    raced = torch.argmax(law / noise, -1)
    return torch.where(greedy, torch.argmax(logits, -1), raced), logits


class TorchChain:
    """K steps of a pick, with an exponential buffer that is redrawn in every step."""

    def __init__(self, problem: Problem, greedy: Pick, sampled: Pick) -> None:
        self.problem, self.greedy, self.sampled = problem, greedy, sampled
        case, device = problem.case, problem.device
        self.generator = torch.Generator(device)
        self.generator.manual_seed(SEED)
        self.tokens = torch.zeros(case.rows, case.drafts, dtype=torch.int64, device=device)
        if case.samples:
            self.kept = torch.empty_like(problem.base)
            self.noise = torch.empty(case.rows, case.vocabulary, device=device)

    def __call__(self) -> None:
        """Draft one block."""
        asked = self.problem
        previous = asked.anchor
        for step in range(asked.case.drafts):
            given = (asked.base[:, step], previous, asked.w1, asked.w2)
            if asked.case.samples:
                self.noise.exponential_(generator=self.generator)
                drawing = (asked.temperature, asked.greedy, self.noise)
                previous, logits = self.sampled(*given, *drawing)
                self.kept[:, step].copy_(logits)
            else:
                previous, _ = self.greedy(*given)
            self.tokens[:, step].copy_(previous)


def plain(problem: Problem) -> list[Variant]:
    """Plain torch, eager and in a graph."""
    chain = TorchChain(problem, pick_greedy, pick_sampled)
    replay = fold(chain, problem.device, (chain.generator,))
    own = (chain.generator,)
    return [
        Variant("torch, eager", chain, chain.tokens, "own"),
        Variant("torch, in a graph", replay, chain.tokens, "own", loose=chain, generators=own),
    ]


def compiled(problem: Problem) -> list[Variant]:
    """The step of plain torch by torch.compile, in a graph; the noise is drawn outside of it."""
    torch._dynamo.reset()
    make = partial(torch.compile, fullgraph=True, dynamic=False)
    chain = TorchChain(problem, make(pick_greedy), make(pick_sampled))
    replay = fold(chain, problem.device, (chain.generator,))
    return [Variant("torch.compile, in a graph", replay, chain.tokens, "own", loose=chain)]


def flashinfer_sampler() -> Callable[..., Tensor]:
    """sampling_from_logits, installed or unpacked. AbsentError: it cannot be loaded here."""
    try:
        sampling = shipped.modules()[shipped.SAMPLING]
    except (ImportError, NotImplementedError) as error:
        raise AbsentError(str(error)) from error
    draw: Callable[..., Tensor] = sampling.sampling_from_logits
    return draw


def flashinfer_chain(problem: Problem) -> list[Variant]:
    """FlashInfer's sampler of logits in a graph; its argmax rows by torch.

    Seed and offset are tensors, as it asks for under graphs, and each step takes numbers of its
    own. AbsentError: it cannot be loaded here.
    """
    if not problem.case.samples:
        raise AbsentError("flashinfer has no argmax of its own: see plain torch")
    chain = SeededChain(problem, flashinfer_sampler())
    replay = fold(chain, problem.device)
    name = f"FlashInfer {alone.SHIPPED['flashinfer'].version}"
    restart = chain.offset.zero_
    return [
        Variant(f"{name}, eager", chain, chain.tokens, "own", restart),
        Variant(f"{name}, in a graph", replay, chain.tokens, "own", restart, loose=chain),
    ]


class SeededChain:
    """K steps of a sampler that is given seed and offset on the device."""

    def __init__(self, problem: Problem, draw: Callable[..., Tensor]) -> None:
        self.problem, self.draw = problem, draw
        case, device = problem.case, problem.device
        self.seed = torch.full((1,), SEED, dtype=torch.int64, device=device)
        self.offset = torch.zeros(1, dtype=torch.int64, device=device)
        self.tokens = torch.zeros(case.rows, case.drafts, dtype=torch.int64, device=device)
        self.kept = torch.empty_like(problem.base)

    def __call__(self) -> None:
        """Draft one block."""
        asked = self.problem
        previous = asked.anchor
        for step in range(asked.case.drafts):
            logits = corrected(asked.base[:, step], previous, asked.w1, asked.w2)
            heated = logits.float() / asked.temperature[:, None]
            drawn = self.draw(heated, seed=self.seed, offset=self.offset).long()
            self.offset.add_(asked.case.rows * asked.case.vocabulary)
            previous = torch.where(asked.greedy, torch.argmax(logits, -1), drawn)
            self.kept[:, step].copy_(logits)
            self.tokens[:, step].copy_(previous)
