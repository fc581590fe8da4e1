"""The launches of a block of drafts: what is compiled, how wide, and the slots between steps."""

from dataclasses import dataclass, replace
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.interpreter import InterpretedFunction

from .order import finish_kernel
from .step import step_kernel

# Slots a row and step: the winning key, and the largest logit whose key left float32.
SLOTS = 2
EMPTY_SLOT = -(2**63)
FINISH_WIDE = 256
INTERPRETED = isinstance(step_kernel, InterpretedFunction)
INTERPRETED_PROGRAMS = 2
SHARED_BYTES = 200 * 1024
ROWS_MAX, RANK_MAX = 64, 1024
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


@dataclass(frozen=True)
class Config:
    """How a step is compiled and launched; no field changes a bit of what it computes.

    wide      ids of a tile
    warps     of a program
    stages    tiles of w2 in flight
    programs  on one multiprocessor
    prune     the logarithms of noise are taken only of what may still win, where there is more than
              one turn: in the first, nothing stands yet
    rows      of a product at most: 8, 16, 32 or 64
    registers of a thread at most; 0 leaves it to the compiler
    early     the next tiles are asked for before the arithmetic of this one
    sort      rows that draw lie together in a program, so that warps of the others draw no noise
    """

    wide: int
    warps: int
    stages: int
    programs: int
    prune: bool = True
    rows: int = 64
    registers: int = 0
    early: bool = True
    sort: bool = False


# rows of a program -> config, where all rows are greedy
CONFIGS = {
    16: Config(64, 4, 3, 2, early=False),
    32: Config(64, 8, 3, 1, early=False),
    64: Config(64, 8, 4, 1, early=False),
}
# The same where rows are sampled: noise takes more threads, and goes on while tiles are awaited.
SAMPLED_CONFIGS = {
    8: Config(64, 4, 3, 3, rows=8),
    16: Config(64, 4, 3, 2, early=False),
    32: Config(64, 8, 2, 2),
    64: Config(128, 16, 2, 1),
}


@dataclass(frozen=True)
class Chain:
    """The tensors of a block; all contiguous in their last dimension.

    w1           [>= V, R] float
    w2           [V, R] float16, bfloat16 or float32
    base         [B, K, V] float: base logits
    kept         [B, K, V] step logits to write, or None
    step_dtype   of the step logits
    anchor       [B] int64
    temperature  [B] float32
    greedy       [B] bool
    tokens       [B, K] int64, flags [B, K] uint8: written
    noise        (seed key [2] int64, block [1] int64), or None when nothing is drawn or counted
    drawn        rows that are not greedy are sampled; False makes all greedy
    """

    w1: Tensor
    w2: Tensor
    base: Tensor
    kept: Tensor | None
    step_dtype: torch.dtype
    anchor: Tensor
    temperature: Tensor
    greedy: Tensor
    tokens: Tensor
    flags: Tensor
    noise: tuple[Tensor, Tensor] | None
    drawn: bool


def config_for(rows: int, weights: Tensor, *, drawn: bool) -> Config:
    """Return the config of a batch: by its rows, and narrower where tiles would not fit or fill.

    weights [V, R]: w2
    drawn   rows that are not greedy are sampled
    """
    configs = SAMPLED_CONFIGS if drawn else CONFIGS
    found = configs[next(most for most in configs if rows <= most or most == ROWS_MAX)]
    line = padded_rank(weights.shape[1]) * weights.element_size()
    room = SHARED_BYTES - padded_rows(rows, found.rows) * line
    wide, warps = found.wide, found.warps
    while wide > 16 and wide * line > room:
        wide //= 2
    # A thread keeps as many elements as of a wide tile: what is done once a thread outweighs few.
    while wide > 16 and wide >= 2 * weights.shape[0]:
        wide, warps = wide // 2, max(1, warps // 2)
    stages = max(1, min(found.stages, room // (wide * line)))
    return replace(found, wide=wide, warps=warps, stages=stages)


def power_of_two(size: int) -> int:
    """Return the least power of two that is not below a size."""
    return 1 << (size - 1).bit_length()


def padded_rows(rows: int, most: int = ROWS_MAX) -> int:
    """Return the rows of one program: a power of two from 16 on, but at most `most`."""
    return min(max(16, power_of_two(rows)), most)


def padded_rank(rank: int) -> int:
    """Return the depth of the product: a power of two, at least 16."""
    return max(16, power_of_two(rank))


@cache
def multiprocessors(device: torch.device) -> int:
    """Return how many multiprocessors a device has; a small number in the interpreter."""
    if device.type != "cuda":
        return INTERPRETED_PROGRAMS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class Slots:
    """The slots of the blocks, one tensor for each number of rows; empty between blocks.

    They are made by the first block of a size, which a runner runs before it records.
    """

    def __init__(self) -> None:
        self.held: dict[tuple[int, int, torch.device], Tensor] = {}

    def of(self, tokens: Tensor) -> Tensor:
        """Return slots [2, K, B] int64 for drafts [B, K].

        RuntimeError: a recording would be the first to use them.
        """
        rows, drafts = tokens.shape
        found = self.held.get((rows, drafts, tokens.device))
        if found is None:
            if tokens.is_cuda and torch.cuda.is_current_stream_capturing():
                raise RuntimeError(
                    f"a block of {rows} rows is recorded before it ran; it should run once before"
                )
            shape = (SLOTS, drafts, rows)
            found = torch.full(shape, EMPTY_SLOT, dtype=torch.int64, device=tokens.device)
            self.held[rows, drafts, tokens.device] = found
        return found


def launch(chain: Chain, slots: Tensor, config: Config | None = None) -> None:
    """Draft a block: K launches, and one that writes tokens and flags and counts the block.

    slots   [2, K, B] int64, empty; empty again afterwards
    config  None takes the one of the batch
    """
    rows, drafts, vocabulary = chain.base.shape
    shape = config or config_for(rows, chain.w2, drawn=chain.drawn)
    wide_rows, rank = padded_rows(rows, shape.rows), chain.w2.shape[1]
    tiles = triton.cdiv(vocabulary, shape.wide)
    groups = triton.cdiv(rows, wide_rows)
    room = multiprocessors(chain.w2.device) * shape.programs
    parts = min(tiles, max(1, room // groups))
    turns = triton.cdiv(tiles, parts)
    kept = chain.base if chain.kept is None else chain.kept
    # Nothing reads the stand-ins of noise that is not there.
    seed_key, block = chain.noise or (chain.anchor, chain.anchor)
    tensors = (chain.w1, chain.w2, chain.base, kept, slots, chain.anchor)
    parameters = (chain.temperature, chain.greedy, seed_key, block)
    strided = (chain.w1, chain.base, kept)
    strides = [chain.anchor.stride(0)]
    strides += [stride for tensor in strided for stride in tensor.stride()[:-1]]
    constants = {
        "WIDE": shape.wide,
        "ROWS": wide_rows,
        "W2_ROW": chain.w2.stride(0),
        "RANK": rank,
        "DEPTH": padded_rank(rank),
        "EVEN": vocabulary % shape.wide == 0,
        "TURNS": turns,
        "STAGES": shape.stages,
        "EARLY": shape.early,
        "DRAWN": chain.drawn,
        "SORTED": shape.sort,
        "PRUNE": shape.prune and turns > 1,
        "KEPT": chain.kept is not None,
        "STEP_TYPE": TYPES[chain.step_dtype],
        "INTERPRETED": INTERPRETED,
    }
    options = {"num_warps": shape.warps}
    if shape.registers:
        options["maxnreg"] = shape.registers
    for step in range(drafts):
        sizes = (vocabulary, rows, drafts, step, tiles)
        arguments = (*tensors, *parameters, *strides, *sizes)
        step_kernel[(parts, groups)](*arguments, **constants, **options)
    finish(chain.tokens, chain.flags, slots, None if chain.noise is None else block)


def finish(tokens: Tensor, flags: Tensor, slots: Tensor, block: Tensor | None) -> None:
    """Write tokens and flags [B, K] of slots, empty them, and count a block that has a counter."""
    rows, drafts = tokens.shape
    finish_kernel[(triton.cdiv(rows * drafts, FINISH_WIDE),)](
        slots,
        tokens,
        flags,
        slots if block is None else block,
        tokens.stride(0),
        flags.stride(0),
        rows,
        drafts,
        COUNTS=block is not None,
        WIDE=FINISH_WIDE,
    )
