"""The command `decode`: a real model, decoded by a sampler under test, and judged as it goes."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.live import Live
from rich.progress import Progress
from rich.text import Text

from .judge import archive
from .judge.acceptance_figure import draw
from .judge.budget import Ledger
from .judge.decode_trial import history_of, tokens_a_step, verdicts
from .judge.decoding import Watched, watch
from .judge.loading import AdapterError, load_factory
from .judge.reading import Model
from .judge.verdict import Outcome, exit_code, worst
from .options import engine_and_device, usage
from .workloads import corpus, smollm2
from .workloads.drafter import Fitted
from .workloads.fitting import load_or_fit
from .workloads.llama import Slots
from .workloads.plain import plainly

UNKNOWN = 3
KINDS = ("vanilla", "gated", "rnn")
NAMED = {"folded": "impl.decoding.subject:factory"}
PROMPTS = ("Why is the sky blue?", "Write a limerick about a goat.", "How do I boil an egg?")


@dataclass(frozen=True)
class Opened:
    """The model, its fitted draft, and what reads a text."""

    model: smollm2.Reading
    draft: Fitted

    @property
    def reader(self) -> Model:
        """The model's own reading, by transformers, without a cache."""
        return Model(lambda text: self.model.states(text[None])[0], self.model.head)

    def request(self, question: str, **parameters: float) -> dict[str, Any]:
        """A request for the answer to a question, which ends where the model ends it."""
        prompt = torch.tensor(corpus.chat(self.model, question))
        return {"prompt": prompt, "stop": corpus.END, **parameters}

    def setting(
        self, requests: Sequence[Mapping[str, Any]], kind: str, seed: int, engine: str, device: str
    ) -> dict[str, Any]:
        """What a decoder factory is given: room for these requests, eight of them at once."""
        rows = min(len(requests), 8)
        longest = max(len(one["prompt"]) + one["length"] for one in requests)
        drafts = len(self.draft.trunk["project"]) // self.model.head.shape[1]
        length = longest + drafts
        buckets = [size for size in (1, 2, 4, 8) if size < rows] + [rows]

        def placed(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
            return {name: weight.to(device) for name, weight in weights.items()}

        return {
            "network": Slots(self.model.network, rows, length, device),
            "drafter": placed(self.draft.trunk),
            "markov": placed(self.draft.markov[kind]),
            "kind": kind,
            "buckets": buckets,
            "engine": engine,
            "device": device,
            "rule": "chain",
            "seed": seed,
        }


def opened(console: Console, folder: Path | None = None) -> Opened:
    """Open the model and load or fit its draft, behind a progress bar. MissingError: no model."""
    model = corpus.opened()
    with Progress(console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def moved(task: str, done: int, total: int) -> None:
            if task not in tasks:
                tasks[task] = progress.add_task(task, total=total)
            progress.update(tasks[task], completed=done)

        return Opened(model, load_or_fit(model, folder, moved))


class Shown:
    """The texts as they grow: accepted drafts in green, the target's own tokens plain."""

    def __init__(self, model: smollm2.Reading, questions: Sequence[str]) -> None:
        self.model = model
        self.questions = questions
        self.pieces: list[list[tuple[int, bool]]] = [[] for _ in questions]

    def add(self, step: Mapping[str, Any]) -> None:
        """Take what a step committed."""
        rows = zip(
            *(step[name].tolist() for name in ("request", "out_tokens", "kept", "correct_len")),
            strict=True,
        )
        for number, tokens, kept, accepted in rows:
            self.pieces[number] += [
                (token, place < accepted) for place, token in enumerate(tokens[:kept])
            ]

    def text(self) -> Text:
        """Everything so far."""
        found = Text()
        for question, pieces in zip(self.questions, self.pieces, strict=True):
            found.append(f"> {question}\n", style="bold")
            for token, accepted in pieces:
                if token not in corpus.END:
                    written = self.model.tokenizer.decode([token])
                    found.append(written, style="green" if accepted else "")
            found.append("\n")
        return found


def difference(model: smollm2.Reading, run: Watched, plain: Sequence[Sequence[int]]) -> list[str]:
    """A line a request: identical, or the first token that differs from plain decoding."""
    lines = []
    for number, (own, other) in enumerate(zip(run.texts, plain, strict=True)):
        pairs = list(zip(own, other, strict=False))
        places = [place for place, (one, two) in enumerate(pairs) if one != two]
        if not places and len(own) == len(other):
            lines.append(f"prompt {number + 1}: identical, {len(own)} tokens")
            continue
        place = places[0] if places else min(len(own), len(other))
        told = [
            repr(model.tokenizer.decode([text[place]])) if place < len(text) else "its end"
            for text in (own, other)
        ]
        lines.append(
            f"prompt {number + 1}: first difference at token {place}: {told[0]}, plain {told[1]}"
        )
    return lines


def summary(run: Watched) -> list[str]:
    """Acceptance length, steps, share of folded steps and why the others were eager."""
    mean, half = tokens_a_step(run)
    tokens, steps = sum(map(len, run.texts)), len(run.steps)
    lines = [f"{tokens} tokens in {steps} steps, {mean:.2f} ± {half:.2f} a row and step"]
    for name, folded, reason in (
        ("blocks", "folded", "reason"),
        ("accepts", "accept_folded", "accept_reason"),
    ):
        share = sum(step[folded] for step in run.steps) / len(run.steps)
        why = sorted({step[reason] for step in run.steps if not step[folded]})
        lines.append(f"{name} folded: {share:.0%}" + (f"; eager: {', '.join(why)}" if why else ""))
    return lines


def decode(
    prompt: Annotated[list[str] | None, typer.Option(help="a question; repeatable")] = None,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy")] = 0.0,
    top_p: Annotated[float, typer.Option(help="in (0, 1]")] = 1.0,
    top_k: Annotated[int, typer.Option(min=1, help="ids that may be drawn")] = 2**30,
    seed: Annotated[int, typer.Option(help="of the noise")] = 0,
    length: Annotated[int, typer.Option(min=1, help="new tokens at the most")] = 64,
    kind: Annotated[str, typer.Option(help=f"Markov head: {', '.join(KINDS)}")] = "vanilla",
    engine: Annotated[str, typer.Option(help="auto, emulator, cuda or eager")] = "auto",
    subject: Annotated[str, typer.Option(help="folded, or module:factory")] = "folded",
    compare: Annotated[bool, typer.Option("--compare", help="plain decoding beside it")] = False,
    save: Annotated[Path | None, typer.Option(help="folder for histories")] = None,
    figure: Annotated[Path | None, typer.Option(help="an SVG: acceptance by position")] = None,
) -> None:
    """Decode with SmolLM2, speculatively, and judge the run. Exit codes as for verify."""
    console = Console()
    engine, device = engine_and_device(engine)
    if kind not in KINDS:
        raise usage(f"kind is {kind!r}, required: one of {', '.join(KINDS)}")
    if not 0 < top_p <= 1:
        raise usage(f"top-p is {top_p}, required: in (0, 1]")
    greedy = temperature < 1e-6 or top_k == 1
    if compare and not greedy:
        raise usage("two sampled texts differ by nature, required with --compare: temperature 0")
    try:
        factory = load_factory(NAMED.get(subject, subject))
        tools = opened(console)
    except AdapterError as error:
        raise usage(str(error)) from error
    except smollm2.MissingError as error:
        console.print(f"not applicable: {error}")
        raise typer.Exit(UNKNOWN) from error
    questions = prompt or list(PROMPTS)
    asked = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "length": length}
    requests = [tools.request(question, **asked) for question in questions]
    setting = tools.setting(requests, kind, seed, engine, device)
    decoder: Any = factory(setting)
    shown = Shown(tools.model, questions)
    with Live(console=console, transient=True) as live:

        def seen(step: Mapping[str, Any], _run: Watched) -> None:
            shown.add(step)
            live.update(shown.text())

        run = watch(decoder, requests, seen)
    console.print(shown.text())
    plain = plainly(setting["network"], requests) if compare else []
    for line in [*summary(run), *(difference(tools.model, run, plain) if compare else [])]:
        console.print(line, highlight=False)
    if figure is not None:
        console.print(draw(run.places, f"{kind}, T = {temperature:g}", figure))
    beside = dict(enumerate(plain))
    again = "draftproof " + " ".join(shlex.quote(word) for word in sys.argv[1:])
    notes = {"name": decoder.describe()["name"], "reproduce": again}
    history = history_of(run, tools.reader, f"{kind}, T {temperature:g}", setting, beside, notes)
    raise typer.Exit(told(history, save, console))


def told(history: Any, save: Path | None, console: Console) -> int:
    """Judge, print a line a check, store what was asked for; returns the exit code."""
    outcomes, ledger = [], Ledger()
    for result in verdicts(history, ledger):
        verdict = result.verdict
        outcomes.append(verdict.outcome)
        if verdict.outcome is Outcome.NOT_APPLICABLE:
            continue
        sees = f"; sees: {verdict.effect}" if verdict.effect else ""
        line = f"{verdict.outcome.value}: {result.check}: {verdict.reason}{sees}"
        console.print(line, markup=False, highlight=False)
        if save is not None:
            archive.store(result, save / result.check, history.reproduce, dict(history.environment))
    spent = f"false-alarm probability spent {ledger.total():.2g} of {ledger.alpha:g}"
    console.print(f"{worst(outcomes)}; {spent}; exit code {exit_code(outcomes)}", highlight=False)
    return exit_code(outcomes)
