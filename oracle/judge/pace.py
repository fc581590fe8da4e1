"""How many tokens a second a subject draws, and the reference decides, on this machine."""

import time
from dataclasses import dataclass

import torch

from .context import Context, Size, as_inputs, constant, query_rows
from .coupling import couple
from .drive import stored
from .loading import build
from .margin import ARITHMETIC
from .protocol import Factory
from .trial import placed

CELLS, ROWS_MAX, DRAFTS, EVERY_ID = 2**22, 16_384, 3, 2**30
SECONDS = 0.5


@dataclass(frozen=True)
class Pace:
    """Tokens a second: drawn by the subject, and decided by the reference on known noise."""

    drawn: float
    decided: float


def measured(factory: Factory, context: Context, vocabulary: int) -> Pace:
    """Replay and couple for about half a second each at a vocabulary."""
    size = Size(min(ROWS_MAX, max(CELLS // vocabulary, 8)), DRAFTS, vocabulary)
    material = context.workload.material(context.seed, vocabulary, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(size.rows,))
    hidden, anchor = context.workload.rows(context.seed, material, size.rows, query_rows(setting))
    inputs = as_inputs(setting, hidden, anchor, *constant(size.rows, 1.0, EVERY_ID))
    subject = build(factory, placed(setting))
    subject.load({name: tensor.to(context.device) for name, tensor in inputs.items()})
    replays, start = 0, time.perf_counter()
    while replays < 2 or time.perf_counter() - start < SECONDS:
        subject.replay()
        outputs = {name: stored(tensor) for name, tensor in subject.read().items()}
        replays += 1
    drawn = replays * size.rows * DRAFTS / (time.perf_counter() - start)
    return Pace(drawn, decided(setting, inputs, outputs, context.device))


def decided(
    setting: dict[str, object],
    inputs: dict[str, torch.Tensor],
    outputs: dict[str, torch.Tensor],
    device: str,
) -> float:
    """Tokens a second of the float64 race on given noise."""
    rows = min(len(outputs["tokens"]), max(CELLS // 4 // int(str(setting["vocabulary"])), 2))
    few = {name: tensor[:rows] for name, tensor in outputs.items()}
    given = {name: tensor[:rows] for name, tensor in inputs.items()}
    noise = torch.ones(rows, DRAFTS, int(str(setting["vocabulary"])), dtype=torch.float64)
    arithmetic = ARITHMETIC[f"torch-{device.split(':', maxsplit=1)[0]}"]
    start = time.perf_counter()
    couple(setting, given, few, noise, arithmetic)
    return rows * DRAFTS / (time.perf_counter() - start)
