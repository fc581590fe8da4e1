"""Heads, blocks, gates and exact laws of the vectors, answered by impl."""

from collections.abc import Callable
from itertools import product
from typing import Any

import torch
from torch import Tensor

from impl import acceptance, gate
from impl.bias import MarkovHead, gated, recurrent, vanilla
from impl.choice import step_logits
from impl.claim import claimed_law
from impl.subject import factory

Inputs = dict[str, Any]
Answer = dict[str, Any]
CPU = torch.device("cpu")
# What blocks run on; a recording for each vector would take most of the time of the suite.
ENGINE = "eager"
HEADS = {"vanilla": vanilla, "gated": gated, "rnn": recurrent}
TABLES: dict[str, tuple[Callable[[Any], gate.Decision], Callable[..., Any]]] = {
    "gate_build": (gate.build, gate.BuildFacts),
    "gate_step": (gate.step, gate.StepFacts),
    "gate_accept": (gate.accept, gate.AcceptFacts),
}
# Midpoints of eighths: exact for coins that are compared with multiples of an eighth.
COINS = (torch.arange(8) + 0.5) / 8


def markov_bias(given: Inputs) -> Answer:
    """Steps of a head, its state carried."""
    kind, hidden = given["markov"], given["hidden"]
    head = MarkovHead(given["w1"], given["w2"], kind, given.get("w3"), given.get("b3"))
    state: Tensor | None = torch.zeros(len(hidden), head.rank, dtype=hidden.dtype)
    steps = []
    for k in range(hidden.shape[1]):
        bias, state = HEADS[kind](head, given["previous"][:, k], hidden[:, k], state)
        steps.append(bias)
    return {"bias": torch.stack(steps, 1)}


def draft_block(given: Inputs) -> Answer:
    """One block of the whole sampler: a replay, but for the engine 'eager'."""
    none = given["markov"] == "none"
    setting = {
        "family": "dflash" if none else "dspark",
        "dialect": "none" if none else "counter",
        "forward": "given",
        "buckets": (4,),
        "sample_from_anchor": given["hidden"].shape[1] == given["drafts"],
        "device": "cpu",
        "engine": ENGINE,
        **given,
        "mup": float(given["mup"]),
        "seed": int(given["seed"][0]),
    }
    if none:
        del setting["markov"]
    subject = factory(setting)
    if subject.noise is not None:
        subject.noise.state["block"].fill_(given["block"])
    subject.load({name: given[name] for name in ("hidden", "anchor", "temperature", "top_k")})
    subject.replay()
    assert subject.path()["folded"] == (ENGINE != "eager")
    return dict(subject.read())


def gate_answer(table: str) -> Callable[[Inputs], Answer]:
    """The answer of one table."""
    decide, record = TABLES[table]

    def answer(given: Inputs) -> Answer:
        decision = decide(record(**given))
        return {"fold": decision.fold, "reason": decision.reason}

    return answer


def block_law(given: Inputs) -> Answer:
    """The claimed law of every step of every block, multiplied."""
    drafts, vocabulary = given["base"].shape
    head = MarkovHead(given["w1"], given["w2"])
    joint = torch.ones([vocabulary] * drafts, dtype=torch.float64)
    sampled = torch.zeros(1, dtype=torch.bool)
    sound = torch.zeros(1, 1, dtype=torch.uint8)
    for block in product(range(vocabulary), repeat=drafts):
        before = (given["anchor"], *block[:-1])
        for k in range(drafts):
            bias, _ = vanilla(head, torch.tensor([before[k]]), None, None)
            kept = torch.empty(1, vocabulary)
            step_logits(given["base"][k : k + 1], bias, kept)
            token = torch.tensor([[block[k]]])
            heat = given["temperature"]
            q = claimed_law(token, kept[:, None], heat, sampled, sound, vocabulary)
            joint[block] *= float(q[0, 0, block[k]])
    return {"law": joint}


def committed_law(given: Inputs) -> Answer:
    """Every block under every combination of coins, weighted by its law."""
    q, p, verify = given["q"], given["p"], given["verify_len"]
    drafts, vocabulary, _ = q.shape
    blocks = torch.cartesian_prod(*[torch.arange(vocabulary)] * drafts).reshape(-1, drafts)
    coins = torch.cartesian_prod(*[COINS] * (drafts + 1)).reshape(-1, drafts + 1)
    tokens = blocks.repeat_interleave(len(coins), 0)
    before = torch.cat([torch.zeros_like(tokens[:, :1]), tokens], 1)
    claims = torch.stack([q[k, before[:, k]] for k in range(drafts)], 1)
    laws = torch.stack([p[k, before[:, k]] for k in range(drafts + 1)], 1)
    weight = claims.gather(2, tokens[:, :, None])[..., 0].prod(1).double() / len(coins)
    rows = len(tokens)
    out = acceptance.Commit.empty(rows, drafts, CPU)
    asked = acceptance.Asked(before, torch.full((rows,), verify), torch.zeros(rows).long())
    spread = coins.repeat(len(blocks), 1)
    acceptance.RULES[given["rule"]](asked, laws, claims, spread, out)
    found = {}
    for n in range(1, verify + 1):
        mass = torch.zeros([vocabulary] * n, dtype=torch.float64)
        long = out.commit >= n
        first = tuple(out.out_tokens[long, t] for t in range(n))
        found[f"at_least_{n}"] = mass.index_put(first, weight[long], accumulate=True)
    return found


EXECUTORS: dict[str, Callable[[Inputs], Answer]] = {
    "markov_bias": markov_bias,
    "draft_block": draft_block,
    "block_law": block_law,
    "committed_law": committed_law,
    **{table: gate_answer(table) for table in TABLES},
}
