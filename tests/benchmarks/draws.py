"""Many rows of few ids on a GPU: tokens a second of a list of configurations of the step.

    python -m tests.benchmarks.draws [--rows 262144] [--vocabulary 16 64 256]

Each is timed without counting and with it. No time is asserted; every configuration has to draw the
tokens of the first one.
"""

import argparse
from dataclasses import replace
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from impl.kernels.chain import Chain, Config, Slots, config_for, launch
from impl.noise import CounterNoise

from .clock import CudaClock
from .counting import DRAFTS, RANK, count
from .problem import SEED, Case, problem_for
from .variant import fold


def chain_for(case: Case, device: torch.device) -> Chain:
    """The block of a case, all of it sampled and kept."""
    problem = problem_for(case, device)
    noise = CounterNoise.seeded(case.vocabulary, SEED, device)
    tokens = torch.full((case.rows, case.drafts), -1, device=device)
    return Chain(
        w1=problem.w1,
        w2=problem.w2,
        base=problem.base,
        kept=torch.empty_like(problem.base),
        step_dtype=problem.base.dtype,
        anchor=problem.anchor,
        temperature=problem.temperature,
        greedy=problem.greedy,
        tokens=tokens,
        flags=torch.empty_like(tokens, dtype=torch.uint8),
        noise=(noise.seed_key, noise.block),
        drawn=True,
    )


def candidates(chain: Chain) -> list[Config]:
    """The config that a batch takes, and its neighbours."""
    taken = config_for(len(chain.tokens), chain.w2, drawn=chain.drawn)
    wides = {taken.wide, min(2 * taken.wide, 64)}
    found = [
        replace(taken, wide=wide, warps=warps, rows=rows)
        for wide in sorted(wides)
        for warps in (1, 2, 4, 8)
        for rows in (16, 32, 64)
    ]
    return [taken, *(each for each in found if each != taken)]


def measured(chain: Chain, config: Config, clock: CudaClock) -> tuple[float, float]:
    """Microseconds of a block in a graph, without counting and with it."""
    slots = Slots().of(chain.tokens)
    counts = chain.tokens.new_zeros(chain.base.shape[1:])
    block = partial(launch, chain, slots, config)
    block()

    def both() -> None:
        block()
        count(chain.tokens, counts)

    device = chain.tokens.device
    return clock.hot(fold(block, device)), clock.hot(fold(both, device))


def main() -> None:
    """Compare tokens, time every configuration and print them, fastest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2**18)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[16, 64, 256])
    chosen = parser.parse_args()
    clock, device = CudaClock(), torch.device("cuda")
    table = Table("V", "tile", "warps", "rows", "taken", "block us", "counted us", "G tokens/s")
    for vocabulary in chosen.vocabulary:
        case = Case(vocabulary, chosen.rows, DRAFTS, "sampled", rank=RANK)
        chain = chain_for(case, device)
        assert chain.noise is not None
        lines, wanted = [], None
        for nth, config in enumerate(candidates(chain)):
            chain.noise[1].zero_()
            launch(chain, Slots().of(chain.tokens), config)
            wanted = chain.tokens.clone() if wanted is None else wanted
            if not torch.equal(wanted, chain.tokens):
                raise SystemExit(f"V {vocabulary}: {config} draws other tokens")
            lines.append((*measured(chain, config, clock), config, "taken" if nth == 0 else ""))
        for block, counted, config, mark in sorted(lines, key=lambda line: line[1])[:8]:
            rate = case.rows * case.drafts / counted / 1e3
            size = [str(value) for value in (vocabulary, config.wide, config.warps, config.rows)]
            table.add_row(*size, mark, f"{block:.1f}", f"{counted:.1f}", f"{rate:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
