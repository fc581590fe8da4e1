"""The command line: verify, decode, deep, merge, page, record, judge, list, explain, plan."""

import json
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from .decoder import decode
from .exporter import Files, Html, Junit, Summary, page
from .judge import archive, expected
from .judge import report as reports
from .judge.budget import ALPHA, ALPHA_MIN, SHARES, Ledger
from .judge.checks import ALL, DECODING, named, stored
from .judge.context import PROFILES, Context, Workload
from .judge.device import peak
from .judge.environment import environment
from .judge.explained import EXPLAINED
from .judge.features import FEATURES
from .judge.jobs import Order, jobs_for, shared_out
from .judge.loading import NAMED, AdapterError, CannotServeError, load_factory
from .judge.merge import World
from .judge.protocol import ABILITIES, Factory
from .judge.shards import sources
from .judge.trial import Result, Trial, workload_named
from .judge.verdict import Outcome
from .nightly import deep, merge
from .options import (
    chosen_combinations,
    engine_and_device,
    entered,
    expected_deviations,
    shard_named,
    usage,
)
from .planner import plan
from .recorder import record
from .rejudge import judge

app = typer.Typer(add_completion=False, no_args_is_help=True, help=__doc__)
UNKNOWN = 3
DECODED = "Texts that a decoder wrote with a real model, and the model's own reading of them."
app.command()(plan)
app.command()(deep)
app.command()(merge)
app.command()(page)
app.command()(record)
app.command()(judge)
app.command()(decode)


def run_with_progress(trial: Trial, console: Console, save: Path | None) -> list[Result]:
    """Run a trial behind a progress bar; store histories when asked to."""
    results = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    quiet = trial.world.rank > 0
    with Progress(*columns, console=console, transient=True, disable=quiet) as progress:
        total = len(trial.checks) * len(trial.combinations)
        task = progress.add_task("", total=total)
        done = 0

        def begun(text: str) -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, description=f"{done}/{total} {text}")

        for result in trial.run(begun):
            results.append(replace(result, history=None))
            # What all ranks saw together is stored by the first.
            shared = trial.world.rank > 0 and result.history and result.check == "ranks"
            ran = result.history is not None or result.verdict.outcome is Outcome.ERRORED
            if save is not None and ran and not shared:
                name = f"{len(results):03d}-{result.check}-{result.combination}"
                stem = save / name.replace("/", "-").replace(" ", "-")
                again, where = trial.reproduce, environment(trial.context.device)
                if why := archive.store(result, stem, again, where):
                    console.print(f"not stored: {result.check}, {result.case}: {why}")
    return results


def run_shared_out(
    trial: Trial, order: Order, jobs: int, console: Console
) -> tuple[list[Result], list[int]]:
    """Run a trial over processes behind a progress bar; results, and GPU memory by process."""
    peaks: dict[int, int] = {}
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        total = len(trial.checks) * len(trial.combinations)
        task = progress.add_task("", total=total)

        def done(text: str) -> None:
            progress.update(task, advance=1, description=text)

        found = shared_out(order, trial.combinations, trial.checks, jobs, trial.ledger, done, peaks)
        return list(found), list(peaks.values())


def command_of(world: World, context: Context, subject: str) -> str:
    """The command that starts a run like this one."""
    start = "draftproof verify"
    if world.size > 1:
        start = f"torchrun --nproc-per-node {world.size} -m oracle verify"
    part = f" --num-shards {context.shards} --shard-id {context.shard}" if context.shard else ""
    return (
        f"{start} --subject {shlex.quote(subject)} --engine {context.engine} "
        f"--workload {context.workload.name} --profile {context.profile.name} "
        f"--seed {context.seed}{part}"
    )


def loaded(subject: str, workload: str, console: Console) -> tuple[Factory, Workload]:
    """The sampler under test and its inputs, or the exit that says why there is none."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        return load_factory(subject), workload_named(workload)
    except (AdapterError, ValueError) as error:
        raise usage(str(error)) from error
    except CannotServeError as error:
        console.print(f"not applicable: {error}")
        raise typer.Exit(UNKNOWN) from error


def asked(
    profile: str, alpha: float, check: Sequence[str]
) -> tuple[tuple[ModuleType, ...], Ledger]:
    """The checks that were asked for, and what they may spend; or the usage error."""
    if profile not in PROFILES:
        raise usage(f"profile is {profile!r}, required: one of {', '.join(PROFILES)}")
    if alpha < ALPHA_MIN:
        raise usage(f"alpha is {alpha:g}, required: at least {ALPHA_MIN:g}")
    try:
        return tuple(named(name) for name in check) or ALL, Ledger(alpha)
    except (KeyError, ValueError) as error:
        raise usage(str(error.args[0])) from error


@app.command()
def verify(
    subject: Annotated[str, typer.Option(help=f"{', '.join(NAMED)}, or module:factory")] = "folded",
    engine: Annotated[str, typer.Option(help="auto, emulator, cuda or eager")] = "auto",
    workload: Annotated[str, typer.Option(help="synthetic or smollm2")] = "synthetic",
    profile: Annotated[str, typer.Option(help=", ".join(PROFILES))] = "smoke",
    seed: Annotated[int, typer.Option(help="seed of inputs and noise")] = 0,
    alpha: Annotated[float, typer.Option(help="false-alarm probability of the run")] = ALPHA,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the report")] = None,
    save: Annotated[Path | None, typer.Option(help="folder for histories")] = None,
    check: Annotated[list[str] | None, typer.Option(help="only this check; repeatable")] = None,
    only: Annotated[list[str] | None, typer.Option(help="only this combination")] = None,
    expectations: Annotated[str, typer.Option(help="file of known deviations, or shipped")] = "",
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one a core, 1 on a GPU")] = 0,
    num_shards: Annotated[int, typer.Option(help="runs that merge will add")] = 1,
    shard_id: Annotated[int, typer.Option(help="which of them, from 1 on")] = 0,
    require_gpu: Annotated[
        bool, typer.Option("--require-gpu", help="2 without a GPU; 3 for what it leaves out")
    ] = False,
    html: Html = None,
    junit: Junit = None,
    summary: Summary = None,
) -> None:
    """Put a sampler under test. Exit: 0 holds, 1 violated, 2 usage, 3 unknown, 4 errored."""
    console, files = Console(), Files(json_file, html, junit, summary)
    engine, device = engine_and_device(engine, require_gpu=require_gpu)
    shard = shard_named(num_shards, shard_id)
    checks, ledger = asked(profile, alpha, check or ())
    if expectations and num_shards > 1:
        raise usage("expectations are of whole runs, required: give them to merge")
    known = expected_deviations(expectations)
    factory, source = loaded(subject, workload, console)
    world = entered(device)
    if world.size > 1 and num_shards > 1:
        raise usage("processes of torchrun are one run, required: --num-shards 1")
    context = Context("dspark", "counter", device, engine, seed, PROFILES[profile], source)
    context = replace(context, shard=shard, shards=num_shards)
    reproduce = command_of(world, context, subject) + " --require-gpu" * require_gpu
    keep, combinations = save is not None, chosen_combinations(only or [])
    trial = Trial(
        factory, context, reproduce, ledger, keep, checks, combinations, world, require_gpu
    )
    jobs = jobs_for(device, jobs, workload)
    if jobs == 1 or world.size > 1 or save is not None or check:
        results = trial.everyones(run_with_progress(trial, console, save))
        peaks = world.gather(peak(device))
    else:
        threads = max(torch.get_num_threads() // jobs, 1)
        plain = (subject, workload, profile, device, engine, seed, alpha, reproduce, threads)
        order = Order(*plain, shard, num_shards, require_gpu)
        results, peaks = run_shared_out(trial, order, jobs, console)
    names = [module.NAME for module in checks]
    run = reports.Run(subject, workload, profile, engine, device, seed, reproduce, sources(trial))
    run = replace(run, checks=names, shard=shard, shards=num_shards)
    results, idle = expected.applied(known, vars(run), results)
    report = reports.document(run, results, ledger, environment(device, peaks))
    if world.rank == 0:
        files.write(report)
        reports.render(report, run, console)
    world.leave()
    raise usage(idle) if idle else typer.Exit(report["exit_code"])


@app.command(name="list")
def list_checks(
    as_json: Annotated[bool, typer.Option("--json", help="for machines")] = False,
) -> None:
    """List every check with its claim and the abilities it needs."""
    rows = [
        {"check": c.NAME, "title": c.TITLE, "claim": c.CLAIM, "needs": list(c.NEEDS)}
        for c in (*ALL, *DECODING)
    ]
    if as_json:
        covered = [
            {"feature": name, "abilities": list(abilities), "checks": list(checks)}
            for name, (abilities, checks) in FEATURES.items()
        ]
        document = {
            "checks": rows,
            "features": covered,
            "abilities": ABILITIES,
            "subjects": sorted(NAMED),
        }
        typer.echo(json.dumps(document, indent=1))
        return
    table = Table("check", "what it is", "claim", "needs", header_style="bold")
    for row in rows:
        needs = ", ".join(row["needs"]) or "-"
        table.add_row(row["check"], row["title"], row["claim"], needs)
    Console().print(table)


def in_a_line(described: Callable[..., Any]) -> str:
    """What a function's docstring says, without its indentation."""
    return " ".join((described.__doc__ or "").split())


@app.command()
def explain(check: Annotated[str, typer.Argument(help="a name from draftproof list")]) -> None:
    """Say what a check claims, how it decides, and what it costs."""
    try:
        module = stored(check)
    except KeyError as error:
        raise usage(str(error.args[0])) from error
    lines = getattr(module, "LEDGER", module.NAME)
    names = (lines,) if isinstance(lines, str) else lines
    share = sum(SHARES.get(name, 0.0) for name in names)
    cost = f"{share:.0%} of the budget" if share else "none: it decides without chance"
    Console().print(
        f"[bold]{module.NAME}[/]: {module.TITLE}\n"
        f"claims: {module.CLAIM}\n"
        f"how: {in_a_line(module.check)}\n"
        f"formula: {EXPLAINED[module.NAME].formula}\n"
        f"blind to: {EXPLAINED[module.NAME].blind}\n"
        f"on what: {DECODED if module in DECODING else in_a_line(module.plans)}\n"
        f"needs: {', '.join(module.NEEDS) or 'no ability'}\n"
        f"false-alarm probability: {cost}\n"
        f"alone: draftproof {'decode' if module in DECODING else f'verify --check {module.NAME}'}"
    )
