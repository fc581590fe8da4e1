"""The accept verb of our subject: real blocks, folded and eager, against the plain loops."""

from typing import Any

import pytest
import torch

from impl.subject import Subject, factory
from impl.target import Refused

from .accepting import ALL, Requests, plain_accept

B, K, V, D, R = 6, 3, 9, 8, 4
FIELDS = {
    "correct_len": torch.int64,
    "bonus": torch.int64,
    "trim": torch.int64,
    "commit_len": torch.int64,
    "new_seq_len": torch.int64,
    "out_tokens": torch.int64,
    "accept_flags": torch.uint8,
    "coins": torch.float32,
}
HEATS = torch.tensor([0.0, 0.7, 1.0, 3.0, 1.0, 1.3])
TOP_KS = torch.tensor([ALL, ALL, 4, 5, 1, 3])
SAMPLED = [1, 2, 3, 5]
KINDS = pytest.mark.parametrize(
    ("family", "dialect"), [("dflash", "none"), ("dspark", "counter"), ("dspark", "race")]
)


def subject(family: str, dialect: str, engine: str) -> Subject:
    """Our sampler over random weights."""
    draw = torch.Generator().manual_seed(2)
    device = "cuda" if engine == "cuda" else "cpu"
    weights = {name: torch.randn(V, R, generator=draw).to(device) for name in ("w1", "w2")}
    return factory(
        {
            "family": family,
            "dialect": dialect,
            "forward": "given",
            "buckets": (4, 8),
            "drafts": K,
            "vocabulary": V,
            "sample_from_anchor": True,
            "step_dtype": "float32",
            "head": torch.randn(V + 3, D, generator=draw).to(device),
            **weights,
            "device": device,
            "engine": engine,
            "seed": 4,
        }
    )


def block(made: Subject, seed: int, heats: torch.Tensor = HEATS) -> dict[str, torch.Tensor]:
    """Run one block of random rows and return what was drafted, on the CPU."""
    draw = torch.Generator().manual_seed(seed)
    device = made.setting["device"]
    inputs = {
        "hidden": torch.randn(B, K, D, generator=draw),
        "anchor": torch.randint(0, V, (B,), generator=draw),
        "temperature": heats,
        "top_k": TOP_KS,
    }
    made.load({name: value.to(device) for name, value in inputs.items()})
    made.replay()
    return {name: value.cpu() for name, value in (inputs | dict(made.read())).items()}


def target(made: Subject, tokens: torch.Tensor, seed: int) -> dict[str, Any]:
    """A target that likes the drafts, so that every length is accepted."""
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(B, K + 1, V, generator=draw)
    logits[:, :K].scatter_add_(2, tokens[:, :, None], torch.full((B, K, 1), 2.0))
    given = {
        "target_logits": logits,
        "top_p": torch.tensor([1.0, 1.0, 0.9, 0.7, 1.0, 0.5]),
        "verify_len": torch.randint(0, K + 2, (B,), generator=draw).clamp(min=seed % 2),
        "prefix_len": torch.randint(0, 99, (B,), generator=draw),
    }
    return {name: value.to(made.setting["device"]) for name, value in given.items()}


@KINDS
@pytest.mark.parametrize("rule", ["chain", "block"])
def test_real_blocks_commit_what_the_plain_loops_say(
    engine_name: str, family: str, dialect: str, rule: str
) -> None:
    """Greedy and sampled rows mixed; sampled rows over a dflash draft are one-hot."""
    made, lengths = subject(family, dialect, engine_name), set()
    assert "ACCEPTS" in made.describe()["abilities"]
    for seed in range(12):
        drafted = block(made, seed)
        given = target(made, drafted["tokens"], seed)
        found = {name: value.cpu() for name, value in made.accept({**given, "rule": rule}).items()}
        assert {name: value.dtype for name, value in found.items()} == FIELDS
        there = {name: value.cpu() for name, value in given.items()}
        asked = Requests(
            candidates=torch.cat((drafted["anchor"][:, None], drafted["tokens"]), 1),
            target=there["target_logits"],
            step_logits=drafted.get("step_logits", torch.zeros(B, K, V)),
            temperature=HEATS,
            top_k=TOP_KS,
            top_p=there["top_p"],
            flags=drafted["flags"],
            one_hot=torch.full((B,), family == "dflash"),
            coins=found["coins"],
            verify_len=there["verify_len"],
            prefix=there["prefix_len"],
        )
        for row in SAMPLED:
            values = [found[name][row].tolist() for name in list(FIELDS)[:7]]
            assert values == plain_accept(rule, asked, row)
        lengths |= set(found["correct_len"][SAMPLED].tolist())
        predicted = there["target_logits"].argmax(-1)
        for row in (0, 4):
            length = int(found["commit_len"][row])
            assert found["out_tokens"][row, :length].equal(predicted[row, :length])
    assert lengths == {0, 1, 2, 3}


@KINDS
def test_greedy_batches_return_no_coins(engine_name: str, family: str, dialect: str) -> None:
    """Zeros, and the commit is the recorded one where there is a recording."""
    made = subject(family, dialect, engine_name)
    drafted = block(made, 1, torch.zeros(B))
    given = {**target(made, drafted["tokens"], 1), "rule": "chain"}
    assert not made.accept(given)["coins"].any()
    assert made.proposer.acceptor.epilogue is not None
    assert made.proposer.acceptor.epilogue.replays == 1


def test_sampled_dflash_blocks_have_fresh_coins() -> None:
    """Every block has its own, although its drafts draw nothing."""
    made = subject("dflash", "none", "eager")
    coins = []
    for seed in range(2):
        given = target(made, block(made, seed)["tokens"], seed)
        coins.append(made.accept({**given, "rule": "chain"})["coins"])
    assert not torch.equal(*coins)


def test_the_verb_refuses_by_name() -> None:
    """An adapter's caller may expect either kind of error."""
    made = subject("dspark", "counter", "eager")
    given = {**target(made, block(made, 1)["tokens"], 1), "rule": "chain"}
    for error in (Refused, NotImplementedError, ValueError):
        with pytest.raises(error, match=r"^min_p: "):
            made.accept({**given, "min_p": torch.full((B,), 0.1)})
