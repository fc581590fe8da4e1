"""Exact laws of tiny models: a drafted block, and the tokens that a verification commits."""

from typing import Any

import torch

from ...reference import law
from ...reference.committed import BLOCK, CHAIN, committed
from ...reference.draft import vanilla
from ..margin import UNIT
from .form import Entry, case, group, recipe, unpacked, within

OPERATIONS = {
    "block_law": "base logits [K, V], factors w1, w2 [V, R], anchor, temperature [1]: "
    "the probability of every block, [V, ..., V] with one axis a draft",
    "committed_law": "rule chain or block; q [K, V, V], p [K + 1, V, V]: the law of a step given "
    "the token before it (rows; row 0 before the first); coins integrated. at_least_n [V, ..., V]: "
    "P(n or more tokens are committed, the first n being these)",
}
VOCABULARY, DRAFTS = 3, 2
TARGETS = {
    "mild": ([0.25, 0.25, 0.5], [0.0, 0.5, 0.5], [0.5, 0.25, 0.25]),
    "point": ([0.25, 0.25, 0.5], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]),
}
CLAIMS = {
    "mild": ([0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]),
    "point": ([0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.5, 0.5, 0.0]),
}


def drafts_of(name: str, vocabulary: int, drafts: int, temperature: float) -> Entry:
    """The joint law of a block, by enumeration."""
    inputs: Entry = {
        "base": recipe(f"{name}-base", (drafts, vocabulary), "float32", 15, 3),
        "w1": recipe(f"{name}-w1", (vocabulary, 2), "float32", 15, 3),
        "w2": recipe(f"{name}-w2", (vocabulary, 2), "float32", 15, 4),
        "anchor": 1,
        "temperature": one_number(temperature),
    }
    given = {key: unpacked(part) for key, part in inputs.items()}
    head = vanilla(given["w1"], given["w2"])
    joint = law.block_law(given["base"].double(), head, 1, temperature, torch.float32)
    # Softmax of quotients below 8 / T in float32, K of them multiplied.
    relative = drafts * UNIT * (4 * 8 / temperature + 6 + vocabulary)
    return case(name, inputs, {"law": within(joint, relative)})


def one_number(value: float) -> torch.Tensor:
    """One float32 number as an array."""
    return torch.tensor([value], dtype=torch.float32)


def tables(rows: Any, first: Any, steps: int) -> torch.Tensor:
    """The same laws in every step, with a row of its own before the first: [steps, V, V]."""
    made = torch.tensor([rows] * steps, dtype=torch.float32)
    made[0] = torch.tensor(first, dtype=torch.float32)
    return made


def commits_of(rule: str, kind: str, verify_len: int) -> Entry:
    """The law of committed tokens; every threshold of a coin is a multiple of an eighth."""
    q = tables(CLAIMS[kind], CLAIMS[kind][0], DRAFTS)
    p = tables(TARGETS[kind], TARGETS[kind][0], DRAFTS + 1)
    if kind == "point":
        # The claim of a later step depends on the token before it only where p does.
        q[1], p[1] = torch.tensor(CLAIMS[kind])[1], torch.tensor(TARGETS[kind])[[1, 2, 1]]
    previous = (0,)

    def at(laws: torch.Tensor, prefix: tuple[int, ...]) -> torch.Tensor:
        return laws[len(prefix), (previous + prefix)[-1]].double()

    mass = committed(
        lambda prefix: at(p, prefix),
        lambda prefix: at(q, prefix),
        lambda prefix: at(q, prefix),
        {"chain": CHAIN, "block": BLOCK}[rule],
        (DRAFTS, VOCABULARY),
        lambda _: verify_len,
    )
    expected = {}
    for n in range(1, verify_len + 1):
        shape = [VOCABULARY] * n
        cells = torch.cartesian_prod(*[torch.arange(VOCABULARY)] * n).reshape(-1, n).tolist()
        values = torch.tensor([mass.get(tuple(cell), 0.0) for cell in cells], dtype=torch.float64)
        expected[f"at_least_{n}"] = within(values.reshape(shape), 0.0, 16 * UNIT)
    inputs = {"rule": rule, "q": q, "p": p, "verify_len": verify_len}
    return case(f"{rule}-{kind}-{verify_len}", inputs, expected)


def groups() -> list[Entry]:
    """Every group on exact laws."""
    drafted = [
        drafts_of(f"law-{v}-{k}-{number}", v, k, heat)
        for number, (v, k, heat) in enumerate(((3, 2, 1.0), (4, 3, 0.5), (2, 4, 2.0), (7, 1, 1.0)))
    ]
    made = [
        group(
            "drafted",
            "block_law",
            ["E01", "E02", "E16"],
            "the claimed law is not the law that drafts come from",
            [
                "deepseek-ai/DeepSpec#31",
                "huggingface/transformers#47932",
                "Adibvafa/CodonTransformer#20",
            ],
            drafted,
        )
    ]
    for rule, flag, reference in (
        ("chain", "E09", "xLLM-AI/xllm#2175"),
        ("block", "G05", "vllm-project/vllm-ascend#7807"),
    ):
        cases = [commits_of(rule, kind, rows) for kind in TARGETS for rows in (1, 2, 3)]
        effect = "committed tokens do not follow the target's law"
        made.append(group(f"committed-{rule}", "committed_law", [flag], effect, [reference], cases))
    return made
