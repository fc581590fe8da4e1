"""The fused step on a GPU: parity, one row in every batch, and time for a list of configurations.

    python -m tests.benchmarks.kernels [--rows 1 8 32 64] [--out FILE]

Every chain is a CUDA graph of seven steps. Its floor is the bytes of w2, base and kept logits over
the bandwidth of a copy measured here; the ratio to it is what a configuration is judged by. Cold
means that other memory was read before. No time is asserted; parity is.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from impl import bias, choice, noise
from impl.fused import SplitChoice
from impl.kernels.chain import CONFIGS, ROWS_MAX, Chain, Config, Slots, launch, padded_rows

VOCABULARY, RANK, DRAFTS = 151_936, 256, 7
COPIED, EVICTED = 2**30, 2**29
HOT, REPLAYS, COLD = 5, 10, 15
BF16 = torch.bfloat16
MIXES = ("greedy", "half", "sampled")
TRIED = (
    (64, 4, 2, 2),
    (64, 4, 2, 3),
    (64, 4, 3, 1),
    (64, 8, 2, 1),
    (64, 8, 2, 2),
    (64, 8, 3, 1),
    (128, 8, 2, 1),
    (64, 4, 2, 2, 32),
    (64, 8, 2, 2, 32),
)


def candidates(rows: int) -> tuple[Config, ...]:
    """Return the configs to try for a batch: the sampler's own first, each once."""
    padded = padded_rows(rows)
    tried = (CONFIGS[padded], *(Config(*numbers) for numbers in TRIED))
    # A limit on rows that the batch does not reach changes nothing.
    return tuple(dict.fromkeys(one for one in tried if one.rows == ROWS_MAX or one.rows < padded))


@dataclass(frozen=True)
class Row:
    """One measured chain."""

    mix: str
    rows: int
    config: Config
    hot: float
    cold: float
    floor: float


def made(rows: int, mix: str, *, kept: bool, scale: float = 3.0) -> tuple[Chain, bias.MarkovHead]:
    """Make the tensors of a chain; the first rows of a larger batch are those of a smaller one."""
    drawn = torch.Generator("cuda").manual_seed(5)

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=drawn, device="cuda")

    w1, w2 = (normal(VOCABULARY, RANK).mul_(RANK**-0.25).to(BF16) for _ in range(2))
    base = torch.stack([normal(DRAFTS, VOCABULARY).mul_(scale).to(BF16) for _ in range(rows)])
    row = torch.arange(rows, device="cuda")
    greedy = {"greedy": row >= 0, "half": row % 2 == 1, "sampled": row < 0}[mix]
    state = noise.CounterNoise.seeded(VOCABULARY, 2**40 + 7, torch.device("cuda"))
    chain = Chain(
        w1=w1,
        w2=w2,
        base=base,
        kept=torch.zeros_like(base) if kept else None,
        step_dtype=BF16,
        anchor=(row * 7919) % VOCABULARY,
        temperature=torch.full((rows,), 0.8, device="cuda"),
        greedy=greedy,
        tokens=torch.full((rows, DRAFTS), -1, device="cuda"),
        flags=torch.full((rows, DRAFTS), 9, dtype=torch.uint8, device="cuda"),
        noise=(state.seed_key, state.block),
        drawn=mix != "greedy",
    )
    return chain, bias.MarkovHead(w1, w2)


def parity(rows: int, mix: str, scale: float) -> tuple[int, float, float]:
    """Compare a block with the torch arrows, fed with the tokens that the kernel chose.

    Returns tokens that differ, the largest gap of keys among them, and the share of logits that
    differ by a rounding.
    """
    chain, head = made(rows, mix, kept=True, scale=scale)
    launch(chain, Slots().of(chain.tokens))
    assert chain.kept is not None
    assert chain.noise is not None
    state = noise.CounterNoise(VOCABULARY, chain.noise[0], torch.zeros_like(chain.noise[1]))
    previous, wrong, gap, other = chain.anchor, 0, 0.0, 0.0
    for step in range(DRAFTS):
        correction, _ = bias.vanilla(head, previous, None, None)
        logits = torch.empty_like(chain.kept[:, step])
        choice.step_logits(chain.base[:, step], correction, logits)
        own = chain.kept[:, step]
        other += float((logits != own).float().mean()) / DRAFTS
        tokens, flags = torch.empty_like(chain.anchor), torch.empty_like(chain.flags[:, 0])
        e = noise.counter(state, rows, step, None)
        choice.choose_counter(own, chain.temperature, chain.greedy, e, tokens, flags)
        keys = choice.counter_keys(own.float() / chain.temperature[:, None], e)
        keys = torch.where(chain.greedy[:, None], own.float(), keys)
        previous = chain.tokens[:, step]
        both = [keys.gather(1, found[:, None]) for found in (tokens, previous)]
        wrong += int((tokens != previous).sum())
        gap = max(gap, float((both[0] - both[1]).abs().max()))
        assert torch.equal(flags, chain.flags[:, step])
    assert int(chain.noise[1]) == 1
    return wrong, gap, other


def invariant(mix: str) -> bool:
    """Say whether the first rows of 64 have the same bits in every smaller batch and config."""
    whole, _ = made(64, mix, kept=True)
    launch(whole, Slots().of(whole.tokens))
    assert whole.kept is not None
    same = True
    for rows in (1, 8, 16, 17, 32, 64):
        for config in candidates(rows):
            part, _ = made(rows, mix, kept=True)
            launch(part, Slots().of(part.tokens), config)
            assert part.kept is not None
            same &= torch.equal(part.tokens, whole.tokens[:rows])
            same &= torch.equal(part.kept, whole.kept[:rows])
    return same


def argmax_of_parts(rows: int) -> bool:
    """Say whether the split argmax of a block equals the one of torch, flags included."""
    chain, _ = made(rows, "greedy", kept=False)
    tokens, flags = chain.tokens.clone(), chain.flags.clone()
    choice.choose_greedy(chain.base, None, None, None, tokens, flags)
    SplitChoice()(chain.base, None, None, None, chain.tokens, chain.flags)
    return torch.equal(tokens, chain.tokens) and torch.equal(flags, chain.flags)


def elapsed(run: Callable[[], object], times: int) -> float:
    """Return the mean microseconds of a call on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / times


def bandwidth() -> float:
    """Return the bytes a microsecond that a large copy reads and writes."""
    source = torch.zeros(COPIED, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * COPIED / min(elapsed(lambda: target.copy_(source), 5) for _ in range(5))


def measured(rows: int, mix: str, config: Config, copy: float) -> Row | None:
    """Time one chain in a graph; None for a config that does not fit the device."""
    chain, _ = made(rows, mix, kept=mix != "greedy")
    slots = Slots().of(chain.tokens)
    try:
        launch(chain, slots, config)
    except Exception as error:  # noqa: BLE001  (whatever a compiler says about too large a tile)
        Console().print(f"{config}: {type(error).__name__} {error}"[:160])
        return None
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch(chain, slots, config)
    graph.replay()
    hot = statistics.median(elapsed(graph.replay, REPLAYS) for _ in range(HOT))
    evicting = torch.zeros(EVICTED // 4, device="cuda")
    cold = []
    for _ in range(COLD):
        evicting.sum()
        cold.append(elapsed(graph.replay, 1))
    logits = 1 if mix == "greedy" else 2
    moved = 2 * VOCABULARY * RANK + 2 * rows * VOCABULARY * logits
    return Row(mix, rows, config, hot, statistics.median(cold), DRAFTS * moved / copy)


def main() -> None:
    """Check parity, time every candidate, and print the best of each batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--mixes", nargs="+", default=list(MIXES))
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    console = Console()
    for scale in (0.0, 3.0):
        for rows in chosen.rows:
            console.print("parity", scale, rows, parity(rows, "half", scale))
    console.print("same bits in every batch and config:", [invariant(mix) for mix in MIXES])
    console.print("argmax in parts:", [argmax_of_parts(rows) for rows in chosen.rows])
    copy = bandwidth()
    console.print(f"copy {copy / 1e6:.2f} TB/s")
    table = Table("mix", "rows", "config", "hot us", "cold us", "floor us", "hot", "cold")
    found = []
    for mix in chosen.mixes:
        for rows in chosen.rows:
            tried = [measured(rows, mix, one, copy) for one in candidates(rows)]
            for row in sorted((row for row in tried if row), key=lambda row: row.cold):
                found.append(row)
                shape = " ".join(str(value) for value in vars(row.config).values())
                times = [f"{value:.1f}" for value in (row.hot, row.cold, row.floor)]
                ratios = [f"{value / row.floor:.2f}" for value in (row.hot, row.cold)]
                table.add_row(mix, str(rows), shape, *times, *ratios)
    console.print(table)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([asdict(row) for row in found], indent=1))


if __name__ == "__main__":
    main()
