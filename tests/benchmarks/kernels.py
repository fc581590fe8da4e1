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
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from impl import bias, choice, noise
from impl.kernels.chain import CONFIGS, SAMPLED_CONFIGS, Chain, Config, Slots, launch, padded_rows

VOCABULARY, RANK, DRAFTS = 151_936, 256, 7
COPIED, EVICTED = 2**30, 2**29
HOT, REPLAYS, COLD = 5, 10, 15
BF16 = torch.bfloat16
MIXES = ("greedy", "half", "sampled")
# Candidates for each number of padded rows, after the one that the sampler uses: tile, warps,
# stages, programs, and what differs from the defaults of Config.
CANDIDATES: dict[int, tuple[Config, ...]] = {
    16: (
        CONFIGS[16],
        SAMPLED_CONFIGS[8],
        Config(64, 4, 3, 3, rows=8, early=False),
        Config(64, 4, 3, 2, prune=False),
        replace(SAMPLED_CONFIGS[8], sort=True),
    ),
    32: (
        CONFIGS[32],
        SAMPLED_CONFIGS[32],
        Config(64, 4, 2, 2),
        Config(64, 8, 2, 2, prune=False),
        replace(SAMPLED_CONFIGS[32], sort=True),
    ),
    64: (
        CONFIGS[64],
        SAMPLED_CONFIGS[64],
        Config(32, 4, 3, 3, early=False),
        Config(64, 8, 2, 2, rows=32),
        Config(64, 8, 3, 1, prune=False),
        replace(SAMPLED_CONFIGS[64], sort=True),
    ),
}
KEPT_BEST = 3


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


def fitting(chain: Chain, config: Config) -> bool:
    """Draft a block; say whether the config fits the device."""
    try:
        launch(chain, Slots().of(chain.tokens), config)
    except Exception as error:  # the class is the compiler's, and only kernels import it
        if type(error).__name__ != "OutOfResources":
            raise
        return False
    return True


def variant(mix: str) -> list[tuple[int, Config]]:
    """Return the batches and configs whose bits are not those of the first rows of 64."""
    whole, _ = made(64, mix, kept=True)
    launch(whole, Slots().of(whole.tokens))
    assert whole.kept is not None
    found = []
    for rows in (1, 8, 17, 64):
        part, _ = made(rows, mix, kept=True)
        assert part.kept is not None
        assert part.noise is not None
        for config in CANDIDATES[padded_rows(rows)]:
            part.kept.zero_()
            part.noise[1].zero_()
            if not fitting(part, config):
                continue
            same = torch.equal(part.tokens, whole.tokens[:rows])
            if not same or not torch.equal(part.kept, whole.kept[:rows]):
                found.append((rows, config))
    return found


def edges() -> bool:
    """Say whether rows of NaN, infinities and ties end as torch has them, in every config."""
    same = True
    for rows in (8, 32, 64):
        for config in CANDIDATES[padded_rows(rows)]:
            chain, _ = made(rows, "half", kept=True, scale=0.0)
            chain.w2.zero_()
            base, kept, high = chain.base, chain.kept, VOCABULARY - 1
            assert kept is not None
            base[2:4, :, 77_777], base[2:4, :, 99_999] = float("nan"), float("nan")
            base[4:6] = -float("inf")
            base[5, :, 88_888] = 1.0
            base[6:8, :, 5], base[6:8, :, high] = float("inf"), float("inf")
            chain.temperature[0] = 1e-5
            base[0], base[0, :, 4_444], base[0, :, high] = -3e38, -2e38, -2e38
            if not fitting(chain, config):
                continue
            wanted = choice.largest(kept.float())
            rows_known = [0, 1, 2, 3, 4, 5, 6, 7]
            same &= torch.equal(chain.tokens[rows_known], wanted[rows_known])
            flags = torch.tensor([0, 0, 1, 1, 2, 0, 0, 0], device="cuda", dtype=torch.uint8)
            same &= torch.equal(chain.flags[:8, 0], flags)
    return same


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
    if not fitting(chain, config):
        return None
    torch.cuda.synchronize()
    launch(chain, slots, config)
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
    for mix in MIXES[1:]:
        console.print(f"other bits than in a batch of 64, {mix}:", variant(mix) or "none")
    console.print("NaN, infinities and ties as torch has them:", edges())
    copy = bandwidth()
    console.print(f"copy {copy / 1e6:.2f} TB/s")
    table = Table("mix", "rows", "config", "hot us", "cold us", "floor us", "hot", "cold")
    found = []
    for mix in chosen.mixes:
        for rows in chosen.rows:
            tried = [measured(rows, mix, one, copy) for one in CANDIDATES[padded_rows(rows)]]
            ordered = sorted((row for row in tried if row), key=lambda row: row.cold)
            found += ordered
            for row in ordered[:KEPT_BEST]:
                shape = " ".join(str(value) for value in vars(row.config).values())
                times = [f"{value:.1f}" for value in (row.hot, row.cold, row.floor)]
                ratios = [f"{value / row.floor:.2f}" for value in (row.hot, row.cold)]
                table.add_row(mix, str(rows), shape, *times, *ratios)
    console.print(table)
    if chosen.out is not None:
        chosen.out.write_text(json.dumps([asdict(row) for row in found], indent=1))


if __name__ == "__main__":
    main()
