"""Small chains of draft steps, with what an argmax stumbles over, and what torch makes of them."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from impl import bias, choice, noise
from impl.kernels.chain import Chain, Config, Slots, launch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# Narrow tiles make many turns of few programs, so that bounds are read and tiles skipped.
NARROW = Config(16, 4, 2, 1)
INF, NAN = float("inf"), float("nan")
SEED, BLOCK = 2**41 + 12345, 2**33 + 5


@dataclass(frozen=True)
class Block:
    """What a block leaves: tokens, kept logits, flags."""

    tokens: torch.Tensor
    kept: torch.Tensor
    flags: torch.Tensor


def state(vocabulary: int) -> noise.CounterNoise:
    """Counter noise that has drawn more blocks than fit a word."""
    made = noise.CounterNoise.seeded(vocabulary, SEED, DEVICE)
    made.block.fill_(BLOCK)
    return made


def chain(
    rows: int,
    vocabulary: int,
    rank: int,
    dtype: torch.dtype,
    step_dtype: torch.dtype,
    drafts: int = 2,
) -> Chain:
    """Make a chain whose products are exact, every third row greedy.

    Weights are small integers and base logits multiples of a half, so every sum is exact in every
    order, and ties are common.
    """
    drawn = torch.Generator().manual_seed(vocabulary + rank)

    def whole(low: int, high: int, *size: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=drawn).to(DEVICE, dtype)

    w1, w2 = whole(-2, 3, vocabulary, rank), whole(-1, 2, vocabulary, rank)
    base = torch.stack([whole(-12, 13, drafts, vocabulary) / 2 for _ in range(rows)])
    row = torch.arange(rows, device=DEVICE)
    return Chain(
        w1=w1,
        w2=w2,
        base=base,
        kept=torch.full((rows, drafts, vocabulary), NAN, dtype=step_dtype, device=DEVICE),
        step_dtype=step_dtype,
        # A column, as the first of the input ids is.
        anchor=torch.stack([row % vocabulary, torch.full_like(row, -1)], 1)[:, 0],
        temperature=0.5 + row.float() / 8,
        greedy=row % 3 == 1,
        tokens=torch.full((rows, drafts), -1, device=DEVICE),
        flags=torch.full((rows, drafts), 9, dtype=torch.uint8, device=DEVICE),
        noise=(state(vocabulary).seed_key, state(vocabulary).block),
        drawn=True,
    )


def broken(given: Chain) -> Chain:
    """Put into rows 0 to 7 what an argmax stumbles over, into sampled and greedy rows alike."""
    base, last = given.base, given.base.shape[-1] - 1
    base[0, :, 5:] = -INF
    base[1, :, [3, 9, last]] = NAN
    base[2, :, [7, last]] = NAN
    base[3] = -INF
    base[4] = -INF
    base[5, :, [11, last]] = INF
    base[6, :, : last - 1] = -INF
    base[7] = -0.0
    return given


def torch_block(given: Chain) -> Block:
    """Draft the block with the torch arrows, one by one."""
    head, e_of = bias.MarkovHead(given.w1, given.w2), state(given.base.shape[-1])
    done = replace(given, tokens=given.tokens.clone(), flags=given.flags.clone())
    assert given.kept is not None
    kept, previous = given.kept.clone(), given.anchor
    rows = len(previous)
    for step in range(given.base.shape[1]):
        correction, _ = bias.vanilla(head, previous, None, None)
        choice.step_logits(given.base[:, step], correction, kept[:, step])
        choose = choice.choose_counter if given.drawn else choice.choose_greedy
        e = noise.counter(e_of, rows, step, None)
        columns = done.tokens[:, step], done.flags[:, step]
        choose(kept[:, step], given.temperature, given.greedy, e, *columns)
        previous = done.tokens[:, step]
    return Block(done.tokens, kept, done.flags)


def fused_block(given: Chain, config: Config | None = NARROW) -> Block:
    """Draft the block with kernels; what they were given stays as it is."""
    kept = None if given.kept is None else given.kept.clone()
    done = replace(given, kept=kept, tokens=given.tokens.clone(), flags=given.flags.clone())
    # The interpreter computes with NumPy, which warns of infinities that a device does not mind.
    with np.errstate(all="ignore"):
        launch(done, Slots().of(done.tokens), config)
    return Block(done.tokens, done.base if kept is None else kept, done.flags)


def same_bits(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Tell whether two tensors are equal, a NaN being equal to a NaN."""
    return torch.equal(one.isnan(), two.isnan()) and torch.equal(one.nan_to_num(), two.nan_to_num())
