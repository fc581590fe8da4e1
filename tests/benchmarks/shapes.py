"""Shapes of the head with its argmax on a GPU: tokens first, then the time of a list of them.

    python -m tests.benchmarks.shapes [--rows 1 4 8] [--hidden 4096] [--vocabulary 151936]

A block is seven drafts a row, in a graph. Cold means that other memory was read before. No time is
asserted; every draft has to come within rounding of the largest logit of its row.
"""

import argparse
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from impl.kernels.chain import Slots, padded_rows
from impl.kernels.head import FEW, SHAPES, Shape, largest_of_product

from . import floor, heads
from .clock import CudaClock
from .problem import Case, head_weight
from .variant import Variant, fold

DRAFTS = 7
CANDIDATES = (
    Shape(128, 128, 4, 3),
    Shape(128, 128, 8, 3),
    Shape(128, 64, 4, 4),
    Shape(128, 64, 4, 6),
    Shape(128, 64, 8, 4),
    Shape(64, 128, 4, 4),
    Shape(256, 64, 8, 4),
)


def built(case: Case, weight: torch.Tensor, hidden: torch.Tensor, shape: Shape) -> Variant | None:
    """The block of a shape in a graph; None where it does not fit the device."""
    rows = hidden[:, 1:].flatten(0, 1).contiguous()
    tokens = torch.full((case.rows, case.drafts), -1, device=weight.device)
    flags = torch.empty_like(tokens, dtype=torch.uint8)
    slots = Slots().of(tokens)
    body = partial(largest_of_product, rows, weight, slots, tokens, flags, shape)
    try:
        body()
    except Exception as error:  # the class is the compiler's, and only kernels import it
        if type(error).__name__ != "OutOfResources":
            raise
        return None
    return Variant(str(shape), fold(body, weight.device), tokens, "own", loose=body)


def main() -> None:
    """Judge and time every shape that fits, and print them, fastest first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[151_936, 129_280])
    chosen = parser.parse_args()
    console, clock, device = Console(), CudaClock(), torch.device("cuda")
    found = floor.measured(clock, device)
    table = Table("V", "n", "shape", "taken", "cold us", "hot us", "floor us", "cold")
    for vocabulary in chosen.vocabulary:
        weight = head_weight(vocabulary, chosen.hidden, device)
        for rows in chosen.rows:
            case = Case(vocabulary, rows, DRAFTS, hidden=chosen.hidden)
            hidden = heads.hidden_for(case, device)
            least, taken = floor.head_floor(case, found), SHAPES[padded_rows(rows * DRAFTS, FEW)]
            lines = []
            for shape in CANDIDATES:
                variant = built(case, weight, hidden, shape)
                if variant is None:
                    console.print(f"{shape} does not fit")
                    continue
                judged = heads.judged(variant, hidden, weight)
                if not judged.good:
                    raise SystemExit(f"{shape}: {judged.complaint}")
                cold = clock.cold([variant.run])[0]
                lines.append((cold, clock.hot(variant.run), shape))
            for cold, hot, shape in sorted(lines, key=lambda line: line[0]):
                times = [f"{value:.1f}" for value in (cold, hot, least)]
                size = " ".join(str(value) for value in vars(shape).values())
                mark = "taken" if shape == taken else ""
                count = str(rows * DRAFTS)
                table.add_row(str(vocabulary), count, size, mark, *times, f"{cold / least:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
