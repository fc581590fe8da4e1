"""Accept decisions of the chain and the block rule: coins, one-hot drafts, cuts, flags, NaN."""

from typing import Any

import torch

from ...reference import acceptance
from .form import Entry, case, group, seed_of

OPERATIONS = {
    "accept": "rule chain or block; tokens [B, K], claimed law q [B, K, V], target law p "
    "[B, K + 1, V], coins [B, K + 1] (the last is the final draw), verify_len [B], prefix_len [B], "
    "marks [B, K] (not 0: this draft and later ones are not accepted, the draw is from p)",
    "expected of accept": "correct_len accepted drafts after the cut, bonus, trim accepted drafts "
    "that the cut dropped, commit_len, new_seq_len, out_tokens (drafts, bonus, then -1), flags 1 "
    "where a NaN decided and nothing is committed",
}
RULES = {"chain": acceptance.accept_chain, "block": acceptance.accept_block}
# A coin that is moved by so much must not change what is committed, unless the case is exact.
NUDGE = 1e-4
SMALLEST_COIN, LARGEST_COIN = 2.0**-33, 1 - 2.0**-24
ALL = 2**30


def numbers(values: Any) -> torch.Tensor:
    """Written numbers as a float32 tensor."""
    return torch.tensor(values, dtype=torch.float32)


def accept(
    name: str,
    tokens: list[list[int]],
    q: Any,
    p: Any,
    coins: Any,
    *,
    verify_len: list[int] | None = None,
    marks: list[list[int]] | None = None,
    exact: bool = True,
) -> Entry:
    """One accept, by the rule that its name begins with, and what the reference commits.

    exact: every comparison is exact in float32, as for small multiples of powers of two. ValueError
    when a case that is not exact would be decided otherwise by coins a little off.
    """
    rule = name.partition("-")[0]
    rows, drafts = len(tokens), len(tokens[0])
    whole = [drafts + 1] * rows
    inputs = {
        "tokens": torch.tensor(tokens),
        "q": numbers(q),
        "p": numbers(p),
        "coins": numbers(coins),
        "verify_len": torch.tensor(verify_len or whole),
        "prefix_len": torch.arange(rows) + 7,
        "marks": torch.tensor(marks or [[0] * drafts] * rows, dtype=torch.uint8),
    }
    expected = committed(rule, inputs, 0.0)
    for nudge in () if exact else (-NUDGE, NUDGE):
        moved = committed(rule, inputs, nudge)
        if any(not torch.equal(expected[key], moved[key]) for key in expected):
            raise ValueError(f"vector {name}: a coin moved by {nudge} decides, required: no effect")
    return case(name, {"rule": rule, **inputs}, expected)


def committed(rule: str, inputs: dict[str, torch.Tensor], nudge: float) -> dict[str, torch.Tensor]:
    """The reference's commit with coins moved by `nudge`."""
    coins = (inputs["coins"].double() + nudge).clamp(min=SMALLEST_COIN, max=LARGEST_COIN)
    lengths = inputs["verify_len"], inputs["prefix_len"]
    laws = inputs["q"].double(), inputs["p"].double()
    found = RULES[rule](inputs["tokens"], *laws, coins, *lengths, inputs["marks"])
    return fields(found)


def fields(found: acceptance.Commit) -> dict[str, torch.Tensor]:
    """A commit by name."""
    return {**found._asdict(), "flags": found.flags.to(torch.uint8)}


HALVES, QUARTERS = [0.5, 0.5, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]
SLOPE, RISE = [0.5, 0.25, 0.125, 0.125], [0.125, 0.125, 0.25, 0.5]
EDGES = (SMALLEST_COIN, 0.25, 0.5, 0.75, LARGEST_COIN)


def strict(rule: str) -> list[Entry]:
    """A coin at p / q rejects, one below accepts; p = 0 rejects, however small the coin."""
    below = 0.5 - 2.0**-20
    written: tuple[tuple[str, list[float], list[float], list[float]], ...] = (
        ("at", SLOPE, QUARTERS, [0.5, 0.5]),
        ("below", SLOPE, QUARTERS, [below, 0.5]),
        ("no-mass", QUARTERS, [0.0, 0.5, 0.25, 0.25], [SMALLEST_COIN, 0.5]),
        ("no-claim", [0.0, 0.5, 0.25, 0.25], QUARTERS, [SMALLEST_COIN, 0.5]),
        ("sure", QUARTERS, HALVES, [LARGEST_COIN, 0.125]),
    )
    return [
        accept(f"{rule}-{name}", [[0]], [[q]], [[p, RISE]], [coins])
        for name, q, p, coins in written
    ]


def residuals(rule: str) -> list[Entry]:
    """Final draws at both ends of each step of the sum, after a rejection and after none."""
    rejected = [
        accept(f"{rule}-residual-{u}", [[0]], [[SLOPE]], [[QUARTERS, RISE]], [[0.75, u]])
        for u in EDGES
    ]
    whole = [
        accept(f"{rule}-whole-{u}", [[2]], [[SLOPE]], [[RISE, RISE]], [[0.75, u]])
        for u in (*EDGES, 0.125, 0.125 - 2.0**-12)
    ]
    gaps = [0.0, 0.25, 0.0, 0.75, 0.0]
    hot = [0.0, 0.0, 1.0, 0.0, 0.0]
    ends = [accept(f"{rule}-gap-{u}", [[2]], [[hot]], [[gaps, gaps]], [[0.5, u]]) for u in EDGES]
    empty = accept(f"{rule}-nothing-left", [[3]], [[HALVES]], [[HALVES, RISE]], [[0.5, 0.5]])
    return [*rejected, *whole, *ends, empty]


def one_hot(rule: str) -> list[Entry]:
    """A draft whose claim is all its mass: accepted iff coin < p, and never drawn in its place."""
    cases = []
    for place, coin in enumerate((0.125, 0.25, 0.5, 0.25 - 2.0**-20)):
        hot = [[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        cases.append(
            accept(
                f"{rule}-one-hot-{place}",
                [[1, 3]],
                [hot],
                [[QUARTERS, RISE, SLOPE]],
                [[coin, coin, 0.5]],
            )
        )
    return cases


def cuts(rule: str) -> list[Entry]:
    """Every verify length of blocks that are accepted whole, in part and not at all."""
    blocks = [[0, 1, 2]] * 3
    q = [[QUARTERS] * 3] * 3
    p = [
        [QUARTERS, QUARTERS, QUARTERS, RISE],
        [QUARTERS, [0.5, 0.0, 0.25, 0.25], QUARTERS, RISE],
        [[0.0, 0.5, 0.25, 0.25], QUARTERS, QUARTERS, RISE],
    ]
    coins = [[0.5, 0.5, 0.5, 0.25]] * 3
    return [
        accept(f"{rule}-cut-{rows}", blocks, q, p, coins, verify_len=[rows] * 3)
        for rows in range(1, 5)
    ] + [accept(f"{rule}-cut-mixed", blocks, q, p, coins, verify_len=[0, 4, 0])]


def flagged(rule: str) -> list[Entry]:
    """A flagged draft ends the block with a draw from p; a NaN in row 0 of p commits nothing."""
    nan = [torch.nan] * 4
    q, p, coins = [[QUARTERS] * 2] * 3, [[QUARTERS, RISE, SLOPE]] * 3, [[0.5, 0.25, 0.625]] * 3
    marks = [[0, 0], [0, 1], [1, 0]]
    tokens = [[1, 3]] * 3
    spoilt = [[QUARTERS, RISE, SLOPE], [nan, RISE, SLOPE], [[0.25, torch.nan, 0.25, 0.25]] * 3]
    return [
        accept(f"{rule}-flagged", tokens, q, p, coins, marks=marks),
        accept(f"{rule}-flag-2", tokens, q, p, coins, marks=[[2, 0], [0, 2], [1, 2]]),
        accept(f"{rule}-nan", tokens, q, spoilt, coins),
    ]


def drawn(rule: str) -> list[Entry]:
    """Random laws over five ids, blocks of four drafts; coins far from every decision."""
    cases = []
    for number in range(12):
        name = f"{rule}-random-{number}"
        made = torch.Generator().manual_seed(seed_of(name) >> 1)
        q = torch.softmax(torch.randn(1, 4, 5, generator=made), -1)
        near = torch.cat([q, q[:, -1:]], 1).log() + 0.7 * torch.randn(1, 5, 5, generator=made)
        p = torch.softmax(near, -1)
        tokens = torch.randint(5, (1, 4), generator=made)
        coins = torch.randint(1, 64, (1, 5), generator=made) / 64
        parts = tokens.tolist(), q.tolist(), p.tolist(), coins.tolist()
        cases.append(accept(name, *parts, exact=False))
    return cases


def ratios() -> list[Entry]:
    """The prefix ratio saves a draft that the chain rejects, and lowers one that it accepts."""
    q = [[SLOPE, QUARTERS]]
    p = [[QUARTERS, [0.0, 0.0, 0.0, 1.0], RISE]]
    cases = [
        accept(f"block-saved-{u}", [[0, 3]], q, p, [[0.75, u, 0.25]], exact=True)
        for u in (0.25, 0.5, LARGEST_COIN)
    ]
    claim, target = [0.5, 0.125, 0.125, 0.25], [0.0, 0.125, 0.375, 0.5]
    laws = [[QUARTERS, target, RISE]]
    # r = 1/2 leaves one id of r p - q, where p - q has two.
    cases += [
        accept(f"block-shrunk-{u}", [[0, 0]], [[SLOPE, claim]], laws, [[0.0625, 0.5, u]])
        for u in (0.25, 0.75, LARGEST_COIN)
    ]
    lowered = [[QUARTERS, QUARTERS, RISE]]
    return cases + [
        accept(f"block-lowered-{u}", [[0, 1]], q, lowered, [[0.25, u, 0.25]])
        for u in (0.25, 0.5, 0.5 - 2.0**-20)
    ]


def groups(rule: str) -> list[Entry]:
    """Every group on one of the rules that flip coins."""
    block = ["G05"] if rule == "block" else []
    ported = ["vllm-project/vllm-ascend#7807"] if rule == "block" else []
    written = (
        (
            "strict",
            ["G02", "G03"],
            "a coin at p / q, or a small one, accepts a token of target probability zero",
            ["sgl-project/sglang#35771", "NVIDIA-NeMo/Automodel#3166"],
            strict(rule),
        ),
        (
            "residual",
            ["E09", "C10", "G14"],
            "the residual is not (p - q)+, the bonus is lost, or an id without mass is drawn",
            [
                "xLLM-AI/xllm#2175",
                "pytorch/pytorch#192577",
                "ohdearquant/lattice#389",
            ],
            residuals(rule),
        ),
        (
            "one-hot",
            ["G06", "E02"],
            "a draft without a law is accepted too often: tokens lean to the draft",
            ["vllm-project/vllm-ascend#2881", "huggingface/transformers#47932"],
            one_hot(rule),
        ),
        (
            "cut",
            ["H07", "H02"],
            "lengths are off by one, or a cut block ends with a draw instead of its draft",
            ["sgl-project/sglang#24965", "vllm-project/speculators#456"],
            cuts(rule),
        ),
        (
            "flagged",
            ["G08", "G09"],
            "a draft from a NaN row is accepted, or a NaN target commits an id",
            ["vllm-project/vllm#41834", "vllm-project/vllm#53029"],
            flagged(rule),
        ),
        (
            "random",
            ["E09", "G01"],
            "accepted lengths or the token after them differ",
            ["xLLM-AI/xllm#2175", "vllm-project/vllm#2658"],
            drawn(rule),
        ),
    )
    made = [
        group(f"{rule}-{name}", "accept", flags + block, effect, references + ported, cases)
        for name, flags, effect, references, cases in written
    ]
    if rule == "block":
        saved = "the prefix ratio is dropped or not capped: block verification is not lossless"
        made.append(group("block-ratio", "accept", ["G05"], saved, ported, ratios()))
    return made
