"""The command `draftproof plan`: draws, time and the checks that carry a stated effect."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import torch
import typer
from rich.console import Console
from rich.table import Table

from .judge import planning
from .judge.budget import ALPHA, SHARES
from .judge.checks.draft_law import TABLES_MAX
from .judge.checks.independence import TESTS_MAX
from .judge.context import PROFILES, Context
from .judge.loading import load_factory
from .judge.pace import Pace, measured
from .judge.planning import DRAWS_MAX
from .reference import choice, logits
from .workloads.synthetic import Synthetic

Floats = npt.NDArray[np.float64]
EFFECTS = {
    "temperature": "relative error of T, such as 0.005",
    "token": "absolute error of the most likely token's probability",
    "lost": "probability of the rarest ids that can no longer be drawn",
    "shared": "share of pairs of draws with common noise",
}
OTHER: dict[str, Callable[[Floats, float], Floats]] = {
    "temperature": planning.tilted,
    "token": planning.raised,
    "lost": planning.without,
}


@dataclass(frozen=True)
class Row:
    """One check that finds the effect: draws, seconds on this machine, and by which rule."""

    check: str
    draws: int
    seconds: float
    rule: str


def parsed(effect: str) -> tuple[str, float]:
    """Name and size of an effect such as 'temperature=0.005'."""
    name, equals, size = effect.partition("=")
    known = ", ".join(f"{key}=SIZE ({text})" for key, text in EFFECTS.items())
    if name not in EFFECTS or not equals:
        raise typer.BadParameter(f"effect is {effect!r}, required: one of {known}")
    try:
        value = float(size)
    except ValueError as error:
        raise typer.BadParameter(f"effect is {effect!r}, required: a number as SIZE") from error
    if not 0 < abs(value) < 1 or (value < 0 and name != "temperature"):
        raise typer.BadParameter(f"size is {value}, required: above 0 and below 1")
    return name, value


def law_of(vocabulary: int, seed: int) -> Floats:
    """The law of one step of the synthetic workload at T = 1, [V]."""
    workload = Synthetic()
    material = workload.material(seed, vocabulary, torch.float32)
    hidden, _ = workload.rows(seed, material, 1, 1, sharpen=False)
    step = logits.base_logits(hidden[0], material.head, vocabulary)
    law: Floats = choice.law(step, torch.ones(1, dtype=torch.float64))[0].numpy()
    return law


def rows(
    name: str, size: float, law: Floats, miss: float, alpha: float, pace: Pace
) -> Iterator[Row]:
    """Every check that carries the effect, fewest draws first where they are independent."""
    each = 1.0 / pace.drawn
    if name == "shared":
        alarm = SHARES["independence"] * alpha / TESTS_MAX
        pairs = planning.pair_draws(1.0 / len(law), size, alarm, miss)
        yield Row("independence", 2 * pairs, 2 * pairs * each, "equal pairs, exact binomial")
        return
    other = OTHER[name](law, size)
    coupled = planning.coupled_draws(law, other, miss)
    both = each + 1.0 / pace.decided
    yield Row("coupled", coupled, coupled * both, "one race lost by more than rounding")
    if name == "lost":
        yield Row("spike", len(law), len(law) * each, "every id is made the winner: certain")
    exact = SHARES["exact law"] * alpha / TABLES_MAX / 2
    marginal = {"chi-square, two stages": planning.chi_square_draws(law, other, miss)}
    if name == "temperature":
        marginal["likelihood ratios"] = planning.bank_draws(law, size, exact, miss)
    if name == "lost":
        marginal["exact binomials of intervals"] = planning.scan_draws(law, size, exact, miss)
    rule = min(marginal, key=lambda key: marginal[key])
    yield Row("draft_law", marginal[rule], marginal[rule] * each, rule)


def plan(
    effect: Annotated[str, typer.Option(help="; ".join(f"{k}: {v}" for k, v in EFFECTS.items()))],
    vocab: Annotated[int, typer.Option(help="vocabulary V")] = 128,
    power: Annotated[float, typer.Option(help="probability of finding the effect")] = 0.99,
    alpha: Annotated[float, typer.Option(help="false-alarm probability of the run")] = ALPHA,
    subject: Annotated[str, typer.Option(help="whose speed is measured")] = "folded",
    seed: Annotated[int, typer.Option(help="seed of the planned law")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,  # noqa: FBT002
) -> None:
    """Say how many draws a fault of a given size needs, how long they take, and which check."""
    name, size = parsed(effect)
    if not 0.5 <= power < 1:
        raise typer.BadParameter(f"power is {power}, required: from 0.5 to below 1")
    if vocab < 2:
        raise typer.BadParameter(f"vocab is {vocab}, required: at least 2")
    context = Context("dspark", "counter", "cpu", "emulator", seed, PROFILES["smoke"], Synthetic())
    pace = measured(load_factory(subject), context, vocab)
    law = law_of(vocab, seed)
    found = list(rows(name, size, law, 1.0 - power, alpha, pace))
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in found], indent=1))
        return
    log = np.log(law[law > 0])
    spread = float((law[law > 0] * log**2).sum() - (law[law > 0] * log).sum() ** 2)
    table = Table(
        title=f"{effect} at V = {vocab:,}, power {power:g}, alpha {alpha:.0e}",
        caption=f"law of the synthetic workload, Var(log p) = {spread:.2f}; "
        f"{pace.drawn:,.0f} draws and {pace.decided:,.0f} decisions a second here",
    )
    for column in ("check", "draws", "seconds", "rule"):
        table.add_column(column, justify="right" if column in ("draws", "seconds") else "left")
    for row in found:
        reach = row.draws < DRAWS_MAX
        count = f"{row.draws:,}" if reach else "out of reach"
        table.add_row(row.check, count, f"{row.seconds:,.1f}" if reach else "-", row.rule)
    Console().print(table)
