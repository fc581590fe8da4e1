"""What the target says: argmax accepts, and the law behind temperature, top-k and top-p."""

import torch

from ...reference import acceptance
from ...reference.filters import target_law
from ..margin import UNIT
from .accepts import ALL, fields, numbers
from .form import Entry, case, group, within

OPERATIONS = {
    "accept_greedy": "candidates [B, K + 1] (anchor, drafts), target logits [B, K + 1, V], "
    "verify_len [B], prefix_len [B]: keeps drafts that equal the target's argmax; fields as accept",
    "target_law": "logits [B, V], clamped temperature [B], top_k [B], top_p [B]: softmax(l / T), "
    "top-k, top-p, renormalised after each; an id that is dropped has exactly 0",
}


def argmax() -> list[Entry]:
    """Argmax accepts: ties, cuts of every length, a NaN before, at and after the end."""
    level = [[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 0.0, 3.0]]
    nan = [torch.nan, 0.0, 0.0]
    written = {
        "whole": ([9, 0, 1], level),
        "higher-of-tie": ([9, 1, 1], level),
        "second": ([9, 0, 2], level),
        "nan-first": ([9, 0, 1], [nan, *level[1:]]),
        "nan-last": ([9, 0, 1], [*level[:2], nan]),
        "nan-past-the-end": ([9, 1, 1], [*level[:2], nan]),
        "masked": ([9, 2, 2], [[-torch.inf, -torch.inf, 0.0]] * 3),
    }
    cases = []
    for name, (candidates, logits) in written.items():
        for rows in range(4):
            inputs = {
                "candidates": torch.tensor([candidates]),
                "logits": numbers([logits]),
                "verify_len": torch.tensor([rows]),
                "prefix_len": torch.tensor([41]),
            }
            found = acceptance.accept_greedy(*inputs.values())
            cases.append(case(f"argmax-{name}-{rows}", inputs, fields(found)))
    return cases


def filtered() -> list[Entry]:
    """Temperature, top-k with ties at the bound, top-p beside a bound, rows of a batch."""
    logits = [[2.0, 1.0, 1.0, 1.0, -1.0, -torch.inf]] * 7
    heat = [1.0, 1.0, 1.0, 0.5, 4.0, 1.0, 1.0]
    top_k = [ALL, 2, 3, 2, 5, 1, 4]
    top_p = [1.0, 1.0, 0.5, 0.9375, 0.75, 1.0, 0.25]
    law = [[3.0, 3.0, 3.0, 3.0]] * 3
    written = {
        "batch": (logits, heat, top_k, top_p),
        "equal": (law, [1.0, 0.25, 7.0], [3, ALL, 2], [0.625, 0.625, 1.0]),
        "cold": ([[2.0, 1.0, -torch.inf]], [2.0**-16], [ALL], [0.5]),
        "one-id": ([[-5.0]], [1.0], [ALL], [0.03125]),
    }
    cases = []
    for name, parts in written.items():
        values, limit = numbers(parts[0]), torch.tensor(parts[2])
        warm, share = numbers(parts[1]), numbers(parts[3])
        p = target_law(values.double(), warm.double(), limit, share.double())
        scale = float((values[values.isfinite()].abs().max() / warm.min()).item())
        # Softmax of float32 quotients, and three sums of V terms.
        relative = UNIT * (4 * scale + 6 + 3 * values.shape[-1])
        inputs = {"logits": values, "temperature": warm, "top_k": limit, "top_p": share}
        cases.append(case(name, inputs, {"law": within(p, relative)}))
    return cases


def groups() -> list[Entry]:
    """Every group on target rows."""
    return [
        group(
            "argmax",
            "accept_greedy",
            ["J04", "H07", "G09"],
            "greedy speculation differs from plain greedy: ties, cuts, NaN",
            [
                "ohdearquant/lattice#280",
                "sgl-project/sglang#24965",
                "vllm-project/vllm#53029",
            ],
            argmax(),
        ),
        group(
            "filters",
            "target_law",
            ["E04", "E05", "E06", "G18"],
            "temperature, top-k or top-p of another row or of none; all ids tied at the bound stay",
            [
                "ohdearquant/lattice#388",
                "vllm-project/vllm#9834",
                "NVIDIA/TensorRT-LLM#12588",
                "flashinfer-ai/flashinfer#3774",
            ],
            filtered(),
        ),
    ]
