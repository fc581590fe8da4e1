"""The share of a step in which the captured part runs, with the chain outside the graph and in it.

The head is always captured. Outside, the chain follows it eagerly and is not counted, as an engine
counts that times its graphs alone; folded, both are one graph. A slower graph has the higher share,
so the wall stands beside it.
"""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from .bench import Bench, Build
from .chains import ours
from .clock import Run
from .floor import Ceilings, block_floor
from .heads import hidden_for
from .peers import plain
from .problem import Case, Problem, head_weight, problem_for
from .rows import Row
from .variant import Variant, fold
from .wheel import sglang_chain

SECTION = "occupancy"


def cases() -> Iterator[Case]:
    """The sizes that are looked at."""
    for rows in (1, 8, 64):
        yield Case(151_936, rows, 7, "half" if rows > 1 else "sampled", hidden=4096)


def measure(bench: Bench, case: Case, found: Ceilings) -> None:
    """Every chain, outside and folded."""
    problem = problem_for(case, bench.device)
    weight = head_weight(case.vocabulary, case.hidden, bench.device)
    rows = hidden_for(case, bench.device)[:, 1:].reshape(-1, case.hidden)
    base = problem.base.view(len(rows), case.vocabulary)

    def head() -> None:
        torch.mm(rows, weight.t(), out=base)

    captured = fold(head, bench.device)
    builds: dict[str, Build] = {
        "torch": partial(plain, problem),
        "ours torch": lambda: [ours(problem, "torch", "counter")[1]],
        "ours triton": lambda: [ours(problem, "triton", "counter")[1]],
        "SGLang": partial(sglang_chain, problem),
    }
    floor = block_floor(case, found)
    for variant in bench.built(SECTION, case, builds):
        if variant.loose is None:
            continue
        name, apart = variant.name.partition(",")[0], partial(_apart, captured, variant)
        _row(bench, case, f"{name}: chain outside", floor, apart)
        whole = partial(_whole, problem, weight, head, variant)
        _row(bench, case, f"{name}: all in one graph", floor, whole)


def _apart(captured: Run, variant: Variant) -> tuple[Run, Run]:
    return captured, variant.loose


def _whole(problem: Problem, weight: torch.Tensor, head: Run, variant: Variant) -> tuple[Run, Run]:
    """Head and chain in one graph, and nothing outside."""
    if variant.name.startswith("ours"):
        stages = variant.name.partition(",")[0].split()[1]
        run = ours(problem, stages, "counter", weight)[1].run
    else:

        def body() -> None:
            head()
            variant.loose()

        run = fold(body, problem.device, variant.generators)
    return run, lambda: None


def _row(
    bench: Bench, case: Case, name: str, floor: float, parts: Callable[[], tuple[Run, Run]]
) -> None:
    row = Row(SECTION, name, case, floor=floor)

    def ask() -> None:
        captured, loose = parts()
        inside, wall = bench.clock.step(captured, loose)
        row.hot = inside
        row.extra |= {"wall": wall, "occupancy": min(1.0, inside / wall)}

    bench.guarded(row, ask)
    bench.keep(row)
