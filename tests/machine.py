"""A state machine over the folded sampler: its model is the reference.

It plays the judge's own commands; machine_judge.py judges what they showed.
"""

from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from oracle.judge.checks import equality
from oracle.judge.context import as_inputs, constant, query_rows
from oracle.judge.drive import Driver
from oracle.judge.loading import build
from oracle.judge.protocol import Factory, Tensors
from oracle.judge.script import (
    Accept,
    Command,
    Eager,
    Load,
    Observe,
    Plan,
    Poison,
    Read,
    Replay,
    Reseed,
    Reweight,
    repeated,
)
from oracle.judge.trial import COMBINATIONS, Trial, placed
from oracle.judge.verdict import errored
from oracle.workloads.synthetic import Synthetic, sampling_parameters

from .judging import FOLDED, context
from .machine_judge import JudgedMachine
from .strategies import DTYPES

SMALL, LARGE = 2, 5
DRAFTS, VOCABULARY = 2, 19
WORKLOAD = Synthetic()
ROWS = st.integers(1, LARGE)
SEEDS = st.integers(0, 2**31)
PICKS = st.integers(0, 63)
TIMES = st.integers(0, 2)
# No share of few equal probabilities is near them: what a cut keeps is then beyond doubt.
SHARES = torch.tensor([0.37, 0.83, 1.0])
LIKING = 4.0
LABELS = {"head": "head.weight", "w1": "markov.w1", "w2": "markov.w2"}
loaded = precondition(lambda machine: machine.current)
acceptable = precondition(lambda machine: machine.block)


class EngineMachine(JudgedMachine):
    """The folded sampler under the judge's commands; the model is the reference.

    current: the name of what is loaded, empty before the first load.
    """

    def __init__(self) -> None:
        super().__init__()
        self.current = ""

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

    # What is loaded.

    def drawn(self, seed: int, rows: int) -> dict[str, torch.Tensor]:
        """Inputs from a seed: greedy and sampled rows mixed."""
        hidden, anchor = WORKLOAD.rows(seed, self.material, rows, query_rows(self.setting))
        return as_inputs(self.setting, hidden, anchor, *sampling_parameters(seed, rows))

    def named(self, inputs: Tensors) -> str:
        """Give inputs or a target a name that the history knows them by."""
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

    # What is accepted.

    @property
    def block(self) -> dict[str, Any]:
        """The block read last, of the machine's own; empty when poison lies over it."""
        for event in reversed(self.history.events):
            if event["verb"] in ("read", "eager"):
                return event
            if event["verb"] == "poison":
                break
        return {}

    def target(self, seed: int, liking: float) -> dict[str, torch.Tensor]:
        """A target law by the token before, which likes the drafts of the block read last."""
        drafts = self.block["outputs"]["tokens"]
        anchor = self.inputs[self.block["inputs"]]["anchor"]
        source, rows = torch.Generator().manual_seed(seed), (len(anchor),)
        table = 0.5 * torch.randint(-4, 5, (VOCABULARY, VOCABULARY), generator=source).float()
        table[torch.cat([anchor[:, None], drafts[:, :-1]], 1), drafts] += liking
        return {
            "table": table,
            "top_p": SHARES[torch.randint(0, len(SHARES), rows, generator=source)],
            "verify_len": torch.randint(0, DRAFTS + 2, rows, generator=source),
            "prefix_len": torch.randint(0, 50, rows, generator=source),
        }

    @acceptable
    @rule(
        seed=SEEDS,
        by=st.sampled_from(["chain", "block"]),
        liking=st.sampled_from([0.0, LIKING]),
        times=st.integers(1, 2),
    )
    def accept(self, seed: int, by: str, liking: float, times: int) -> None:
        """The block read last, whatever was loaded since, once or again; no buffer changes."""
        target = self.named(self.target(seed, liking))
        looks = [Observe(name) for name in self.subject.buffers()]
        commands: list[Command] = [*looks]
        for _ in range(times):
            commands += [Accept(target, by), *looks]
        self.play(*commands)

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
    parts = {"engine": engine, "source": staticmethod(source)}
    parts |= {"folder": folder} if folder else {}
    return type("EngineMachine", (EngineMachine,), parts)
