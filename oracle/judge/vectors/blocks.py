"""Markov steps of each head, and whole blocks from hidden states to tokens."""

from typing import Any

import torch

from ...reference import choice, draft, logits, noise
from ..binding import bound_head
from ..walk import as_numpy, bias_bound, walk
from .choices import refuse_near_ties
from .form import Entry, case, group, packed, recipe, seed_of, unpacked, within

OPERATIONS = {
    "markov_bias": "markov vanilla, gated or rnn; previous [B, K], hidden [B, K, D], weights w1, "
    "w2, w3, b3: the bias of each step in the dtype of w2; a state starts at zero and is carried",
    "draft_block": "a block with counter noise: head [W, D] (rows past vocabulary never win), "
    "hidden [B, Q, D] (Q = K + 1: row 0 is dropped), anchor, temperature as asked for, top_k; "
    "noise by seed [1] and block. Markov bias of each step from the token before it; markov none: "
    "every row takes the argmax. step_logits as kept, in step_dtype",
}
ROWS, DRAFTS, VOCABULARY, STORED, WIDTH, RANK = 3, 4, 11, 16, 6, 4
TALL = {"gated": RANK, "rnn": 3 * RANK}
WIDE = {"gated": WIDTH + RANK, "rnn": 2 * RANK + WIDTH}


def factors(name: str, kind: str, dtype: str) -> Entry:
    """The weights of a head by recipe; small multiples of powers of two, so products are exact."""
    made = {
        part: recipe(f"{name}-{part}", (VOCABULARY, RANK), dtype, 15, 3) for part in ("w1", "w2")
    }
    if kind in TALL:
        made["w3"] = recipe(f"{name}-w3", (TALL[kind], WIDE[kind]), dtype, 15, 4)
        made["b3"] = recipe(f"{name}-b3", (TALL[kind],), dtype, 15, 4)
    return made


def plain(inputs: Entry) -> dict[str, Any]:
    """Inputs as tensors."""
    return {name: unpacked(part) for name, part in inputs.items()}


def biases(kind: str, dtype: str) -> Entry:
    """Four steps of a head; vanilla bit for bit, the others within what their roundings allow."""
    name = f"{kind}-{dtype}"
    previous = torch.tensor(
        [[seed_of(f"{name}-{k}-{b}") % VOCABULARY for k in range(DRAFTS)] for b in range(ROWS)]
    )
    inputs = {
        "markov": kind,
        "previous": packed(previous),
        "hidden": recipe(f"{name}-hidden", (ROWS, DRAFTS, WIDTH), dtype, 15, 4),
        **factors(name, kind, dtype),
    }
    given = plain(inputs) | {"vocabulary": VOCABULARY}
    head = bound_head(given, given["hidden"])
    state, steps = head.started(previous[:, 0]), []
    for k in range(DRAFTS):
        bias, state = head.step(previous[:, k], head.at(k), state)
        steps.append(bias)
    found = torch.stack(steps, 1)
    if kind == "vanilla":
        return case(name, inputs, {"bias": found.to(getattr(torch, dtype))})
    bound = float(bias_bound(given, given["hidden"], previous).max())
    return case(name, inputs, {"bias": within(found, 0.0, bound)})


def block(name: str, kind: str, dtype: str = "float32", **changed: Any) -> Entry:
    """One block. ValueError when rounding could decide a token of it.

    changed: from_anchor, block, padding, mup, step_dtype, temperature, top_k where not the usual.
    """
    queries = DRAFTS if changed.get("from_anchor", True) else DRAFTS + 1
    real = unpacked(recipe(f"{name}-head", (VOCABULARY, WIDTH), dtype, 15, 3))
    padding = torch.full((STORED - VOCABULARY, WIDTH), changed.get("padding", 0.0)).to(real.dtype)
    inputs: Entry = {
        "markov": kind,
        "vocabulary": VOCABULARY,
        "drafts": DRAFTS,
        "step_dtype": changed.get("step_dtype", "float32"),
        "mup": packed(torch.tensor([changed.get("mup", 1.0)])),
        "head": packed(torch.cat([real, padding])),
        "hidden": recipe(f"{name}-hidden", (ROWS, queries, WIDTH), dtype, 15, 3),
        "anchor": packed(torch.tensor([0, 4, VOCABULARY - 1])),
        "temperature": packed(torch.tensor(changed.get("temperature", [1.0, 0.0, 3.0]))),
        "top_k": packed(torch.tensor(changed.get("top_k", [2**30] * 3))),
        "seed": packed(torch.tensor([seed_of(name)], dtype=torch.uint64).numpy()),
        "block": changed.get("block", 0),
        **({} if kind == "none" else factors(name, kind, dtype)),
    }
    given = plain(inputs)
    rows = logits.draft_rows(given["hidden"], DRAFTS)
    base = logits.base_logits(rows, given["head"], VOCABULARY, float(given["mup"]))
    if kind == "none":
        marks = torch.stack([choice.flags(base[:, k]) for k in range(DRAFTS)], 1)
        return case(name, inputs, {"tokens": draft.greedy_block(base), "flags": marks})
    e = noise.counter_noise(ROWS, DRAFTS, VOCABULARY, given["block"], int(given["seed"][0]))
    return case(name, inputs, drafted(name, given, base, rows, e))


def drafted(
    name: str, given: dict[str, Any], base: torch.Tensor, rows: torch.Tensor, e: torch.Tensor
) -> Entry:
    """Tokens, flags and step logits of a block with a Markov head."""
    heat = choice.clamped(given["temperature"])
    greedy = choice.is_greedy(given["temperature"], given["top_k"])
    dtype = getattr(torch, given["step_dtype"])
    head = bound_head(given, rows)
    tokens, kept, marks = draft.markov_block(
        base, given["anchor"], head, heat, greedy, e, "counter", dtype
    )
    for k in range(DRAFTS):
        refuse_near_ties(name, kept[~greedy, k], heat[~greedy], e[~greedy, k])
    setting = {**given, "family": "dspark", "forward": "given", "mup": float(given["mup"])}
    bound = float(walk(setting, given, {"tokens": tokens}).bound.max())
    second = torch.from_numpy(as_numpy(kept)).topk(2, -1).values[greedy]
    if bool((second[..., 0] - second[..., 1] <= 2 * bound).any()) and bound > 0:
        raise ValueError(f"vector {name}: two logits lie within {bound}, required: a clear winner")
    written = packed(kept.to(dtype)) if bound == 0 else within(kept, 0.0, bound)
    return {"tokens": tokens, "flags": marks, "step_logits": written}


def layouts() -> list[Entry]:
    """Groups on heads, and on which rows a block reads."""
    kinds = ("vanilla", "gated", "rnn")
    shifted = ["sgl-project/SpecForge#473", "vllm-project/speculators#806"]
    heads = [biases("vanilla", "float32"), biases("vanilla", "bfloat16")]
    heads += [biases(kind, "float32") for kind in kinds[1:]]
    written = (
        (
            "markov",
            "markov_bias",
            ["H05"],
            "the bias is that of another token, or of a state one step off",
            shifted[1:],
            heads,
        ),
        (
            "plain",
            "draft_block",
            ["H01", "B04"],
            "a slot reads its neighbour's hidden state, token or noise",
            [*shifted, "vllm-project/vllm#43340"],
            [block(f"block-{kind}", kind) for kind in (*kinds, "none")],
        ),
        (
            "anchor-dropped",
            "draft_block",
            ["H01", "H03"],
            "draft 0 is predicted from the row of the anchor",
            [shifted[0], "sgl-project/sglang-jax#1619"],
            [block(f"dropped-{kind}", kind, from_anchor=False) for kind in (*kinds, "none")],
        ),
        (
            "padded",
            "draft_block",
            ["I01", "I08"],
            "a stored row past the vocabulary wins",
            ["sgl-project/sglang#35496", "Blaizzy/mlx-vlm#1917"],
            [
                block(f"padded-{number}-{kind}", kind, padding=pad)
                for number, pad in enumerate((64.0, -64.0))
                for kind in ("vanilla", "none")
            ],
        ),
    )
    return [group(*parts) for parts in written]


def groups() -> list[Entry]:
    """Every group on heads and blocks."""
    written = (
        (
            "low-precision",
            "draft_block",
            ["E01"],
            "tokens come from other logits than the ones that are kept",
            ["deepseek-ai/DeepSpec#31"],
            [
                block("low-bfloat16", "vanilla", "bfloat16", step_dtype="bfloat16"),
                block("low-head", "vanilla", "bfloat16"),
                block("low-mup", "vanilla", "bfloat16", mup=4.0),
            ],
        ),
        (
            "mixed-rows",
            "draft_block",
            ["F01", "E16", "E06"],
            "a row takes its neighbour's temperature, divides by zero, or heats a step twice",
            [
                "vllm-project/vllm#27077",
                "Adibvafa/CodonTransformer#20",
                "NVIDIA/TensorRT-LLM#12588",
            ],
            [
                block("mixed-heat", "vanilla", temperature=[0.5, 2.0, 6.0]),
                block("mixed-top-k", "vanilla", temperature=[4.0, 4.0, 4.0], top_k=[1, 2**30, 0]),
            ],
        ),
        (
            "later-blocks",
            "draft_block",
            ["A02", "A09"],
            "noise repeats from block to block, or is that of the capture",
            ["kekzl/imp#2013", "flashinfer-ai/flashinfer#2132"],
            [
                block(f"later-{at}", "vanilla", temperature=[4.0] * 3, block=at)
                for at in (0, 1, 2, 2**32 - 1, 2**32 + 1)
            ],
        ),
    )
    return [*layouts(), *(group(*parts) for parts in written)]
