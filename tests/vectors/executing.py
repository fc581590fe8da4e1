"""Every operation of the vectors, answered by impl; and what compares an answer with its vector."""

from collections.abc import Callable
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor

from impl import acceptance, choice, coins, filters, noise
from impl.sampler import admit
from oracle.judge.vectors.form import allowed, unpacked, words_of

from . import drafting

Inputs = dict[str, Any]
Answer = dict[str, Any]
CPU = torch.device("cpu")
FIELDS = {"commit": "commit_len", "new_seq_lens": "new_seq_len"}


class Receipt(NamedTuple):
    """Proof that one vector ran: where it stands, and what was wrong with the answer."""

    place: tuple[str, str]
    complaints: list[str]


def integers(words: Any) -> Tensor:
    """Words as int64."""
    return torch.from_numpy(words.astype("int64"))


def philox(given: Inputs) -> Answer:
    """The function itself."""
    counter, key = integers(given["counter"]), integers(given["key"])
    outputs = noise.philox(
        tuple(counter[place : place + 1] for place in range(4)), (key[0], key[1])
    )
    return {"words": torch.cat(outputs)}


def placed(given: Inputs, draw: Callable[[noise.CounterNoise], Tensor]) -> Answer:
    """The uniforms that `draw` returns for a row, and the words that they came from."""
    state = noise.CounterNoise.seeded(given.get("vocabulary", 1), int(given["seed"][0]), CPU)
    state.block.fill_(given["block"])
    seen, real = [], noise.philox

    def spy(*arguments: Any) -> tuple[Tensor, ...]:
        seen.append(real(*arguments))
        return seen[-1]

    with patch.object(noise, "philox", spy):
        uniform = draw(state)[given["row"]]
    words = torch.stack(seen[0], -1).flatten(1)[given["row"]]
    return {"words": words[: len(uniform)], "uniform": uniform}


def noise_words(given: Inputs) -> Answer:
    """The uniforms of a step."""
    return placed(given, lambda state: noise.uniforms(state, given["row"] + 1, given["step"]))


def coin_words(given: Inputs) -> Answer:
    """The coins of a block."""
    wide = given["drafts"] + 1
    return placed(given, lambda state: coins.counter_coins(state, given["row"] + 1, wide))


def uniform(given: Inputs) -> Answer:
    """The map from a word, which stands in for the words of Philox."""
    word = integers(given["word"])[:, None]
    state = noise.CounterNoise.seeded(1, 0, CPU)
    with patch.object(noise, "philox", lambda *_: (word,) * 4):
        return {"uniform": noise.uniforms(state, 1, 0)[0]}


def exponential(given: Inputs) -> Answer:
    """The map from a uniform, which stands in for those of a step."""
    state = noise.CounterNoise.seeded(1, 0, CPU)
    with patch.object(noise, "uniforms", lambda *_: given["uniform"]):
        return {"exponential": noise.counter(state, 1, 0, None)}


def gumbel(given: Inputs) -> Answer:
    """The key of a logit of zero."""
    e = given["exponential"]
    return {"gumbel": choice.counter_keys(torch.zeros_like(e), e)}


def choose(given: Inputs) -> Answer:
    """One choice in the dialect of the vector."""
    rows = len(given["logits"])
    tokens = torch.full((rows,), -9)
    flags = torch.full((rows,), 9, dtype=torch.uint8)
    pick = {"counter": choice.choose_counter, "race": choice.choose_race}[given["dialect"]]
    pick(given["logits"], given["temperature"], given["greedy"], given["noise"], tokens, flags)
    return {"tokens": tokens, "flags": flags}


def admission(given: Inputs) -> Answer:
    """What admission makes of a batch."""
    found = admit(given["temperature"], given["top_k"])
    return {"temperature": found.temperature, "greedy": found.greedy}


def committed(out: acceptance.Commit) -> Answer:
    """A commit by the names of the vectors."""
    return {FIELDS.get(name, name): value for name, value in vars(out).items()}


def accept(given: Inputs) -> Answer:
    """An accept by coins; flagged drafts claim nothing, as impl's claimed law says."""
    tokens = given["tokens"]
    candidates = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
    out = acceptance.Commit.empty(len(tokens), tokens.shape[1], CPU)
    claim = given["q"] * (given["marks"] == 0).long().cumprod(1)[:, :, None]
    asked = acceptance.Asked(candidates, given["verify_len"], given["prefix_len"])
    acceptance.RULES[given["rule"]](asked, given["p"], claim, given["coins"], out)
    return committed(out)


def accept_greedy(given: Inputs) -> Answer:
    """An accept by argmax."""
    candidates = given["candidates"]
    out = acceptance.Commit.empty(len(candidates), candidates.shape[1] - 1, CPU)
    lengths = given["verify_len"], given["prefix_len"]
    acceptance.accept_greedy(candidates, given["logits"].flatten(0, 1), *lengths, out)
    return committed(out)


def target_law(given: Inputs) -> Answer:
    """The law of one target row a request."""
    law = filters.target_law(
        given["logits"][:, None], given["temperature"], given["top_k"], given["top_p"]
    )
    return {"law": law[:, 0]}


EXECUTORS: dict[str, Callable[[Inputs], Answer]] = {
    "philox": philox,
    "noise_words": noise_words,
    "coin_words": coin_words,
    "uniform": uniform,
    "exponential": exponential,
    "gumbel": gumbel,
    "choose": choose,
    "admit": admission,
    "accept": accept,
    "accept_greedy": accept_greedy,
    "target_law": target_law,
    **drafting.EXECUTORS,
}


def mismatch(entry: Any, found: Any) -> str | None:
    """What separates an answer from an expected value; None where nothing does."""
    expected = unpacked(entry)
    if not isinstance(entry, dict):
        return None if expected == found else f"{found!r}, required {expected!r}"
    shape, margin = tuple(entry["shape"]), allowed(entry)
    if tuple(found.shape) != shape:
        return f"shape {tuple(found.shape)}, required {shape}"
    if margin is not None:
        exact = expected.double()
        off = (found.double() - exact).abs()
        near = exact.isfinite() & (off <= margin[1] + margin[0] * exact.abs())
        equal = near | (found.double() == exact) | (exact.isnan() & found.isnan())
    elif "bits" in entry and not entry["dtype"].startswith("uint"):
        words = words_of(found, entry["dtype"]) == words_of(expected, entry["dtype"])
        equal = torch.from_numpy(words).reshape(shape)
    else:
        wanted = integers(expected) if entry["dtype"].startswith("uint3") else expected
        equal = found == wanted
    if bool(equal.all()):
        return None
    return f"{found.tolist()}, required {expected.tolist()}"


def run(document: Any) -> list[Receipt]:
    """Run every vector of a file; KeyError for an operation that impl has no answer to."""
    receipts = []
    for of in document["groups"]:
        answer = EXECUTORS[of["operation"]]
        for one in of["cases"]:
            given = {name: unpacked(entry) for name, entry in one["inputs"].items()}
            found = answer(given)
            complaints = [
                f"{name}: {wrong}"
                for name, entry in one["expected"].items()
                if (wrong := mismatch(entry, found[name])) is not None
            ]
            receipts.append(Receipt((of["id"], one["id"]), complaints))
    return receipts
