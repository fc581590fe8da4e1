"""The commands of a night: deep draws until it is decided, merge adds what several shards saw."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .judge.budget import ALPHA, Ledger
from .judge.context import PROFILES, Context
from .judge.evidence import Evidence, EvidenceError, add, document, pieces_of, store, stored
from .judge.loading import NAMED, AdapterError, CannotServeError, load_factory
from .judge.report import COLOURS
from .judge.sequential import BOUND, Rule, decide, ended, strongest
from .judge.stream import Stream, streams
from .judge.trial import Trial, workload_named
from .judge.verdict import Outcome, Verdict, exit_code, unknown, worst
from .options import chosen_combinations, engine_and_device, usage

UNKNOWN = 3
# Two files of one test agree on all of these; seed and shard may differ.
SHARED = ("alpha", "effect", "bound", "cases")


@dataclass
class Night:
    """One sequential run over several cases, each with an equal part of its alarm probability.

    run: as in the schema. pieces: what was seen, by case. verdicts: what is decided, by case.
    """

    run: Mapping[str, Any]
    pieces: dict[str, Evidence]
    verdicts: dict[str, Verdict]

    @property
    def rule(self) -> Rule:
        """The rule of every case."""
        run = self.run
        return Rule(run["alpha"] / len(run["cases"]), run["effect"], run["bound"])

    def look(self, case: str) -> None:
        """Decide a case on what was seen so far."""
        found = decide(self.pieces[case], self.rule) if case in self.pieces else None
        if found is not None:
            self.verdicts[case] = found

    def grow(self, stream: Stream) -> None:
        """Draw the next chunk of this shard that is not counted yet, and look."""
        before = self.pieces.get(stream.case)
        counted = before.seeds if before else frozenset()
        number = self.run["shard"] - 1 + self.run["shards"] * len(counted)
        while stream.seed(number) in counted:
            number += self.run["shards"]
        found = stream.chunk(number)
        if isinstance(found, Verdict):
            self.verdicts[stream.case] = found
            return
        self.pieces[stream.case] = add(before, found) if before else found
        self.look(stream.case)

    def over(self) -> bool:
        """Whether nothing is left to draw: all is decided, or one case is violated or errored."""
        final = (Outcome.VIOLATED, Outcome.ERRORED)
        if any(verdict.outcome in final for verdict in self.verdicts.values()):
            return True
        return all(case in self.verdicts for case in self.run["cases"])

    def closed(self, why: str) -> dict[str, Verdict]:
        """The verdict of every case; what is not decided is unknown, because of `why`."""
        cases = self.run["cases"]
        late = ended([self.pieces.get(case) for case in cases], self.rule, why)
        return {
            case: self.verdicts.get(case, verdict)
            for case, verdict in zip(cases, late, strict=True)
        }

    def document(self) -> dict[str, Any]:
        """What is written after every chunk."""
        return document(self.run, [self.pieces[c] for c in self.run["cases"] if c in self.pieces])


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


def resumed(path: Path | None, run: Mapping[str, Any], found: Sequence[Stream]) -> Night:
    """Go on from a state file, or start; EvidenceError when the file is of another run."""
    night = Night(run, {}, {})
    if path is None or not path.exists():
        return night
    held = stored(path)
    for name, value in run.items():
        if held["run"][name] != value:
            raise EvidenceError(
                f"{path} was written with {name} = {held['run'][name]!r}, required: {value!r}, as "
                f"asked for now; another run takes another file"
            )
    by_case = {stream.case: stream for stream in found}
    for piece in pieces_of(held):
        by_case[piece.case].refuse_foreign(piece)
        night.pieces[piece.case] = piece
        night.look(piece.case)
    return night


def shard_only(case: str, verdict: Verdict, night: Night) -> Verdict:
    """A shard raises no alarm by chance: the budget belongs to the merged evidence."""
    by_chance = case in night.pieces and decide(night.pieces[case], night.rule) == verdict
    if verdict.outcome is not Outcome.VIOLATED or night.run["shards"] == 1 or not by_chance:
        return verdict
    return unknown(f"this shard alone shows: {verdict.reason}; merge the shards to decide")


def draw(night: Night, found: Sequence[Stream], save: Callable[[], None], limit: float) -> None:
    """Draw chunks in turn until all is decided or `limit` seconds are over, behind a bar."""
    end = time.monotonic() + limit
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=limit)
        while not night.over() and time.monotonic() < end:
            for stream in found:
                if stream.case in night.verdicts or night.over() or time.monotonic() >= end:
                    continue
                night.grow(stream)
                save()
                piece = night.pieces.get(stream.case)
                if piece is not None:
                    name, log_e = strongest(piece)
                    text = f"{stream.case}: {piece.draws:,} draws, log e = {log_e:.3g} ({name})"
                    past = limit - (end - time.monotonic())
                    progress.update(task, completed=min(past, limit), description=text)


def told(verdicts: Mapping[str, Verdict], alpha: float, console: Console) -> int:
    """Print one paragraph a case and the sum; the exit code."""
    for case, verdict in verdicts.items():
        colour = COLOURS[verdict.outcome]
        console.print(
            f"[{colour}]{verdict.outcome.value}[/]: {escape(case)}, {verdict.used:,} draws"
        )
        console.print(f"  {escape(verdict.reason)}")
        if verdict.effect:
            console.print(f"  [cyan]sees: {escape(verdict.effect)}[/]")
    outcomes = [verdict.outcome for verdict in verdicts.values()]
    code = exit_code(outcomes)
    colour, sum_of = COLOURS[worst(outcomes)], worst(outcomes).value
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
    size, (first, last) = effect_of(effect), shard_of(shard)
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
    source = workload_named("synthetic")
    context = Context("dspark", "counter", device, engine, seed, PROFILES["deep"], source)
    found = opened(factory, context, only or [], subject, size)
    run: dict[str, Any] = {
        "seed": seed,
        "shard": first,
        "shards": last,
        "alpha": alpha,
        "effect": size,
    }
    run |= {"bound": BOUND, "cases": [stream.case for stream in found]}
    try:
        night = resumed(state, run, found)
    except EvidenceError as error:
        raise usage(str(error)) from error

    def save() -> None:
        if state is not None and night.pieces:
            store(state, night.document())

    draw(night, found, save, limit)
    closed = night.closed(f"{limit:g} s are over, or another case decided")
    seen = {case: shard_only(case, verdict, night) for case, verdict in closed.items()}
    raise typer.Exit(told(seen, alpha, console))


def together(paths: Sequence[Path]) -> Night:
    """The sum of several state files; EvidenceError when they are not parts of one test."""
    whole: Night | None = None
    origin: dict[str, Path] = {}
    for path in paths:
        held = stored(path)
        if whole is None:
            whole = Night({**held["run"], "shard": 1, "shards": 1}, {}, {})
        for name in SHARED:
            if held["run"][name] != whole.run[name]:
                raise EvidenceError(
                    f"{paths[0]} has {name} = {whole.run[name]!r}, {path} has "
                    f"{held['run'][name]!r}, required: the same"
                )
        whole.run = {**whole.run, "seed": min(whole.run["seed"], held["run"]["seed"])}
        for piece in pieces_of(held):
            before = whole.pieces.get(piece.case)
            try:
                whole.pieces[piece.case] = add(before, piece) if before else piece
            except EvidenceError as error:
                raise EvidenceError(f"{origin[piece.case]} and {path}: {error}") from error
            origin[piece.case] = path
    if whole is None:
        raise EvidenceError("no file was named, required: one or more")
    for case in whole.run["cases"]:
        whole.look(case)
    return whole


def merge(
    files: Annotated[list[Path], typer.Argument(help="state files of deep, by shard or night")],
    json_file: Annotated[Path | None, typer.Option("--json", help="write sum and verdict")] = None,
) -> None:
    """Add the evidence of several deep runs into one verdict. Exit codes as for verify."""
    try:
        whole = together(files)
    except EvidenceError as error:
        raise usage(str(error)) from error
    seen = whole.closed(f"{len(files)} files together do not decide")
    if json_file is not None:
        verdicts = {
            case: {"verdict": v.outcome.value, "reason": v.reason, "draws": v.used}
            for case, v in seen.items()
        }
        code = exit_code(verdict.outcome for verdict in seen.values())
        store(json_file, {**whole.document(), "verdicts": verdicts, "exit_code": code})
    raise typer.Exit(told(seen, whole.run["alpha"], Console()))
