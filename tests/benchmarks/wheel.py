"""SGLang's two step functions out of its unpacked wheel, driven step by step in one graph.

DRAFTPROOF_SGLANG names the folder that holds the package `sglang` of the version below. Only the
modules of the two steps are imported; packages around them are bare, so that none of their own
imports runs. Embedding and product around a step are torch's.
"""

import importlib
import importlib.util
import os
import sys
import types
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from .clock import Run
from .peers import AbsentError
from .problem import SEED, Problem
from .variant import Variant, fold

VARIABLE, VERSION = "DRAFTPROOF_SGLANG", "0.5.23"
KERNELS = "sglang.kernels.ops.speculative.dspark"


def folder() -> Path:
    """The folder of the unpacked wheel. AbsentError: none, or of another version."""
    found = os.environ.get(VARIABLE)  # noqa: TID251  (where a peer lies is a matter of the machine)
    if not found:
        raise AbsentError(f"{VARIABLE} names no unpacked wheel of SGLang {VERSION}")
    if not (Path(found) / f"sglang-{VERSION}.dist-info").is_dir():
        raise AbsentError(f"{VARIABLE} names a folder without SGLang {VERSION}")
    if "triton" not in sys.modules and importlib.util.find_spec("triton") is None:
        raise AbsentError("triton is not installed, and SGLang's steps are written in it")
    return Path(found)


def steps() -> tuple[Any, Any]:
    """MarkovSampleStep and MarkovGreedyStep. AbsentError: as `folder`."""
    root = folder()
    package = ""
    for part in KERNELS.split("."):
        package = f"{package}.{part}".removeprefix(".")
        _bare(package, root)
    _bare("sglang.srt", root)
    sys.modules.setdefault("sglang.srt.utils", _module("sglang.srt.utils", is_npu=lambda: False))
    if "msgspec" not in sys.modules and importlib.util.find_spec("msgspec") is None:
        # One record of a part that is not used here derives from it.
        sys.modules.setdefault("msgspec", _module("msgspec", Struct=object))
    sampling = importlib.import_module(f"{KERNELS}.markov_sample")
    greedy = importlib.import_module(f"{KERNELS}.dspark_draft_model")
    return sampling.MarkovSampleStep, greedy.MarkovGreedyStep


def _bare(name: str, root: Path) -> None:
    if name not in sys.modules:
        made = _module(name)
        made.__path__ = [str(root.joinpath(*name.split(".")))]
        sys.modules[name] = made


def _module(name: str, **held: object) -> types.ModuleType:
    made = types.ModuleType(name)
    # A module without a spec makes find_spec raise.
    made.__spec__ = importlib.util.spec_from_loader(name, loader=None)
    made.__dict__.update(held)
    return made


class Chain:
    """K steps; a batch of one that only takes argmaxes uses the greedy step."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        case, device = problem.case, problem.device
        self.sample_step, self.greedy_step = steps()
        self.offset = torch.zeros(1, dtype=torch.int64, device=device)
        self.heat = problem.temperature.masked_fill(problem.greedy, 0.0)
        self.tokens = torch.zeros(case.rows, case.drafts, dtype=torch.int64, device=device)
        self.kept = torch.empty_like(problem.base) if case.samples else None

    def __call__(self) -> None:
        """Draft one block."""
        previous, picked = self.problem.anchor, []
        for step in range(self.problem.case.drafts):
            previous = self._step(step, functional.embedding(previous, self.problem.w1))
            picked.append(previous)
        torch.stack(picked, 1, out=self.tokens)
        if self.problem.case.samples:
            self.offset.add_(1)

    def _step(self, step: int, embedded: torch.Tensor) -> torch.Tensor:
        case, base = self.problem.case, self.problem.base[:, step]
        if case.rows == 1 and not case.samples:
            return self.greedy_step.execute(
                base_logits=base, prev_embeds=embedded, w2_weight=self.problem.w2
            )
        return self.sample_step.execute(
            base_logits=base,
            bias=functional.linear(embedded, self.problem.w2),
            temperatures=self.heat,
            key=SEED,
            offset=self.offset,
            step=step,
            step_dtype=self.problem.base.dtype,
            logits_out=None if self.kept is None else self.kept[:, step],
            has_sampled_rows=None if case.samples else False,
        )


def sglang_chain(problem: Problem) -> list[Variant]:
    """SGLang's chain, eager and in a graph. AbsentError: as `folder`."""
    chain = Chain(problem)
    restart: Run = chain.offset.zero_
    replay = fold(chain, problem.device)
    name = f"SGLang {VERSION}"
    return [
        Variant(f"{name}, eager", chain, chain.tokens, "counter", restart),
        Variant(f"{name}, in a graph", replay, chain.tokens, "counter", restart, loose=chain),
    ]
