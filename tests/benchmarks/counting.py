"""How many tokens a second are drawn and counted on the device, inside one graph.

The rows are many and the vocabulary is small, as in a test of the law. Step 0 starts from the same
logits in every row, so that its counts have one law; a chi-square says whether they follow it.
"""

from functools import partial

import torch
from torch import Tensor

from .bench import Bench, Build
from .chains import ours
from .clock import Run
from .peers import plain
from .problem import TEMPERATURE, Case, Problem, problem_for
from .rows import Row
from .variant import Variant, fold
from .wheel import sglang_chain

SECTION = "counting"
ROWS, DRAFTS, RANK, REPLAYS = 2**18, 4, 16, 10
# A sound chi-square of some hundred degrees stays below this in all but one of 1e12 runs.
SIGMAS = 10.0


def cases(rows: int = ROWS) -> list[Case]:
    """The sizes that are looked at."""
    return [Case(wide, rows, DRAFTS, "sampled", rank=RANK) for wide in (16, 64, 256)]


def measure(bench: Bench, case: Case) -> None:
    """Every chain with a histogram behind it."""
    problem = problem_for(case, bench.device)
    problem.base.copy_(problem.base[:1].clone().expand_as(problem.base))
    problem.anchor.zero_()
    builds: dict[str, Build] = {
        "ours torch": lambda: [ours(problem, "torch", "counter")[1]],
        "ours torch race": lambda: [ours(problem, "torch", "race")[1]],
        "ours triton": lambda: [ours(problem, "triton", "counter")[1]],
        "SGLang": partial(sglang_chain, problem),
        "torch": lambda: plain(problem)[1:],
    }
    for variant in bench.built(SECTION, case, builds):
        if variant.loose is not None:
            _row(bench, problem, variant)


def _row(bench: Bench, problem: Problem, variant: Variant) -> None:
    case = problem.case
    row = Row(SECTION, variant.name, case)
    counts = torch.zeros(case.drafts, case.vocabulary, dtype=torch.int64, device=problem.device)

    def ask() -> None:
        variant.restart()
        replay = counted(variant, counts, problem.device)
        counts.zero_()
        for _ in range(REPLAYS):
            replay()
        bench.clock.wait()
        statistic, degrees = chi_square(problem, counts[0])
        row.extra |= {"chi-square": statistic, "degrees": degrees}
        limit = degrees + SIGMAS * (2 * degrees) ** 0.5
        row.parity = "yes" if statistic < limit else f"WRONG: chi-square {statistic:.0f}"
        if counts.sum(1).tolist() != [case.rows * REPLAYS] * case.drafts:
            row.parity = "WRONG: ids outside the vocabulary"
        if row.parity == "yes":
            row.hot = bench.clock.hot(replay)
            row.extra["tokens a second"] = case.rows * case.drafts / row.hot * 1e6

    bench.guarded(row, ask)
    bench.keep(row)


def counted(variant: Variant, counts: Tensor, device: torch.device) -> Run:
    """The replay of a block that adds its tokens to counts [K, V]."""
    block: Run = variant.loose

    def body() -> None:
        block()
        count(variant.tokens, counts)

    return fold(body, device, variant.generators)


def count(tokens: Tensor, counts: Tensor) -> None:
    """Add tokens [B, K] to counts [K, V] int64.

    One histogram of all steps: its bins are few enough for on-chip memory, where a scatter would
    have every token of the batch wait for the same few words.
    """
    steps, wide = counts.shape
    first = torch.arange(0, steps * wide, wide, device=tokens.device)
    # Whole bins of whole numbers are exact; a CPU has them for floats alone.
    kind = torch.int32 if tokens.is_cuda else torch.float32
    cells = (tokens + first).to(kind)
    counts.add_(torch.histc(cells, steps * wide, 0, steps * wide).view_as(counts).long())


def chi_square(problem: Problem, counts: Tensor) -> tuple[float, int]:
    """Pearson's statistic of step 0 over ids that are expected at least 10 times, and its degrees.

    The rest is one cell.
    """
    anchor = problem.anchor[:1]
    bias = torch.nn.functional.linear(problem.w1[anchor], problem.w2)
    logits = (problem.base[:1, 0].float() + bias.float()).to(bias.dtype).double()
    expected = torch.softmax(logits[0] / TEMPERATURE, -1) * counts.sum()
    thick = expected >= 10
    wanted = torch.cat([expected[thick], expected[~thick].sum()[None]])
    seen = torch.cat([counts[thick], counts[~thick].sum()[None]]).double()
    cells = wanted >= 10
    wanted, seen = wanted[cells], seen[cells]
    return float(((seen - wanted) ** 2 / wanted).sum()), int(cells.sum()) - 1
