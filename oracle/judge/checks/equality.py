"""Token parity: the reference draws the same tokens from the same noise."""

from dataclasses import replace
from itertools import product

from ...workloads.synthetic import sampling_parameters
from .. import foretold
from ..budget import Ledger
from ..context import Context, as_inputs, query_rows
from ..history import History
from ..parity import parity
from ..protocol import Tensors
from ..script import Command, Eager, Load, Observe, Plan, Read, Replay
from ..verdict import Outcome, Verdict
from ..walk import dtype_of
from .sampling import head_weights

NAME = "equality"
TITLE = "token parity under the same noise"
CLAIM = "Tokens, kept logits and flags equal the float64 reference's, but for counted near ties."
NEEDS: tuple[str, ...] = ()

BUCKETS = (1, 4, 8)
LIVE_ROWS = (8, 3, 1, 5, 2, 7, 4, 6)
# More values a step than any GPU of today draws in one call of each thread.
LAYOUT_ROWS, LAYOUT_VOCABULARY = 64, 20_000


def plan(context: Context, case: str, dtype: str, **shape: object) -> Plan:
    """Blocks of growing and shrinking batches, folded and, where claimed, eager."""
    vocabulary = int(str(shape.pop("vocabulary")))
    padding = int(str(shape.pop("padding", 0)))
    markov, mup = str(shape.pop("markov", "vanilla")), float(str(shape.pop("mup", 1.0)))
    material = context.workload.material(context.seed, vocabulary, dtype_of(dtype), padding)
    setting = context.setting(material, buckets=BUCKETS, **shape)  # type: ignore[arg-type]
    setting |= head_weights(context.seed, markov, setting) | ({"mup": mup} if mup != 1 else {})
    inputs: dict[str, Tensors] = {}
    commands: list[Command] = []
    blocks = min(3, context.profile.blocks) if context.workload.real else context.profile.blocks
    for number in range(blocks):
        rows = LIVE_ROWS[number % len(LIVE_ROWS)]
        seed = context.seed + number
        hidden, anchor = context.workload.rows(seed, material, rows, query_rows(setting))
        heat, top_k = sampling_parameters(seed, rows)
        name = f"block {number}"
        inputs[name] = as_inputs(setting, hidden, anchor, heat, top_k)
        commands += [Load(name), Replay(), Read()]
        if "EAGER" in context.abilities and number % 2:
            commands.append(Eager(name))
    return Plan(NAME, case, setting, inputs, tuple(commands))


def heads(context: Context) -> list[tuple[str, str]]:
    """Every other head in two dtypes; where there are no more than two, one of them each."""
    dtypes = context.profile.dtypes
    if len(dtypes) > 2:
        return list(product(("gated", "rnn"), dtypes[:2]))
    return [("gated", dtypes[-1]), ("rnn", dtypes[0])]


def plans(context: Context) -> list[Plan]:
    """Every dtype, both query layouts, padding, another step dtype, and the own draft model."""
    sizes = {"float32": 97, "bfloat16": 301, "float16": 33}
    cases = [
        plan(context, dtype, dtype, vocabulary=sizes[dtype], padding=19, drafts=3)
        for dtype in context.profile.dtypes
    ]
    if context.family == "dspark":
        cases.append(
            plan(
                context,
                "anchor row dropped, float32 steps",
                "bfloat16",
                vocabulary=64,
                drafts=4,
                sample_from_anchor=False,
                step_dtype="float32",
            )
        )
    if context.family == "dspark" and "HEADS" in context.abilities:
        cases += [
            plan(
                context,
                f"{kind} head, {dtype}",
                dtype,
                vocabulary=45,
                drafts=4,
                markov=kind,
                mup=2.0,
            )
            for kind, dtype in heads(context)
        ]
    if context.forward == "backbone":
        cases.append(
            plan(context, "own draft model", "float32", vocabulary=97, drafts=3, forward="backbone")
        )
    on_cuda = context.device.startswith("cuda") and context.dialect == "race"
    if on_cuda and "NOISE" in context.abilities:
        cases.append(layout_plan(context))
    return cases


def layout_plan(context: Context) -> Plan:
    """Large race buffers, looked at after each of three replays of one load."""
    rows = 4 if context.workload.real else LAYOUT_ROWS
    material = context.workload.material(context.seed, LAYOUT_VOCABULARY, dtype_of("float32"))
    setting = context.setting(material, drafts=2, buckets=(rows,))
    hidden, anchor = context.workload.rows(context.seed, material, rows, query_rows(setting))
    inputs = as_inputs(setting, hidden, anchor, *sampling_parameters(context.seed, rows))
    names = sorted(name for name, role in context.buffers.items() if role == "noise")
    looks: tuple[Command, ...] = tuple(Observe(name) for name in names)
    commands = (Load("x"), *((Replay(), *looks, Read(only=("tokens",))) * 3))
    return Plan(NAME, "noise foretold", setting, {"x": inputs}, commands)


def check(history: History, _ledger: Ledger) -> Verdict:
    """Walk every block; judge tokens, kept logits, flags, parameters and the noise consumed.

    Race noise on CUDA is also told in advance, so that a draw from another offset is named.
    """
    told = foretold.judge(history)
    if told is not None and told.outcome is Outcome.VIOLATED:
        return told
    answer = parity(history)
    if told is None or answer.outcome is not Outcome.HOLDS:
        return answer
    if told.outcome is not Outcome.HOLDS:
        return told
    return replace(answer, effect=f"{answer.effect}; {told.reason}: {told.effect}")
