"""Every kernel once, at small sizes: what a sanitizer watches.

    python -m tests.kernels.launches [--beyond]

It prints the kernels that ran, and fails when one of them did not. `--beyond` adds a kernel that
writes behind its tensor, which a sanitizer has to see.
"""

import importlib
import pkgutil
import sys
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

import impl.kernels
from impl.acceptance import RULES, Asked, Commit, accept_greedy
from impl.fused import DrawnNoise, SampledAccept, SplitAccept, SplitChoice
from impl.kernels.chain import INTERPRETED, Config, Slots, launch
from impl.kernels.head import largest_of_product
from impl.noise import CounterNoise

from .chains import DEVICE, NARROW, chain

BF16, FULL = torch.bfloat16, torch.float32
LAUNCHED = "launched:"
ROWS, DRAFTS, WIDE, HIDDEN = 2, 1, 20, 24


def kernels() -> dict[str, Any]:
    """Everything in impl/kernels that is launched, by name."""
    found: dict[str, Any] = {}
    for module in pkgutil.iter_modules(impl.kernels.__path__):
        held = vars(importlib.import_module(f"impl.kernels.{module.name}"))
        found |= {name: value for name, value in held.items() if name.endswith("_kernel")}
    return found


def drafted() -> None:
    """Blocks of sampled and greedy rows, of narrow and wide tiles, pruned and not."""
    configs = (NARROW, replace(NARROW, prune=False), Config(32, 4, 2, 1, rows=16, early=False))
    for config in configs[: 1 if INTERPRETED else 3]:
        given = chain(ROWS, WIDE, 5, BF16, FULL, DRAFTS)
        launch(given, Slots().of(given.tokens), config)
        launch(replace(given, kept=None, drawn=False), Slots().of(given.tokens), config)


def noised() -> None:
    """Noise in memory, of a row that ends inside a group and a tile."""
    DrawnNoise()(CounterNoise.seeded(WIDE + 1, 3, DEVICE), ROWS, 0, None)


def chosen() -> None:
    """Argmax of logits that are there, and of a product."""
    drawn = torch.Generator().manual_seed(1)
    hidden = torch.randn((ROWS * DRAFTS, HIDDEN), generator=drawn).to(DEVICE, BF16)
    weight = torch.randn((WIDE, HIDDEN), generator=drawn).to(DEVICE, BF16)
    tokens = torch.zeros((ROWS, DRAFTS), dtype=torch.int64, device=DEVICE)
    flags = torch.zeros_like(tokens, dtype=torch.uint8)
    logits = (hidden @ weight.t()).view(ROWS, DRAFTS, WIDE)
    SplitChoice()(logits, None, None, None, tokens, flags)
    largest_of_product(hidden, weight, Slots().of(tokens), tokens, flags)


def accepted() -> None:
    """Accepts of greedy and of sampled rows."""
    drawn = torch.Generator().manual_seed(2)
    target = torch.randn((ROWS, DRAFTS + 1, WIDE), generator=drawn).to(DEVICE)
    claim = torch.randn((ROWS, DRAFTS, WIDE), generator=drawn).to(DEVICE).softmax(-1)
    coins = torch.rand((ROWS, DRAFTS + 1), generator=drawn).to(DEVICE)
    candidates = torch.zeros((ROWS, DRAFTS + 1), dtype=torch.int64, device=DEVICE)
    candidates[:, 1:] = claim.argmax(-1)
    lengths = (torch.full_like(candidates[:, 0], DRAFTS + 1), candidates[:, 0].clone())
    out = Commit.empty(ROWS, DRAFTS, DEVICE)
    SplitAccept()(candidates, target.flatten(0, 1), *lengths, out)
    wanted = Commit.empty(ROWS, DRAFTS, DEVICE)
    accept_greedy(candidates, target.flatten(0, 1), *lengths, wanted)
    assert torch.equal(out.out_tokens, wanted.out_tokens)
    for rule in RULES:
        asked = Asked(candidates, *lengths)
        SampledAccept(rule)(asked, target.softmax(-1), claim, coins, out)


@triton.jit
def beyond_kernel(
    out: tl.tensor,
    size: tl.tensor,
    PLACES: tl.constexpr,
) -> None:
    """Write twice as many elements as there are."""
    place = tl.arange(0, PLACES)
    tl.store(out + place, 1.0, mask=place < 2 * size)


def everything() -> list[str]:
    """Launch all of them; return the names of those that ran. RuntimeError: one did not."""
    seen: set[str] = set()
    known = kernels()
    for name, kernel in known.items():

        def saw(*_: object, called: str = name, **__: object) -> None:
            seen.add(called)

        kernel.add_pre_run_hook(saw)
    quiet = np.errstate(all="ignore") if INTERPRETED else nullcontext()
    try:
        with quiet:
            for part in (drafted, noised, chosen, accepted):
                part()
    finally:
        for kernel in known.values():
            kernel.pre_run_hooks.pop()
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
    if seen != set(known):
        raise RuntimeError(f"{sorted(set(known) - seen)} did not run; every kernel should")
    return sorted(seen)


def main() -> None:
    """Launch them on a GPU, and say which ran."""
    if DEVICE.type != "cuda":
        raise SystemExit("no CUDA device: compiled kernels cannot run")
    names = everything()
    if "--beyond" in sys.argv:
        # An allocation of its own, whose end is the end of what may be written.
        beyond_kernel[(1,)](torch.zeros(128, device=DEVICE), 128, PLACES=256)
        torch.cuda.synchronize()
    sys.stdout.write(" ".join([LAUNCHED, *names]) + "\n")


if __name__ == "__main__":
    main()
