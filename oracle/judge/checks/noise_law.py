"""Noise has the law that its dialect declares: by its own values, and by draws of rare ids."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .. import lattice, sums
from ..budget import SHARES, Ledger
from ..context import Context, Material, as_inputs, constant, query_rows
from ..coupling import block_noise
from ..history import History
from ..lattice import Lattice, Tally
from ..script import Command, Load, Observe, Plan, Read, Replay
from ..verdict import Verdict, holds, unknown, violated

NAME = "noise_law"
LEDGER = "noise law"
TITLE = "noise law: grid, repeats, mean, octaves, rare ids"
CLAIM = "The noise has the law its dialect declares, its small end included."
NEEDS = ("DRAWS",)

ROWS, DRAFTS, VOCABULARY, EVERY_ID = 64, 2, 1024, 2**30
# Tests of one source of values; sources are what a state foretells and up to two buffers.
TESTS, SOURCES, COMBINATIONS = 4, 3, 2
TESTS_MAX = COMBINATIONS * (TESTS * SOURCES + 1)
# The sum of values is kept in steps that no rounding of a double can tell.
UNIT = 2.0**-32
# Below this many draws expected of all rare ids together, their loss could be chance.
RARE_EXPECTED = 64
HEAD_ID = 5
# -log(1 - u) of the largest bounded uniform of a word.
LARGEST = 24 * math.log(2)
# From here on the declared grid of known words must show: the positive control.
CONTROL_VALUES = 3 * 10**5


def flat(context: Context, vocabulary: int) -> Material:
    """Weights of zero: all step logits are equal, whatever is loaded."""
    source = context.workload.material(context.seed, vocabulary, torch.float32)
    return Material(source.head * 0, source.w1 * 0, source.w2 * 0, vocabulary)


def values_plan(context: Context) -> Plan:
    """Replays of one load, looking at every noise buffer after each."""
    material = flat(context, VOCABULARY)
    setting = context.setting(material, drafts=DRAFTS, buckets=(ROWS,))
    hidden, anchor = context.workload.rows(context.seed, material, ROWS, query_rows(setting))
    inputs = {"x": as_inputs(setting, hidden, anchor, *constant(ROWS, 1.0, EVERY_ID))}
    names = sorted(name for name, role in context.buffers.items() if role == "noise")
    buffers = tuple(names[: SOURCES - 1])
    looks: tuple[Command, ...] = tuple(Observe(name) for name in buffers)
    blocks = math.ceil(context.part(context.profile.noise_values) / (ROWS * VOCABULARY))
    commands = (Load("x"), *((Replay(redraw=False), *looks) * blocks))
    notes = {"kind": "values", "buffers": list(buffers), "blocks": blocks}
    return Plan(NAME, "the noise itself", setting, inputs, commands, notes=notes)


def gap_of(vocabulary: int, draws: int) -> float:
    """How far the head lies above the rest, in quarters: the rarest ids that are seen often enough.

    A quarter is the grid of the synthetic workload, so that every step logit is exact.
    """
    quarters = range(1, 200)
    seen = [q for q in quarters if draws * rare_mass(vocabulary, q / 4) >= RARE_EXPECTED]
    return max(seen) / 4


def rare_mass(vocabulary: int, gap: float) -> float:
    """Probability of all V - 1 rare ids together, one head `gap` above them."""
    return (vocabulary - 1) / (math.exp(gap) + vocabulary - 1)


def cliff_plan(context: Context) -> Plan:
    """One likely id and V - 1 rare ones of equal probability, drawn until the rare ones show."""
    vocabulary, draws = context.profile.cliff_vocabulary, context.profile.cliff_draws
    mine = context.part(draws)
    rows = max(4, min(512, 2**19 // vocabulary))
    gap = gap_of(vocabulary, draws)
    material = flat(context, vocabulary)
    material.head[HEAD_ID, 0] = 1.0
    setting = context.setting(material, drafts=DRAFTS, buckets=(rows,))
    hidden, anchor = context.workload.rows(context.seed, material, rows, query_rows(setting))
    hidden[..., 0] = gap
    inputs = {"x": as_inputs(setting, hidden, anchor, *constant(rows, 1.0, EVERY_ID))}
    one: tuple[Command, ...] = (Replay(redraw=False), Read(only=("tokens",)))
    commands = (Load("x"), *(one * math.ceil(mine / (rows * DRAFTS))))
    notes = {"kind": "cliff", "gap": gap, "draws": mine}
    return Plan(NAME, f"cliff, V = {vocabulary}", setting, inputs, commands, notes=notes)


def plans(context: Context) -> list[Plan]:
    """The values of a subject that shows its noise, and the draws of everyone."""
    if context.workload.real:
        return []
    shows = "NOISE" in context.abilities or "noise" in context.buffers.values()
    return [*([values_plan(context)] if shows else []), cliff_plan(context)]


def blocks_of(history: History) -> Iterator[tuple[str, np.ndarray]]:
    """Values by source: the buffer they stood in, or how they follow from the noise state.

    Of a block that the state foretells, one step is taken, the steps in turn.
    """
    setting, vocabulary = history.setting, history.setting["vocabulary"]
    foretold = "words foretold" if setting["dialect"] == "counter" else "generator redrawn"
    for number, event in enumerate(history.of("replay")):
        e = block_noise(setting, event)
        if e is not None:
            values = e[:, number % setting["drafts"]]
            # What words without a bound make of their largest is counted as the largest there is.
            bounded = values.clamp(max=LARGEST) if setting["dialect"] == "counter" else values
            yield foretold, bounded.numpy().ravel()
    for event in history.of("observe"):
        content = event["content"]
        if not content.is_floating_point() or content.shape[-1] != vocabulary:
            continue
        live = content[:ROWS] if event["rows"] else content
        yield f"buffer {event['buffer']}", live.double().numpy().ravel()


def complaint(tally: Tally, own: Lattice, alarm: float, ledger: Ledger) -> str:
    """What one source shows against the declared law, or ''; spends TESTS alarms."""
    for _ in range(TESTS):
        ledger.take(LEDGER, alarm)
    if tally.improper:
        return f"{tally.improper} values are not finite and positive"
    level, grid = lattice.grid_p(tally, own)
    if level < alarm:
        required = f"of 2^-{own.grid}" if own.grid else "down to 2^-34"
        return (
            f"{tally.near[grid]} of {tally.seen[grid]} small values lie on the grid 2^-{grid}, "
            f"required: none coarser than declared ({required}); p = {level:.1e}"
        )
    level, equal = lattice.pairs_p(tally, own)
    if level < alarm:
        pairs = lattice.equal_pairs(tally)[1]
        return (
            f"{equal} of {pairs} pairs of values are equal, {own.repeat * pairs:.1f} expected: "
            f"values repeat; p = {level:.1e}"
        )
    level = lattice.mean_p(tally)
    if level < alarm:
        return f"the mean is {tally.total / tally.count:.6f}, required: 1; p = {level:.1e}"
    level, place = lattice.octave_p(tally, own)
    if level < alarm:
        expected = tally.count * float(lattice.octave_law(own)[place])
        return (
            f"{tally.octaves[place]} values with {lattice.octave_name(place)}, "
            f"{expected:.1f} expected; p = {level:.1e}"
        )
    return ""


def counted(source: str, tally: Tally, own: Lattice) -> sums.Sums:
    """What one source showed, as integers: the sum of its values in steps of UNIT."""
    near = [own.chance_near(grid) for grid in lattice.GRIDS]
    seen = [[tally.seen[g] for g in lattice.GRIDS], [tally.near[g] for g in lattice.GRIDS]]
    total = [tally.count, tally.improper, round(tally.total / UNIT)]
    mass, equal = np.array([own.repeat]), np.array(lattice.equal_pairs(tally))
    laws, what = lattice.octave_law(own), f"[values, improper ones, sum in steps of {UNIT}]"
    return (
        sums.Sum(f"{source}: values", what, "", np.array(total)),
        sums.table(f"{source}: octaves", "[octave]", laws, tally.octaves),
        sums.table(
            f"{source}: grids", "[looked at, on it] by grid", np.array(near), np.array(seen)
        ),
        sums.table(f"{source}: equal pairs", "[equal, all]", mass, equal),
    )


def tallied(seen: sums.Sums) -> dict[str, Tally]:
    """The tally of each source, from its sums."""
    by_law, found = sums.named(seen), {}
    for name in [law.removesuffix(": values") for law in by_law if law.endswith(": values")]:
        count, improper, total = by_law[f"{name}: values"].counts.tolist()
        looked, near = (
            dict(zip(lattice.GRIDS, row, strict=True))
            for row in by_law[f"{name}: grids"].counts.tolist()
        )
        equal, pairs = by_law[f"{name}: equal pairs"].counts.tolist()
        octaves = by_law[f"{name}: octaves"].counts
        found[name] = Tally(
            count, improper, total * UNIT, octaves, looked, near, equal=equal, pairs=pairs
        )
    return found


def gathered_values(history: History) -> sums.Sums | Verdict:
    """Every source of values, tallied."""
    own = lattice.declared(history.setting["dialect"], history.setting["device"])
    tallies: dict[str, Tally] = {}
    sampled = lattice.PAIRED // history.notes["blocks"]
    for source, values in blocks_of(history):
        tallies.setdefault(source, Tally()).add(values, sampled)
    if not tallies:
        return unknown("neither the noise state nor a buffer yields values of the noise")
    return tuple(one for source, tally in tallies.items() for one in counted(source, tally, own))


def decided_values(history: History, seen: sums.Sums, ledger: Ledger, alarm: float) -> Verdict:
    """Four tests on each source of values."""
    own = lattice.declared(history.setting["dialect"], history.setting["device"])
    tallies = tallied(seen)
    for source, tally in tallies.items():
        text = complaint(tally, own, alarm, ledger)
        if text:
            return violated(f"{source}: {text}", tally.count, unit="values", source=source)
    planned = history.notes["blocks"] * ROWS * history.setting["vocabulary"]
    used = min(tally.count for tally in tallies.values())
    if used < planned:
        return unknown(f"{used} values were seen of a source, required: {planned}", used)
    words = tallies.get("words foretold")
    if words and words.count >= CONTROL_VALUES and not lattice.on_grid(words, own.grid):
        return unknown(f"the test does not see the grid 2^-{own.grid} of known words", used)
    return holds(
        f"{' and '.join(tallies)}: as declared", used, effect_of(own, used, alarm), "values"
    )


def effect_of(own: Lattice, values: int, alarm: float) -> str:
    """What so many values would have shown."""
    finest = lattice.finest_grid(values, alarm)
    seen = min(finest, own.grid - 1) if own.grid else finest
    repeat = 100 * lattice.smallest_repeat(values, own, alarm)
    scale = 100 * lattice.smallest_scale(values, alarm)
    floor = lattice.deepest_floor(values, own, alarm)
    return (
        f"a grid of 2^-{seen} or coarser; {repeat:.2g} % of values repeated; scale off by "
        f"{scale:.2g} %; nothing around 2^{floor}"
    )


def rare(history: History) -> tuple[float, float, float]:
    """Of the rare ids: probability of each, of all as declared, and the share that this keeps."""
    setting = history.setting
    own = lattice.declared(setting["dialect"], setting["device"])
    mass = rare_mass(setting["vocabulary"], history.notes["gap"])
    each = mass / (setting["vocabulary"] - 1)
    kept = lattice.kept_share(own.floor / each)
    return each, mass * kept, kept


def gathered_cliff(history: History) -> sums.Sums | Verdict:
    """Draws of rare ids among all draws."""
    reads: list[dict[str, Any]] = history.of("read")
    draws = sum(event["outputs"]["tokens"].numel() for event in reads)
    hits = sum(int((event["outputs"]["tokens"] != HEAD_ID).sum()) for event in reads)
    rate = np.array([rare(history)[1]])
    return (
        sums.table("rare ids", "[draws of rare ids, all draws]", rate, np.array([hits, draws])),
    )


def decided_cliff(history: History, seen: sums.Sums, ledger: Ledger, alarm: float) -> Verdict:
    """The draws of rare ids against the exact binomial, both tails."""
    hits, draws = seen[0].counts.tolist()
    if draws < history.notes["draws"]:
        reason = f"{draws} draws were made, required: {history.notes['draws']}"
        return unknown(reason, draws, unit="draws")
    each, rate, kept = rare(history)
    ledger.take(LEDGER, alarm)
    level = lattice.cliff_p(hits, draws, rate)
    ids = f"ids of probability {each:.2g}"
    if level < alarm:
        return violated(
            f"{ids} were drawn {hits} times, {draws * rate:.1f} expected; p = {level:.1e}",
            draws,
            unit="draws",
        )
    floor = math.log2(lattice.smallest_floor(draws, rate, each, alarm))
    known = f"; declared: {100 * (1 - kept):.2g} % of them lost" if kept < 0.999 else ""
    effect = f"a noise floor of 2^{floor:.1f} or above (95 %); {hits} rare draws{known}"
    return holds(f"{ids} are drawn as often as they must be", draws, effect, "draws")


def gathered(history: History) -> sums.Sums | Verdict:
    """Counts of values or of draws."""
    kinds = {"values": gathered_values, "cliff": gathered_cliff}
    return kinds[history.notes["kind"]](history)


def check(history: History, ledger: Ledger) -> Verdict:
    """Judge values or draws, each test at its planned part of the ledger line."""
    seen = gathered(history)
    return seen if isinstance(seen, Verdict) else decided(history, seen, ledger)


def decided(history: History, seen: sums.Sums, ledger: Ledger) -> Verdict:
    """The answer to counts, wherever they were drawn."""
    alarm = SHARES[LEDGER] * ledger.alpha / TESTS_MAX
    kinds = {"values": decided_values, "cliff": decided_cliff}
    return kinds[history.notes["kind"]](history, seen, ledger, alarm)
