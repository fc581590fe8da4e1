"""A state machine over the folded sampler: its model is the reference.

The machine plays the judge's own commands, so every run is a history. A run that fails is stored,
and `draftproof judge` of the file answers the same without the sampler.
"""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import torch
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
)

from oracle.judge.budget import Ledger
from oracle.judge.checks import equality, path
from oracle.judge.context import as_inputs, constant, query_rows
from oracle.judge.drive import Driver
from oracle.judge.history import save
from oracle.judge.loading import build
from oracle.judge.protocol import Factory, Tensors
from oracle.judge.script import (
    Command,
    Eager,
    Load,
    Plan,
    Poison,
    Read,
    Replay,
    Reseed,
    Reweight,
    repeated,
)
from oracle.judge.trial import COMBINATIONS, Trial, judge_again, judged, placed
from oracle.judge.verdict import Outcome, Verdict, errored
from oracle.workloads.synthetic import Synthetic, sampling_parameters

from .judging import FOLDED, context
from .strategies import DTYPES

SMALL, LARGE = 2, 5
DRAFTS, VOCABULARY = 2, 19
FINE = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
WORKLOAD = Synthetic()
ROWS = st.integers(1, LARGE)
SEEDS = st.integers(0, 2**31)
PICKS = st.integers(0, 63)
TIMES = st.integers(0, 2)
LABELS = {"head": "head.weight", "w1": "markov.w1", "w2": "markov.w2"}
KEPT = Path(".draftproof")
loaded = precondition(lambda machine: machine.current)


class EngineMachine(RuleBasedStateMachine):
    """The folded sampler under the judge's commands; the model is the reference.

    engine, source: what is put under test. folder: where a failing run is stored.
    """

    engine: ClassVar[str] = "emulator"
    source: ClassVar[Factory] = staticmethod(FOLDED)
    folder: ClassVar[Path] = KEPT
    examples: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.current = ""
        self.failed = False
        self.ledger = Ledger()

    @initialize(
        combination=st.sampled_from(COMBINATIONS),
        forward=st.sampled_from(["given", "backbone"]),
        dtype=st.sampled_from(DTYPES),
        padding=st.sampled_from([0, 3]),
        anchor_row=st.booleans(),
        seed=SEEDS,
    )
    def build(self, combination, forward, dtype, padding, anchor_row, seed) -> None:
        """Build and capture one sampler."""
        type(self).examples += 1
        base = context(combination, engine=self.engine, seed=seed)
        self.padding = padding
        self.material = WORKLOAD.material(seed, VOCABULARY, dtype, padding)
        self.setting = base.setting(
            self.material,
            drafts=DRAFTS,
            buckets=(SMALL, LARGE),
            forward=forward,
            sample_from_anchor=anchor_row,
        )
        self.inputs: dict[str, Tensors] = {}
        self.weights = [name for name in ("head", "w1", "w2") if name in self.setting]
        self.owned = placed(self.setting)
        self.subject: Any = build(type(self).source, self.owned)
        plan = Plan("equality", "state machine", self.setting, self.inputs)
        self.trial = Trial(type(self).source, base)
        self.history = self.trial.opened(plan, self.subject, base)
        self.driver = Driver(self.subject, plan, self.history)
        if "NOISE" in self.driver.abilities:
            assert self.driver.noise().get("block", 0) == 0, "the capture drew from the noise"
            self.play(Reseed(seed))

    # What is played is judged at once.

    def play(self, *commands: Command) -> None:
        """Play commands, and judge what they showed."""
        start = len(self.history.events)
        self.trial.play(self.driver, self.history, commands)
        self.judge(start)

    def judge(self, start: int) -> None:
        """Judge the events from `start` on; with the block before, whose noise state they follow.

        Loads and weights of before are told again: they say what is in force.
        """
        seen = self.history.events
        blocks = [n for n, event in enumerate(seen[:start]) if event["verb"] in ("replay", "eager")]
        first = blocks[-1] if blocks else 0
        told = [event for event in seen[:first] if event["verb"] in ("load", "reweight")]
        recent = replace(self.history, events=told + seen[first:])
        for check in (equality, path) if recent.of("replay") else (equality,):
            answer = judged(check, recent, self.ledger)
            assert isinstance(answer, Verdict)
            if answer.outcome not in FINE:
                self.fail(check, answer)

    def fail(self, check: ModuleType, answer: Verdict) -> None:
        """Store the run and raise."""
        self.failed = True
        stem = self.folder / f"machine-{self.engine}"
        save(replace(self.history, check=check.NAME), stem)
        told = replace(answer, reason=f"{answer.reason}; again: draftproof judge {stem}.json")
        told.raise_if_violated()

    def teardown(self) -> None:
        """The whole run at once, as `draftproof judge` would see it."""
        if self.current and not self.failed and self.history.of("read", "eager"):
            answer = judge_again(self.history, self.ledger)
            if answer.outcome not in FINE:
                self.fail(equality, answer)

    # What is loaded.

    def drawn(self, seed: int, rows: int) -> dict[str, torch.Tensor]:
        """Inputs from a seed: greedy and sampled rows mixed."""
        hidden, anchor = WORKLOAD.rows(seed, self.material, rows, query_rows(self.setting))
        return as_inputs(self.setting, hidden, anchor, *sampling_parameters(seed, rows))

    def named(self, inputs: Tensors) -> str:
        """Give inputs a name that the history knows them by."""
        name = f"inputs {len(self.inputs)}"
        self.inputs[name] = inputs
        return name

    def load_now(self, inputs: Tensors, times: int, *before: Command, edit: bool = False) -> None:
        """Load inputs under a new name, and run blocks of them."""
        self.current = self.named(inputs)
        self.play(*before, Load(self.current, edit), *repeated(times, redraw=True))

    @property
    def rows(self) -> int:
        """Rows of what is loaded."""
        return len(self.inputs[self.current]["anchor"])

    @rule(seed=SEEDS, rows=ROWS, times=TIMES)
    def load(self, seed: int, rows: int, times: int) -> None:
        """Any batch up to the largest bucket."""
        self.load_now(self.drawn(seed, rows), times)

    @rule(seed=SEEDS, rows=ROWS, heat=st.sampled_from([0.0, 50.0]), times=TIMES)
    def load_all_greedy(self, seed: int, rows: int, heat: float, times: int) -> None:
        """Every row greedy, by its temperature or by its top_k."""
        heats, top_ks = constant(rows, heat, 1 if heat else 40)
        self.load_now({**self.drawn(seed, rows), "temperature": heats, "top_k": top_ks}, times)

    @loaded
    @rule(seed=SEEDS, times=TIMES)
    def change_bucket(self, seed: int, times: int) -> None:
        """A batch of the other bucket."""
        self.load_now(self.drawn(seed, 1 if self.rows > SMALL else LARGE - 1), times)

    @loaded
    @rule(seed=SEEDS, which=st.integers(0, 4), times=TIMES)
    def edit_in_place(self, seed: int, which: int, times: int) -> None:
        """The tensors of the last load hold new values: one field, or all of them."""
        fresh, held = self.drawn(seed, self.rows), self.inputs[self.current]
        fields = [sorted(fresh)[which]] if which < len(fresh) else sorted(fresh)
        self.load_now({**held, **{field: fresh[field] for field in fields}}, times, edit=True)

    @loaded
    @rule(seed=SEEDS, times=TIMES)
    def permute(self, seed: int, times: int) -> None:
        """The same requests in other rows."""
        order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(seed))
        held = self.inputs[self.current]
        self.load_now({field: tensor[order] for field, tensor in held.items()}, times)

    @rule(pick=PICKS, which=st.integers(0, 1), seed=SEEDS, rows=ROWS, times=TIMES)
    def poison(self, pick: int, which: int, seed: int, rows: int, times: int) -> None:
        """Whatever a buffer held before the load, the load and the replay make good."""
        buffers = self.subject.buffers()
        names = sorted(name for name, entry in buffers.items() if entry["role"] != "state")
        self.load_now(self.drawn(seed, rows), times, Poison(names[pick % len(names)], which))

    # What is run.

    @loaded
    @rule(times=st.integers(1, 3))
    def replay(self, times: int) -> None:
        """Blocks of the same load, each with fresh noise."""
        self.play(*repeated(times, redraw=True))

    @rule(seed=SEEDS, rows=ROWS)
    def eager(self, seed: int, rows: int) -> None:
        """A block outside the recording: what is loaded stays loaded, the noise moves on."""
        self.play(Eager(self.named(self.drawn(seed, rows))))

    @precondition(lambda machine: "NOISE" in machine.driver.abilities)
    @rule(seed=st.integers(0, 3), times=TIMES)
    def reseed(self, seed: int, times: int) -> None:
        """Few seeds, so that one comes back."""
        self.play(Reseed(seed), *repeated(times if self.current else 0, redraw=True))

    # What is borrowed.

    def weight(self, seed: int, pick: int) -> dict[str, torch.Tensor]:
        """New values for one weight."""
        name = self.weights[pick % len(self.weights)]
        dtype = self.material.head.dtype
        other = WORKLOAD.material(seed, VOCABULARY, dtype, self.padding)
        return {name: getattr(other, name)}

    @rule(seed=SEEDS, pick=PICKS)
    def update_weight(self, seed: int, pick: int) -> None:
        """New values where the old ones lay: the next block uses them."""
        self.play(Reweight(self.weight(seed, pick)))

    @loaded
    @rule(seed=SEEDS, pick=PICKS)
    def move_weight(self, seed: int, pick: int) -> None:
        """New values in other memory: a replay is refused until the owner puts the old one back."""
        start = len(self.history.events)
        moved = self.weight(seed, pick)
        ((name, values),) = moved.items()
        # A block that is run all the same is judged by what the owner holds.
        self.history.events.append({"verb": "reweight", "weights": moved})
        held = self.owned[name].data
        self.owned[name].data = values.to(held.device, copy=True)
        try:
            self.driver.play([Replay(), Read()])
        except RuntimeError as error:
            self.refused(str(error), f"recapture needed: {LABELS[name]} ")
        else:
            self.judge(start)
            self.refused("a block was run", f"recapture needed: {LABELS[name]} ")
        finally:
            self.owned[name].data = held
        self.play(*repeated(1, redraw=True))

    def refused(self, observed: str, required: str) -> None:
        """Take the moved weight back when the replay was refused by name; raise otherwise."""
        if not observed.startswith(required):
            self.history.error = f"a weight moved: observed {observed!r}, required {required!r}"
            self.fail(equality, errored(self.history.error))
        self.history.events.pop()


def machine(
    engine: str, source: Factory = FOLDED, folder: Path | None = None
) -> type[EngineMachine]:
    """A machine of its own for an engine and a subject."""
    parts = {"engine": engine, "source": staticmethod(source), "folder": folder or KEPT}
    return type("EngineMachine", (EngineMachine,), parts)
