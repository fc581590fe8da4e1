"""Philox words, the uniforms at both ends, and the two transforms."""

from itertools import product

import numpy as np
import torch

from ...reference import noise
from ..margin import ARITHMETIC, UNIT
from .form import Entry, case, group, packed, seed_of, within

OPERATIONS = {
    "philox": "Philox4x32-10: counter [4], key [2] low word first; expected words [4]",
    "noise_words": "the word of each id [V] of a row and a step in a block: number id mod 4 of "
    "Philox at (id div 4, row, step, block mod 2^32) under seed [1], low word first; uniforms too",
    "coin_words": "the words of the coins 0 to K of a row and a block: number k mod 4 of Philox "
    "at (k div 4, row, 0, block mod 2^32) under seed XOR 9e3779b97f4a7c15, and their uniforms",
    "uniform": "word to u = (word + 1/2) 2^-32 rounded once to float32, at most 1 - 2^-24",
    "exponential": "E = -log1p(-u)",
    "gumbel": "G = -log E",
}
PUBLISHED = "Random123 1.14.0, tests/kat_vectors (D. E. Shaw Research)"
PUBLISHED_LICENCE = "BSD-3-Clause (numbers only, own layout)"
# Ends, the grid of float32, and the 128 largest words, which round to 1 before the cap.
EDGES = (0, 1, 2, 3, 127, 128, 2**23, 2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**31 + 1)
TOPS = tuple(2**32 - below for below in (1, 2, 127, 128, 129, 130, 255, 256, 257, 2**16, 2**24))


def u32(*values: int) -> np.ndarray:
    """Words as an array."""
    return np.array(values, dtype=np.uint32)


def philox_of(counter: list[int], key: int) -> list[int]:
    """Philox of one counter, as integers."""
    outputs = noise.philox([np.array([word], dtype=np.uint64) for word in counter], key)
    return [int(word[0]) for word in outputs]


def philox_case(name: str, counter: list[int], key: int, expected: list[int]) -> Entry:
    """One counter and its words."""
    halves = u32(key & 0xFFFFFFFF, key >> 32)
    return case(name, {"counter": u32(*counter), "key": halves}, {"words": u32(*expected)})


def published(text: str) -> list[Entry]:
    """The published known answers, each compared with the reference first.

    text: lines of ten words; counter, key, output. ValueError when the reference differs.
    """
    cases = []
    for number, line in enumerate(line for line in text.splitlines() if not line.startswith("#")):
        words = [int(word, 16) for word in line.split()]
        key, expected = words[4] | words[5] << 32, words[6:]
        if philox_of(words[:4], key) != expected:
            raise ValueError(f"the reference gives {philox_of(words[:4], key)} for line {line!r}")
        cases.append(philox_case(f"published-{number}", words[:4], key, expected))
    return cases


def carries() -> list[Entry]:
    """One bit in each word of counter and key, and keys whose bumps overflow."""
    cases = []
    for place, bit in product(range(6), (0, 31)):
        words = [0] * 6
        words[place] = 1 << bit
        key = words[4] | words[5] << 32
        cases.append(philox_case(f"bit-{place}-{bit}", words[:4], key, philox_of(words[:4], key)))
    for number in range(4):
        key = seed_of(f"carry-{number}") | 0xF0000000_F0000000
        counter = [seed_of(f"carry-{number}-{place}") & 0xFFFFFFFF for place in range(4)]
        cases.append(philox_case(f"carry-{number}", counter, key, philox_of(counter, key)))
    return cases


def places(kind: str) -> list[Entry]:
    """Words of ids, or of coins, over rows, steps and block counters on both sides of 2^32."""
    cases = []
    for row, step, block in ((0, 0, 0), (3, 0, 1), (0, 2, 1), (5, 6, 2**32 - 1), (1, 1, 2**32 + 7)):
        name = f"{kind}-{row}-{step}-{block}"
        seed, zero = seed_of(name), np.zeros(1, dtype=np.uint64)
        at = zero + np.uint64(row), zero + np.uint64(step)
        count = {"noise": 11, "coin": step + 2}[kind]
        inputs: Entry = {"seed": np.array([seed], dtype=np.uint64), "row": row, "block": block}
        if kind == "noise":
            inputs |= {"step": step, "vocabulary": count}
            words = noise.words(np.arange(count, dtype=np.uint64), *at, block, seed)
        else:
            inputs |= {"drafts": count - 1}
            key = seed ^ noise.COIN_DOMAIN
            words = noise.words(np.arange(count, dtype=np.uint64), at[0], zero, block, key)
        uniforms = torch.from_numpy(noise.uniform(words)).to(torch.float32)
        expected = {"words": words.astype(np.uint32), "uniform": uniforms}
        cases.append(case(name, inputs, expected))
    return cases


def ends() -> list[Entry]:
    """Words near both ends to uniforms."""
    words = np.array([*EDGES, *sorted(TOPS)], dtype=np.uint64)
    found = torch.from_numpy(noise.uniform(words)).to(torch.float32)
    return [
        case(
            f"word-{int(word):08x}", {"word": u32(int(word))}, {"uniform": found[place : place + 1]}
        )
        for place, word in enumerate(words)
    ]


def transforms(kind: str) -> list[Entry]:
    """E of the uniforms at the ends and between, or G of those E."""
    words = np.array([*EDGES, *sorted(TOPS), 0x40000000, 0xC0000000], dtype=np.uint64)
    u = noise.uniform(words)
    arithmetic = ARITHMETIC["torch-cpu"]
    if kind == "exponential":
        inputs = packed(torch.from_numpy(u).to(torch.float32))
        margin = arithmetic.exponential_variable * UNIT
        expected = within(torch.from_numpy(noise.exponential(u)), margin)
        return [case("ends", {"uniform": inputs}, {"exponential": expected})]
    e = torch.from_numpy(noise.exponential(u)).to(torch.float32)
    smallest = torch.tensor([noise.SMALLEST_NORMAL, 1.0], dtype=torch.float32)
    e = torch.cat([e, smallest])
    exact = torch.from_numpy(noise.gumbel(e.to(torch.float64).numpy()))
    expected = within(exact, arithmetic.logarithm * UNIT)
    return [case("ends", {"exponential": e}, {"gumbel": expected})]


def maps() -> list[Entry]:
    """The groups on what is made of a word."""
    return [
        group(
            "uniform-ends",
            "uniform",
            ["C02", "C03"],
            "a uniform of 0 or 1 makes an infinite key: an impossible token wins",
            ["sgl-project/sglang#25106", "sgl-project/sglang#30822"],
            ends(),
        ),
        group(
            "exponential",
            "exponential",
            ["C06", "C12"],
            "log(1 - u) loses the small E: tokens of small probability are never drawn",
            ["vllm-project/vllm#51367", "jax-ml/jax#26974"],
            transforms("exponential"),
        ),
        group(
            "gumbel",
            "gumbel",
            ["C12", "C02"],
            "a cut tail of the Gumbel variable moves mass between likely and unlikely tokens",
            ["jax-ml/jax#5348", "sgl-project/sglang#25106"],
            transforms("gumbel"),
        ),
    ]


def groups(known_answers: str) -> list[Entry]:
    """Every group on words and transforms; known_answers the text of the published ones."""
    return [
        group(
            "published",
            "philox",
            ["C"],
            "every later draw differs from the contract's",
            [],
            published(known_answers),
            PUBLISHED,
            PUBLISHED_LICENCE,
        ),
        group(
            "carries",
            "philox",
            ["C"],
            "signed or narrow products lose high words: words repeat for some keys",
            [],
            carries(),
        ),
        group(
            "ids",
            "noise_words",
            ["A08", "B04", "A13"],
            "rows, steps or blocks share noise, or a draw depends on the batch",
            [
                "flashinfer-ai/flashinfer#4861",
                "vllm-project/vllm#43340",
                "sgl-project/sglang#33395",
            ],
            places("noise"),
        ),
        group(
            "coins",
            "coin_words",
            ["B01"],
            "coins repeat the noise of the draft: committed tokens lean to the draft",
            ["vllm-project/vllm#47386", "vllm-project/vllm#54282"],
            places("coin"),
        ),
        *maps(),
    ]
