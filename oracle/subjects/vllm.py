"""vLLM 0.33.0, out of its wheel: the Triton Gumbel sampler and the rejection sampler.

factory  gumbel_sample as the draft loop calls it: one call a step, kept logits before temperature,
         a seed a request, positions that go on. Its noise is a hash of its own and is not shown.
accept   the same, and rejection_sample on the drafted block. The token after a rejection is drawn
         by a race within it, so that coins say nothing of it: they are not shown. The bonus token
         of a whole block is drawn here, which vLLM leaves to its sampler.
"""

from collections.abc import Mapping
from functools import cache
from inspect import signature
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from ..judge.protocol import Setting, Tensors
from . import alone
from .stepwise import Stepwise, hidden_coins, laid_out, served

GUMBEL = "vllm.v1.worker.gpu.sample.gumbel"
REJECTION = "vllm.v1.sample.rejection_sampler"
GENUINE = (GUMBEL, REJECTION)


def launcher(*, kernel: Any, **_: Any) -> Any:
    """Stands for the dispatcher that warms kernels up: it launches with the grid it is told.

    An argument of the kernel is that of the dispatching function, without the ending _ptr.
    """

    def decorate(dispatch: Any) -> Any:
        def launch(*given: Any, **named: Any) -> None:
            grid, constants = dispatch(*given, **named)
            held = {**signature(dispatch).bind(*given, **named).arguments, **constants}
            values = {
                name: held[name if name in held else name.removesuffix("_ptr")]
                for name in kernel.arg_names
            }
            kernel[grid](**values)

        return launch

    return decorate


@cache
def modules() -> dict[str, ModuleType]:
    """The modules under test; NotImplementedError says why there are none."""
    if not alone.present("triton"):
        raise NotImplementedError("triton is not installed, and both samplers are kernels")
    import triton
    from triton import language

    held: dict[str, dict[str, Any]] = {"vllm.triton_utils": {"triton": triton, "tl": language}}
    helper = "vllm.model_executor.warmup.jit_warmup_triton_helper"
    held[helper] = {"triton_kernel_dispatcher_with_warmup": launcher}
    return alone.load("vllm", GENUINE, GENUINE, held)


class Gumbel(Stepwise):
    """gumbel_sample, one call a step."""

    name = "vLLM 0.33.0 gumbel_sample"

    def __init__(self, setting: Setting) -> None:
        """A seed a request, as a server gives one to each that has none."""
        super().__init__(setting)
        rows, device = setting["buckets"][-1], setting["device"]
        self.seeds = torch.randint(2**62, (rows,), generator=self.generator, device=device)
        shape = (rows, setting["drafts"], setting["vocabulary"])
        dtype = getattr(torch, setting["step_dtype"])
        self.cache = torch.zeros(shape, dtype=dtype, device=device)

    def pick(
        self, logits: torch.Tensor, heat: torch.Tensor, greedy: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Temperature 0 marks a greedy row; positions grow from block to block."""
        rows, slots = len(logits), self.setting["drafts"] + 1
        device = logits.device
        picked: torch.Tensor = modules()[GUMBEL].gumbel_sample(
            logits,
            torch.arange(rows, dtype=torch.int32, device=device),
            torch.where(greedy, 0.0, heat),
            self.seeds,
            torch.full((rows,), self.blocks * slots + step, device=device),
            apply_temperature=True,
            is_drafting=True,
            logits_cache=self.cache,
            logits_cache_col=torch.tensor(step, device=device),
        )
        return picked

    def replay(self) -> None:
        """One block; what is exported are the logits that the kernel kept."""
        super().replay()
        self.outputs["step_logits"] = self.cache[: len(self.outputs["tokens"])].clone()


class Accepting(Gumbel):
    """The Gumbel sampler, and rejection_sample."""

    name = "vLLM 0.33.0 gumbel_sample, rejection_sample"
    accepts = True

    def accept(self, target: Mapping[str, Any]) -> Tensors:
        """Requests verify as many drafts as their length allows; the sum is one flat batch."""
        p, q = self.laws(target)
        tokens, greedy = self.outputs["tokens"], self.outputs["greedy"]
        verified = (target["verify_len"] - 1).clamp(min=0)
        drafts = tokens.shape[1]
        takes = torch.arange(drafts, device=tokens.device) < verified[:, None]
        after = torch.arange(len(tokens), device=tokens.device)
        bonus = torch.where(greedy, p[after, verified].argmax(-1), self.raced(p[after, verified]))
        metadata = SimpleNamespace(
            all_greedy=False,
            all_random=False,
            temperature=torch.where(greedy, 0.0, self.outputs["temperature"]),
            generators={},
        )
        out = (
            modules()[REJECTION]
            .rejection_sample(
                tokens[takes].contiguous(),
                verified.tolist(),
                drafts,
                verified.cumsum(0).to(torch.int32),
                q[takes].contiguous(),
                p[:, :-1][takes].log(),
                bonus.to(torch.int32)[:, None].contiguous(),
                metadata,
            )
            .long()
        )
        length = (out >= 0).sum(1)
        cut = length - 1
        last = out.gather(1, cut.clamp(min=0)[:, None])[:, 0]
        laid = laid_out(cut, last, torch.zeros_like(cut), tokens, target)
        return laid | {"coins": hidden_coins(tokens)}


def factory(setting: Setting) -> Gumbel:
    """The Gumbel sampler; on a CPU in Triton's interpreter."""
    served(setting, "gumbel_sample")
    alone.launchable(modules()[GUMBEL]._gumbel_sample_kernel, setting["device"])
    return Gumbel(setting)


def accept(setting: Setting) -> Accepting:
    """The Gumbel sampler with the rejection sampler."""
    served(setting, "gumbel_sample")
    alone.launchable(modules()[GUMBEL]._gumbel_sample_kernel, setting["device"])
    return Accepting(setting)
