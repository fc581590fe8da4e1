"""The commands of a night: deep draws until it is decided, merge adds what several shards saw.

Under torchrun the processes of deep are the shards of one run, and decide together.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .judge import expected
from .judge import report as reports
from .judge.budget import ALPHA, Ledger
from .judge.campaign import met, own_file
from .judge.context import PROFILES, Context
from .judge.evidence import EvidenceError, store
from .judge.loading import NAMED, AdapterError, CannotServeError, load_factory
from .judge.merge import World
from .judge.night import Night, resumed, shard_only, together
from .judge.sequential import BOUND, strongest
from .judge.shards import Whole
from .judge.stream import Stream, streams
from .judge.trial import Trial, workload_named
from .judge.verdict import Verdict, exit_code, worst
from .options import chosen_combinations, engine_and_device, entered, expected_deviations, usage

UNKNOWN = 3


def effect_of(text: str) -> float:
    """The relative error of T in 'temperature=0.01'."""
    kind, _, size = text.partition("=")
    try:
        value = float(size)
    except ValueError:
        value = -1.0
    if kind != "temperature" or not 0.0 < value < 1.0:
        raise usage(f"effect is {text!r}, required: temperature=X with X between 0 and 1")
    return value


def shard_of(text: str) -> tuple[int, int]:
    """I and N of 'I/N', 1 <= I <= N."""
    first, slash, last = text.partition("/")
    if not (slash and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise usage(f"shard is {text!r}, required: I/N with 1 <= I <= N")
    return int(first), int(last)


def shard_in(world: World, text: str) -> tuple[int, int]:
    """The shard of this process: the one named, or under torchrun the one of its rank."""
    first, last = shard_of(text)
    if world.size == 1:
        return first, last
    if last > 1:
        raise usage(f"shard is {text}, required: none, as each process of torchrun draws one")
    return world.rank + 1, world.size


def draw(
    night: Night, found: Sequence[Stream], save: Callable[[], None], limit: float, world: World
) -> Night:
    """Draw chunks in turn until all is decided or `limit` seconds are over, behind a bar.

    Returns what was seen: by this process when it is alone, else the sum of all processes.
    """
    end = time.monotonic() + limit
    whole = met(world, night)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=world.rank > 0
    ) as progress:
        task = progress.add_task("", total=limit)
        while not whole.over() and not any(world.gather(time.monotonic() >= end)):
            for stream in found:
                if stream.case in whole.verdicts or night.over() or time.monotonic() >= end:
                    continue
                night.grow(stream, look=world.size == 1)
                save()
                past = min(limit, limit - (end - time.monotonic()))
                progress.update(task, completed=past, description=progress_of(night, stream.case))
            whole = met(world, night)
    return whole


def progress_of(night: Night, case: str) -> str:
    """How far a case has come, in a line."""
    piece = night.pieces.get(case)
    if piece is None:
        return case
    name, log_e = strongest(piece)
    return f"{case}: {piece.draws:,} draws, log e = {log_e:.3g} ({name})"


def told(verdicts: Mapping[str, Verdict], alpha: float, console: Console) -> int:
    """Print one paragraph a case and the sum; the exit code."""
    for case, verdict in verdicts.items():
        colour = reports.COLOURS[verdict.outcome]
        console.print(
            f"[{colour}]{verdict.outcome.value}[/]: {escape(case)}, {verdict.used:,} draws"
        )
        console.print(f"  {escape(verdict.reason)}")
        if verdict.effect:
            console.print(f"  [cyan]sees: {escape(verdict.effect)}[/]")
    outcomes = [verdict.outcome for verdict in verdicts.values()]
    code = exit_code(outcomes)
    colour, sum_of = reports.COLOURS[worst(outcomes)], worst(outcomes).value
    console.print(
        f"[{colour}]{sum_of}[/]: false-alarm probability {alpha:.0e}, an equal part for each case "
        f"({len(outcomes)}); exit code {code}"
    )
    return code


def opened(
    factory: Any, context: Context, only: list[str], name: str, effect: float
) -> list[Stream]:
    """The streams of all cases, or a typer.Exit that says why there is none."""
    trial = Trial(factory, context, combinations=chosen_combinations(only))
    found = streams(trial, name, effect)
    if isinstance(found, Verdict):
        Console().print(f"{found.outcome.value}: {escape(found.reason)}")
        raise typer.Exit(exit_code([found.outcome]))
    return found


def run_of(
    found: Sequence[Stream], chunks: tuple[int, int, int], alpha: float, effect: float
) -> dict[str, Any]:
    """What a state file says of the run; chunks: seed, shard and number of shards."""
    seed, shard, shards = chunks
    named = {"seed": seed, "shard": shard, "shards": shards, "alpha": alpha, "effect": effect}
    return {**named, "bound": BOUND, "cases": [stream.case for stream in found]}


def deep(
    subject: Annotated[str, typer.Option(help=f"{', '.join(NAMED)}, or module:factory")] = "folded",
    engine: Annotated[str, typer.Option(help="auto, emulator, cuda or eager")] = "auto",
    effect: Annotated[str, typer.Option(help="smallest fault to see")] = "temperature=0.01",
    limit: Annotated[float, typer.Option(help="seconds after which it stops")] = 3600.0,
    seed: Annotated[int, typer.Option(help="of inputs and noise; at night, the date")] = 0,
    alpha: Annotated[float, typer.Option(help="false-alarm probability of the run")] = ALPHA,
    state: Annotated[Path | None, typer.Option(help="written after every chunk, resumed")] = None,
    shard: Annotated[str, typer.Option(help="I/N: draw every N-th chunk only")] = "1/1",
    only: Annotated[list[str] | None, typer.Option(help="only this combination")] = None,
) -> None:
    """Draw until the law is violated, or holds for a stated effect. Exit codes as for verify."""
    console = Console()
    engine, device = engine_and_device(engine)
    size = effect_of(effect)
    if seed < 0:
        raise usage(f"seed is {seed}, required: 0 or more")
    if state is not None and not state.parent.is_dir():
        raise usage(f"{state.parent} is no folder, so the state cannot be kept there")
    sys.path.insert(0, str(Path.cwd()))
    try:
        Ledger(alpha)
        factory = load_factory(subject)
    except (AdapterError, ValueError) as error:
        raise usage(str(error)) from error
    except CannotServeError as error:
        console.print(f"not applicable: {error}")
        raise typer.Exit(UNKNOWN) from error
    world = entered(device)
    first, last = shard_in(world, shard)
    source = workload_named("synthetic")
    context = Context("dspark", "counter", device, engine, seed, PROFILES["deep"], source)
    found = opened(factory, context, only or [], subject, size)
    run = run_of(found, (seed, first, last), alpha, size)
    try:
        own = own_file(state, world)
        night = resumed(own, run, found)
    except EvidenceError as error:
        raise usage(str(error)) from error
    if world.size > 1:
        night.verdicts.clear()

    def save() -> None:
        if own is not None and night.pieces:
            store(own, night.document())

    whole = draw(night, found, save, limit, world)
    closed = whole.closed(f"{limit:g} s are over, or another case ended the run")
    seen = {case: shard_only(case, verdict, whole) for case, verdict in closed.items()}
    code = told(seen, alpha, Console(quiet=world.rank > 0))
    world.leave()
    raise typer.Exit(code)


def format_of(path: Path) -> str:
    """The format that a file names, '' when it names none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from error
    return str(found.get("format", "")) if isinstance(found, dict) else ""


def of_reports(files: Sequence[Path]) -> bool:
    """Whether the files are reports of verify; EvidenceError when only some of them are."""
    kinds = {path: format_of(path) for path in files}
    reported = [path for path in files if kinds[path] == reports.FORMAT]
    if reported and len(reported) < len(files):
        other = next(path for path in files if path not in reported)
        raise EvidenceError(
            f"{reported[0]} is a report of verify, the format of {other} is {kinds[other]!r}; "
            f"required: files of one kind"
        )
    return bool(reported)


def merge_reports(files: Sequence[Path], json_file: Path | None, expectations: str) -> int:
    """Judge the sum of all shards of a verify, print it, and return the exit code."""
    known = expected_deviations(expectations)
    whole = Whole.of(files)
    first = whole.reports[0]
    found, idle = expected.applied(known, vars(whole.run), whole.results())
    report = reports.document(whole.run, found, whole.ledger, first["environment"])
    if json_file is not None:
        store(json_file, report)
    reports.render(report, whole.run, Console())
    if idle:
        raise usage(idle)
    return int(report["exit_code"])


def merge(
    files: Annotated[list[Path], typer.Argument(help="states of deep, or reports of all shards")],
    json_file: Annotated[Path | None, typer.Option("--json", help="write sum and verdict")] = None,
    expectations: Annotated[str, typer.Option(help="known deviations of reports, or shipped")] = "",
) -> None:
    """Add what deep runs, or all shards of a verify, have seen. Exit codes as for verify."""
    try:
        if of_reports(files):
            raise typer.Exit(merge_reports(files, json_file, expectations))
        whole = together(files)
    except EvidenceError as error:
        raise usage(str(error)) from error
    if expectations:
        raise usage("these files are states of deep, required of expectations: reports of verify")
    seen = whole.closed(f"{len(files)} files together do not decide")
    if json_file is not None:
        verdicts = {
            case: {"verdict": v.outcome.value, "reason": v.reason, "draws": v.used}
            for case, v in seen.items()
        }
        code = exit_code(verdict.outcome for verdict in seen.values())
        store(json_file, {**whole.document(), "verdicts": verdicts, "exit_code": code})
    raise typer.Exit(told(seen, whole.run["alpha"], Console()))
