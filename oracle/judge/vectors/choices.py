"""Step choice: ties, NaN, infinities, masked ids, greedy rows; and what admission makes of T."""

import torch

from ...reference import choice
from .form import Entry, case, group, recipe, unpacked

OPERATIONS = {
    "choose": "logits [B, V], clamped temperature [B], greedy [B], noise E [B, V], dialect; one "
    "token a row. Sampled rows: the largest key, counter l / T - log E, race softmax(l / T) / E; "
    "greedy rows, and rows without a finite maximum: the largest logit. The first NaN beats all, "
    "ties go to the lowest id. flags: 1 a NaN logit, 2 no logit above -inf, else 0",
    "admit": "temperature [B] as asked for, top_k [B]: the clamped temperature max(T, 1e-5) in "
    "float32, and greedy where top_k <= 1 or T < 1e-6",
}
# Two keys closer than this could be told apart by rounding alone.
WINDOW = 1e-3
INF, NAN = torch.inf, torch.nan
SMALLEST = 2.0**-126


def choose(
    name: str,
    logits: list[list[float]],
    noise: list[list[float]],
    dialect: str = "counter",
    temperature: list[float] | None = None,
    greedy: list[bool] | None = None,
) -> Entry:
    """One choice of rows written out."""
    rows = torch.tensor(logits, dtype=torch.float32)
    heat = torch.ones(len(rows)) if temperature is None else torch.tensor(temperature)
    mask = torch.zeros(len(rows), dtype=torch.bool) if greedy is None else torch.tensor(greedy)
    made = {"logits": rows, "temperature": heat, "greedy": mask, "noise": torch.tensor(noise)}
    return decided(name, made, dialect)


def decided(name: str, inputs: Entry, dialect: str) -> Entry:
    """The reference's tokens and flags. ValueError when rounding could decide a row."""
    logits, heat, noise = (
        unpacked(inputs[key]).double() if isinstance(inputs[key], dict) else inputs[key].double()
        for key in ("logits", "temperature", "noise")
    )
    greedy = inputs["greedy"]
    tokens = choice.token(logits, heat, greedy, noise, dialect)
    drawn = ~greedy & logits.amax(-1).isfinite()
    refuse_near_ties(name, logits[drawn], heat[drawn], noise[drawn])
    return case(
        name, {**inputs, "dialect": dialect}, {"tokens": tokens, "flags": choice.flags(logits)}
    )


def refuse_near_ties(
    name: str, logits: torch.Tensor, heat: torch.Tensor, noise: torch.Tensor
) -> None:
    """Raise ValueError where two keys that are not made of equal parts lie within WINDOW."""
    keys = choice.keys(logits, heat, noise, "counter")
    best = choice.winner(keys).unsqueeze(-1)
    close = keys >= keys.gather(-1, best) - WINDOW
    same = (logits == logits.gather(-1, best)) & (noise == noise.gather(-1, best))
    if bool((close & ~same).any()):
        raise ValueError(f"vector {name}: two keys lie within {WINDOW}, required: a clear winner")


def ties() -> list[Entry]:
    """Equal logits and equal noise: the lowest id, in every dialect, alone and in a mixed batch."""
    equal, even = [0.5, 2.0, 2.0, 1.0, 2.0], [0.75] * 5
    later = [-1.0, -1.0, 3.0, 3.0, -2.0]
    cases = []
    for dialect in ("counter", "race"):
        cases.append(choose(f"tie-sampled-{dialect}", [equal, later], [even, even], dialect))
        mixed = choose(
            f"tie-mixed-{dialect}",
            [equal, equal, later],
            [[4.0, 4.0, 0.25, 4.0, 4.0], even, even],
            dialect,
            greedy=[True, False, True],
        )
        cases.append(mixed)
    cases += [
        choose("tie-all", [[1.5] * 7], [[1.0] * 7]),
        choose("tie-all-negative-zero", [[-0.0, 0.0, -0.0]], [[1.0] * 3]),
        choose("tie-greedy-last-two", [[0.0, 1.0, 1.0]], [[1.0, 9.0, 0.01]], greedy=[True]),
    ]
    return cases


def spoilt() -> list[Entry]:
    """NaN first, infinities, rows without a finite logit; every dialect, both kinds of row."""
    rows = [
        [0.0, NAN, 9.0, NAN],
        [INF, 0.0, NAN, 1.0],
        [0.0, INF, 1.0, INF],
        [-INF, INF, 5.0, -INF],
        [-INF, -INF, -INF, -INF],
        [-INF, NAN, -INF, -INF],
        [-INF, -INF, -3.0, -INF],
        [NAN, NAN, NAN, NAN],
    ]
    noise = [[0.01, 2.0, 1.0, 0.5]] * len(rows)
    return [
        choose(f"spoilt-{dialect}-{kind}", rows, noise, dialect, greedy=[kind == "greedy"] * 8)
        for dialect in ("counter", "race")
        for kind in ("sampled", "greedy")
    ]


def masked() -> list[Entry]:
    """Masked ids under the smallest noise there is, and logits at the end of float32."""
    logits = [[-INF, 0.0, -INF, -2.0], [-60.0, -INF, -61.0, -INF]]
    noise = [[SMALLEST, 9.0, SMALLEST, 8.0], [9.0, SMALLEST, 9.0, SMALLEST]]
    cases = [choose(f"masked-{name}", logits, noise, name) for name in ("counter", "race")]
    huge = [[3e38, -3e38, 0.0], [-3e38, -3.1e38, -INF]]
    cases += [
        choose("end-of-float32", huge, [[1.0, 1.0, 1.0]] * 2, temperature=[2.0**-16] * 2),
        choose("only-one-id", [[-7.0]], [[SMALLEST]]),
    ]
    return cases


def untouched() -> list[Entry]:
    """Greedy rows at any T and noise, and sampled rows at unequal T beside them."""
    logits = [[0.0, 2.0**-20], [4.0, 3.0], [4.0, 3.0], [4.0, 3.0]]
    noise = [[2.0**-10, 4.0], [4.0, 0.25], [4.0, 0.25], [4.0, 0.25]]
    heat, greedy = [1e5, 1e-5, 0.25, 4.0], [True, True, False, False]
    return [
        choose(f"mixed-{name}", logits, noise, name, heat, greedy) for name in ("counter", "race")
    ]


def wide() -> list[Entry]:
    """Rows of 768 ids by recipe, over temperatures, and E from 2^-18 to 8."""
    cases = []
    for number in range(4):
        name, shape = f"wide-{number}", (4, 768)
        inputs = {
            "logits": recipe(name, shape, "float32", 255, 5),
            "temperature": torch.tensor([0.5, 1.0, 2.0, 1.0]),
            "greedy": torch.tensor([False, False, False, True]),
            "noise": recipe(f"{name}-noise", shape, "float32", 2**20, 18, positive=True),
        }
        cases.append(decided(name, inputs, "counter"))
    return cases


def admissions() -> list[Entry]:
    """Temperatures and top_k on both sides of every line."""
    heat = [0.0, 9e-7, 1e-6, 3e-6, 1e-5, 2e-5, 1.0, 1e5, 1.0, 1.0, 1.0]
    top_k = [2**30, 2**30, 2**30, 2**30, 2**30, 2**30, 2**30, 5, 1, 0, 2]
    temperature, limit = torch.tensor(heat), torch.tensor(top_k)
    expected = {
        "temperature": choice.clamped(temperature).to(torch.float32),
        "greedy": choice.is_greedy(temperature, limit),
    }
    return [case("lines", {"temperature": temperature, "top_k": limit}, expected)]


def groups() -> list[Entry]:
    """Every group on one choice."""
    lattice, triton = "ohdearquant/lattice#280", "triton-lang/triton#10291"
    return [
        group(
            "ties",
            "choose",
            ["J04", "F02"],
            "a greedy row takes another of its equal logits on another path, or in another batch",
            [lattice, "FlashML-org/FreeToken#471"],
            ties(),
        ),
        group(
            "spoilt-rows",
            "choose",
            ["J05", "C13", "I03"],
            "a NaN, an infinity or an empty row gives an id outside the vocabulary, or no flag",
            [triton, "sgl-project/sglang#33697", "ROCm/ATOM#2160"],
            spoilt(),
        ),
        group(
            "masked",
            "choose",
            ["C02"],
            "an id of probability zero wins through 0 / 0 or an infinite noise",
            ["sgl-project/sglang#25106"],
            masked(),
        ),
        group(
            "greedy-untouched",
            "choose",
            ["F01", "F02"],
            "noise or temperature reaches a greedy row, or one row's temperature another row",
            ["vllm-project/vllm#27077", "FlashML-org/FreeToken#471"],
            untouched(),
        ),
        group(
            "wide",
            "choose",
            ["E16"],
            "temperature applied twice, or not at all, changes the winner",
            ["Adibvafa/CodonTransformer#20"],
            wide(),
        ),
        group(
            "admission",
            "admit",
            ["F02"],
            "a greedy request is sampled at a tiny temperature, or the other way round",
            ["FlashML-org/FreeToken#471"],
            admissions(),
        ),
    ]
