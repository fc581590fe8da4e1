"""FlashInfer 0.7.4: samplers of logits and of probabilities, and its chain of speculative sampling.

factory  sampling_from_logits, behind one division by T
probs    sampling_from_probs, behind softmax
accept   sampling_from_probs, and chain_speculative_sampling, which draws its coins in the kernel

It compiles its kernels for the GPU that is there. Greedy rows are torch's argmax. Each sampler is
given a generator of its own, from which it takes seed and offset on the host.
"""

from collections.abc import Mapping
from functools import cache
from types import ModuleType
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors
from . import alone
from .stepwise import Stepwise, hidden_coins, laid_out, served

SAMPLING = "flashinfer.sampling"
GENUINE = (
    SAMPLING,
    "flashinfer.jit._cuda_architecture",
    "flashinfer.jit.core",
    "flashinfer.jit.cpp_ext",
    "flashinfer.jit.env",
    "flashinfer.jit.sampling",
    "flashinfer.jit.utils",
    "flashinfer.compilation_context",
    "flashinfer.utils",
    "flashinfer.version",
    "flashinfer._build_meta",
)


def untraced(function: Any = None, **_: Any) -> Any:
    """A decorator that logs nothing."""
    return (lambda given: given) if function is None else function


def unregistered(*_: Any, **__: Any) -> Any:
    """A decorator that registers no operator."""
    return lambda given: given


GIVEN: dict[str, dict[str, Any]] = {"flashinfer.api_logging": {"flashinfer_api": untraced}}


@cache
def modules() -> dict[str, ModuleType]:
    """The module under test; NotImplementedError says why there is none."""
    if not alone.present("tvm_ffi"):
        raise NotImplementedError("flashinfer loads what it compiles by tvm_ffi, not installed")
    return alone.load("flashinfer", (SAMPLING,), GENUINE, GIVEN, ("pynvml",))


class FromLogits(Stepwise):
    """sampling_from_logits."""

    name = "FlashInfer 0.7.4 sampling_from_logits"

    def pick(
        self, logits: torch.Tensor, heat: torch.Tensor, greedy: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Sampled rows by the library; rows without a law, and greedy ones, by argmax."""
        del step
        plain = greedy | ~logits.amax(-1).isfinite()
        held = torch.where(plain[:, None], 0.0, logits.float())
        drawn = self.drawn(held / heat[:, None])
        return torch.where(plain, logits.argmax(-1), drawn.long())

    def drawn(self, scaled: torch.Tensor) -> torch.Tensor:
        """One id a row from logits / T [B, V]."""
        picked: torch.Tensor = modules()[SAMPLING].sampling_from_logits(
            scaled, generator=self.generator
        )
        return picked


class FromProbs(FromLogits):
    """sampling_from_probs."""

    name = "FlashInfer 0.7.4 sampling_from_probs"

    def drawn(self, scaled: torch.Tensor) -> torch.Tensor:
        """One id a row from the softmax."""
        law = torch.softmax(scaled, -1)
        picked: torch.Tensor = modules()[SAMPLING].sampling_from_probs(
            law, generator=self.generator
        )
        return picked


class Accepting(FromProbs):
    """sampling_from_probs, and chain_speculative_sampling."""

    name = "FlashInfer 0.7.4 sampling_from_probs, chain_speculative_sampling"
    accepts = True

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """All drafts are verified; a shorter length is cut here, after the accepted draft."""
        p, q = self.laws(target)
        tokens = self.outputs["tokens"]
        out, _, emitted = modules()[SAMPLING].chain_speculative_sampling(
            q, tokens.int(), p, generator=self.generator
        )
        accepted = emitted.long()
        cut = torch.minimum(accepted, (target["verify_len"] - 1).clamp(min=0))
        last = out.long().gather(1, cut[:, None])[:, 0]
        laid = laid_out(cut, last, accepted - cut, tokens, target)
        return laid | {"coins": hidden_coins(tokens)}


def fits(setting: Setting) -> None:
    """NotImplementedError without a GPU or without the library."""
    served(setting, "flashinfer")
    if setting["device"] == "cpu":
        raise NotImplementedError("flashinfer runs on a GPU alone")
    modules()


def factory(setting: Setting) -> FromLogits:
    """sampling_from_logits."""
    fits(setting)
    return FromLogits(setting)


def probs(setting: Setting) -> FromProbs:
    """sampling_from_probs."""
    fits(setting)
    return FromProbs(setting)


def accept(setting: Setting) -> Accepting:
    """chain_speculative_sampling behind sampling_from_probs."""
    fits(setting)
    return Accepting(setting)
