"""Settings of a subject with any heads, inputs for them, and one folded block of it."""

from typing import Any

import torch
from torch import Tensor

from impl.subject import Subject

B, K, V, W, D, R = 3, 4, 13, 16, 8, 4
TALL = {"vanilla": 0, "gated": R, "rnn": 3 * R}
WIDE = {"gated": D + R, "rnn": 2 * R + D}
ALL = 2**30


def weights(kind: str, dtype: torch.dtype, seed: int = 3) -> dict[str, Tensor]:
    """Random factors of a head, and the affine map of the kinds that have one."""
    draw = torch.Generator().manual_seed(seed)
    made = {"w1": torch.randn(V, R, generator=draw), "w2": torch.randn(V, R, generator=draw)}
    if kind != "vanilla":
        made["w3"] = torch.randn(TALL[kind], WIDE[kind], generator=draw)
        made["b3"] = torch.randn(TALL[kind], generator=draw)
    return {name: value.to(dtype) for name, value in made.items()}


def setting(device: str, kind: str = "rnn", dialect: str = "counter", **more: Any) -> Any:
    """A setting of a subject over random bfloat16 weights, on a device."""
    draw = torch.Generator().manual_seed(5)
    engine = "cuda" if device == "cuda" else "emulator"
    found = {
        "family": "dspark",
        "dialect": dialect,
        "forward": "given",
        "buckets": (2, 4),
        "drafts": K,
        "vocabulary": V,
        "sample_from_anchor": True,
        "step_dtype": "float32",
        "head": torch.randn(W, D, generator=draw).bfloat16(),
        "markov": kind,
        **weights(kind, torch.bfloat16),
        "device": device,
        "engine": engine,
        "seed": 11,
        **more,
    }
    return {
        name: value.to(device) if torch.is_tensor(value) else value for name, value in found.items()
    }


def inputs(made: Any, seed: int = 0, rows: int = B) -> dict[str, Tensor]:
    """Random inputs for a setting: a sampled row, a greedy one, and further sampled ones."""
    draw = torch.Generator().manual_seed(seed)
    query = K if made["sample_from_anchor"] else K + 1
    heat = torch.ones(rows)
    heat[1:2] = 0
    found = {
        "hidden": torch.randn(rows, query, D, generator=draw).to(made["head"].dtype),
        "anchor": torch.randint(V, (rows,), generator=draw),
        "temperature": heat,
        "top_k": torch.full((rows,), ALL),
    }
    return {name: value.to(made["device"]) for name, value in found.items()}


def folded(subject: Subject, given: dict[str, Tensor]) -> dict[str, Tensor]:
    """One block, which must come from a replay."""
    subject.load(given)
    subject.replay()
    assert subject.path()["folded"]
    return subject.read()


def device_of(engine_name: str) -> str:
    """The device that an engine records on."""
    return "cuda" if engine_name == "cuda" else "cpu"
