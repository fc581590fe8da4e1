"""How many tokens a second a subject draws, and the reference decides, on this machine."""

import time
from dataclasses import dataclass

import torch

from .context import Context, as_inputs, constant, query_rows
from .coupling import block_noise, couple
from .drive import Driver
from .history import History
from .loading import build
from .margin import ARITHMETIC
from .protocol import Factory
from .script import Load, Plan, repeated
from .trial import Trial, placed

CELLS, ROWS_MAX, DRAFTS, EVERY_ID = 2**21, 4096, 3, 2**30
SECONDS, REPLAYS_MAX = 0.5, 64


@dataclass(frozen=True)
class Pace:
    """Tokens a second: drawn by the subject, and decided by the reference on known noise."""

    drawn: float
    decided: float


def measured(factory: Factory, context: Context, vocabulary: int) -> Pace:
    """Replay for about half a second at a vocabulary, and decide a few of the rows."""
    rows = min(ROWS_MAX, max(CELLS // vocabulary, 8))
    material = context.workload.material(context.seed, vocabulary, torch.float32)
    setting = context.setting(material, drafts=DRAFTS, buckets=(rows,))
    hidden, anchor = context.workload.rows(context.seed, material, rows, query_rows(setting))
    inputs = as_inputs(setting, hidden, anchor, *constant(rows, 1.0, EVERY_ID))
    plan = Plan("pace", f"V = {vocabulary}", setting, {"x": inputs})
    subject = build(factory, placed(setting))
    history = Trial(factory, context).opened(plan, subject, context)
    driver = Driver(subject, plan, history)
    driver.play([Load("x"), *repeated(1)])
    replays, start = 0, time.perf_counter()
    while time.perf_counter() - start < SECONDS and replays < REPLAYS_MAX:
        driver.play(repeated(1))
        replays += 1
    drawn = replays * rows * DRAFTS / (time.perf_counter() - start)
    return Pace(drawn, decided(history, max(CELLS // 4 // vocabulary, 2)))


def decided(history: History, most: int) -> float:
    """Tokens a second that the reference decides; at most `most` rows of the last block."""
    *_, replay, read = history.events
    inputs = {name: tensor[:most] for name, tensor in history.inputs["x"].items()}
    outputs = {name: tensor[:most] for name, tensor in read["outputs"].items()}
    rows = len(outputs["tokens"])
    start = time.perf_counter()
    noise = block_noise(history.setting, {**replay, "rows": rows})
    arithmetic = ARITHMETIC[history.description["stages"]]
    couple(history.setting, inputs, outputs, noise, arithmetic)
    return rows * DRAFTS / (time.perf_counter() - start)
