"""Hypothesis strategies for tests of a draft sampler: settings, inputs, and scripts of commands.

Weights and hidden states come from a seed that is drawn, on a grid on which float32 is exact, so an
example is small to print and ties are common. Everything else is drawn value by value, and shrinks.
"""

from typing import Any

import torch
from hypothesis import strategies as st

from .judge.context import PROFILES, Context, as_inputs, query_rows
from .judge.protocol import Setting, Tensors
from .judge.script import Command, Eager, Load, Plan, Read, Replay
from .judge.trial import COMBINATIONS
from .workloads.synthetic import Synthetic

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
TEMPERATURES = (0.0, 1e-7, 3e-6, 1e-5, 0.3, 0.7, 1.0, 1.5, 50.0)
TOP_KS = (-1, 0, 1, 2, 40, 2**30)
SEEDS = st.integers(0, 2**32 - 1)


def combinations() -> st.SearchStrategy[tuple[str, str]]:
    """Family and dialect: dflash, dspark with race noise, dspark with counter noise."""
    return st.sampled_from(COMBINATIONS)


def context_of(combination: tuple[str, str] = ("dspark", "counter")) -> Context:
    """A context on the CPU for tests without the fixture `draftproof_context`."""
    return Context(*combination, "cpu", "eager", 0, PROFILES["smoke"], Synthetic())


@st.composite
def settings(
    draw: st.DrawFn, context: Context | None = None, *, vocabulary_max: int = 70, rows_max: int = 8
) -> dict[str, Any]:
    """A complete setting: every dtype of head and steps, padding, both query layouts, two buckets.

    context: of the subject; what it does not claim is not drawn.
    """
    context = context or context_of()
    dtype = draw(st.sampled_from(DTYPES), label="head dtype")
    vocabulary = draw(st.integers(2, vocabulary_max), label="V")
    padding = draw(st.integers(0, 20), label="W - V")
    seed = draw(SEEDS, label="seed of the weights")
    material = context.workload.material(seed, vocabulary, dtype, padding)
    largest = draw(st.integers(1, rows_max), label="Bmax")
    smaller = draw(st.integers(1, largest), label="a smaller bucket")
    step_dtype = draw(st.sampled_from((dtype, torch.float32)), label="step dtype")
    forwards = ("given", "backbone") if "FORWARD" in context.abilities else ("given",)
    return context.setting(
        material,
        drafts=draw(st.integers(1, 5), label="K"),
        buckets=tuple(sorted({smaller, largest})),
        forward=draw(st.sampled_from(forwards), label="forward"),
        sample_from_anchor=draw(st.booleans(), label="sample from anchor"),
        step_dtype=str(step_dtype).removeprefix("torch."),
    )


@st.composite
def inputs(draw: st.DrawFn, setting: Setting, *, rows: int | None = None) -> Tensors:
    """The inputs of one load: greedy and sampled rows mixed, edges of both among them.

    rows: B; drawn up to the largest bucket when it is left out.
    """
    count = rows or draw(st.integers(1, setting["buckets"][-1]), label="B")
    vocabulary, head = setting["vocabulary"], setting["head"]
    seed = draw(SEEDS, label="seed of the hidden states")
    source = torch.Generator().manual_seed(seed)
    shape = (count, query_rows(setting), head.shape[1])
    hidden = 0.25 * torch.randint(-4, 5, shape, generator=source).float()

    def column(values: st.SearchStrategy[Any], label: str) -> list[Any]:
        return draw(st.lists(values, min_size=count, max_size=count), label=label)

    anchor = torch.tensor(column(st.integers(0, vocabulary - 1), "anchor"))
    heat = torch.tensor(column(st.sampled_from(TEMPERATURES), "temperature"), dtype=torch.float32)
    top_k = torch.tensor(column(st.sampled_from(TOP_KS), "top_k"))
    return as_inputs(setting, hidden.to(head.dtype), anchor, heat, top_k)


@st.composite
def scripts(
    draw: st.DrawFn, context: Context | None = None, *, blocks_max: int = 6, check: str = "equality"
) -> Plan:
    """A plan: a setting, and blocks that load, edit in place, replay again or run eagerly.

    context: of the subject, which says whether it runs eagerly. check: what will judge the plan;
    'equality' wants every token to be the reference's, 'bounds' wants it to be an id.
    """
    context = context or context_of()
    setting = draw(settings(context), label="setting")
    given: dict[str, Tensors] = {}
    commands: list[Command] = []
    kinds = ["load", "edit", "replay", *(["eager"] if "EAGER" in context.abilities else [])]
    loaded = ""
    for _ in range(draw(st.integers(1, blocks_max), label="blocks")):
        kind = draw(st.sampled_from(kinds), label="block") if loaded else "load"
        if kind == "replay":
            commands += [Replay(), Read()]
            continue
        name = f"inputs {len(given)}"
        rows = len(given[loaded]["anchor"]) if kind == "edit" else None
        given[name] = draw(inputs(setting, rows=rows), label=name)
        if kind == "eager":
            commands.append(Eager(name))
            continue
        loaded = name
        commands += [Load(name, edit=kind == "edit"), Replay(), Read()]
    return Plan(check, f"{len(commands)} commands", setting, given, tuple(commands))
