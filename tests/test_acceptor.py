"""Acceptor: coins of their own, the recorded epilogue and its gate, refusals, the judge's verb."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from impl.acceptance import RULES, Asked, Commit
from impl.claim import claimed_law
from impl.coins import counter_coins, race_coins
from impl.filters import target_law
from impl.graph import engine_for
from impl.noise import CounterNoise, RaceNoise, uniforms
from impl.target import Refused, Target

from .accepting import NAMES, requests
from .rig import GREEDY, SAMPLED, K, Rig, V, consumed, rig

CPU = torch.device("cpu")
WORD, MULTIPLY, BUMP = 2**32 - 1, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
SEED_KEY = 0x0123456789ABCDEF


def philox(counter: list[int], key: int) -> list[int]:
    """Philox4x32-10 on integers."""
    low, high = key & WORD, key >> 32
    for _ in range(10):
        one, two = MULTIPLY[0] * counter[0], MULTIPLY[1] * counter[2]
        counter = [
            (two >> 32) ^ counter[1] ^ low,
            two & WORD,
            (one >> 32) ^ counter[3] ^ high,
            one & WORD,
        ]
        low, high = (low + BUMP[0]) & WORD, (high + BUMP[1]) & WORD
    return counter


def target_for(made: Rig, rows: int, seed: int = 5, **changed: Any) -> Target:
    """What a target says of a block; few distinct logits, so that drafts agree with it."""
    draw = torch.Generator().manual_seed(seed)
    given = {
        "target_logits": torch.randint(0, 3, (rows, K + 1, V), generator=draw).float(),
        "top_p": torch.full((rows,), 0.9),
        "verify_len": torch.randint(0, K + 2, (rows,), generator=draw),
        "prefix_len": torch.randint(0, 99, (rows,), generator=draw),
    }
    there = {name: value.to(made.device) for name, value in given.items()}
    return Target.from_mapping({**there, "rule": "chain", **changed})


def agreeing(made: Rig, tokens: torch.Tensor, seed: int = 5) -> Target:
    """A target that accepts the first draft of every row."""
    target = target_for(made, len(tokens), seed)
    target.logits[:, 0].scatter_(1, tokens[:, :1], 9.0)
    return target


@pytest.mark.parametrize("block", [0, 3, 2**32 + 5])
def test_counter_coins_are_the_words_of_their_own_key(block: int) -> None:
    """Word k mod 4 of (k div 4, row, 0, block mod 2**32) under the changed key."""
    noise = CounterNoise.seeded(V, SEED_KEY, CPU)
    noise.block.fill_(block)
    coins = counter_coins(noise, 3, 6)
    for row in range(3):
        for place in range(6):
            words = philox([place // 4, row, 0, block & WORD], SEED_KEY ^ 0x9E3779B97F4A7C15)
            uniform = torch.tensor((words[place % 4] + 0.5) / 2**32, dtype=torch.float64).float()
            assert float(coins[row, place]) == min(float(uniform), 1 - 2.0**-24)


def test_coins_are_no_words_of_the_draft_noise() -> None:
    """Neither of the same block nor of its neighbours, in any step."""
    noise = CounterNoise.seeded(40, SEED_KEY, CPU)
    drawn = set()
    for block in range(4):
        noise.block.fill_(block)
        drawn |= {
            value for step in range(4) for value in uniforms(noise, 4, step).flatten().tolist()
        }
    noise.block.fill_(1)
    assert drawn.isdisjoint(counter_coins(noise, 4, 8).flatten().tolist())


def test_race_coins_come_after_the_noise_of_their_block() -> None:
    """The generator moves, and what it gives are uniforms."""
    noise = RaceNoise.seeded(V, SEED_KEY, CPU)
    twin = noise.generator.clone_state()
    coins = race_coins(noise, 2, K + 1)
    assert torch.equal(coins, torch.empty(2, K + 1).uniform_(generator=twin))
    assert not torch.equal(race_coins(noise, 2, K + 1), coins)


def test_a_proposer_uses_the_coins_of_its_last_block(engine_name: str) -> None:
    """Block 2 after three blocks, whatever ran outside the recording in between."""
    made = rig(engine_name, "counter")
    assert isinstance(made.noise, CounterNoise)
    for _ in range(3):
        made.propose(SAMPLED, GREEDY)
    at = replace(made.noise, block=torch.full_like(made.noise.block, 2))
    committed = made.proposer.accept(target_for(made, 2))
    assert torch.equal(committed.coins, counter_coins(at, 2, K + 1))
    assert torch.equal(made.proposer.accept(target_for(made, 2)).coins, committed.coins)


def test_a_refused_replay_leaves_the_block_before_its_coins(engine_name: str) -> None:
    """They are not those of the next block, which will want them itself."""
    made = rig(engine_name, "counter")
    made.propose(SAMPLED, GREEDY)
    coins, held = made.proposer.accept(target_for(made, 2)).coins, made.head.data
    made.head.data = held.clone()
    with pytest.raises(RuntimeError, match="recapture needed"):
        made.proposer.run()
    made.head.data = held
    assert torch.equal(made.proposer.accept(target_for(made, 2)).coins, coins)
    made.proposer.run()
    assert not torch.equal(made.proposer.accept(target_for(made, 2)).coins, coins)


@pytest.mark.parametrize("rows", [(GREEDY, GREEDY), (SAMPLED, GREEDY)])
def test_race_coins_move_the_generator_alike_for_any_rows(
    engine_name: str, rows: tuple[tuple[float, int], ...]
) -> None:
    """An all-greedy batch draws, discards and returns zeros."""
    made, plain = rig(engine_name, "race"), rig(engine_name, "race")
    for each, asked in ((made, rows), (plain, (SAMPLED, SAMPLED))):
        each.propose(*asked)
        coins = each.proposer.accept(target_for(each, 2)).coins
        assert bool(coins.any()) is (SAMPLED in asked)
    assert consumed(made.noise) == consumed(plain.noise)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_the_recorded_accept_equals_the_eager_one(engine_name: str, rows: int) -> None:
    """Every bucket, after a larger batch; pad rows commit nothing."""
    made = rig(engine_name, "counter")
    epilogue = made.proposer.acceptor.epilogue
    assert epilogue is not None
    lengths = set()
    for seed, count in ((1, 4), (2, rows), (3, rows), (4, rows)):
        tokens = made.propose(*[GREEDY] * count, seed=seed).tokens
        target = agreeing(made, tokens, seed)
        found = made.proposer.accept(target)
        eager = made.proposer.accept(replace(target, logit_adjustment=True))
        assert (found.folded, found.reason) == (True, "folded")
        assert (eager.folded, eager.reason) == (False, "logits adjusted")
        for name, value in found.tensors().items():
            assert torch.equal(value, eager.tensors()[name]), name
            assert value.dtype == eager.tensors()[name].dtype
        lengths |= set(found.commit_len.tolist())
    assert epilogue.replays == 4
    assert len(lengths) > 1
    bucket = 2 if rows <= 2 else 4
    assert not bool(epilogue.commit.commit[rows:bucket].any())


def test_results_of_the_recorded_accept_are_copies(engine_name: str) -> None:
    """The next verify does not change them."""
    made = rig(engine_name, "counter")
    tokens = made.propose(GREEDY, GREEDY).tokens
    first = made.proposer.accept(agreeing(made, tokens))
    before = {name: value.clone() for name, value in first.tensors().items()}
    made.proposer.accept(replace(agreeing(made, tokens), verify_len=torch.zeros_like(tokens[:, 0])))
    assert all(torch.equal(value, before[name]) for name, value in first.tensors().items())


def test_every_row_of_the_accept_gate_closes_it(engine_name: str) -> None:
    """Each for its own reason, and it is open without them."""
    made = rig(engine_name, "counter")
    target = target_for(made, 1)

    def reason(**changed: Any) -> str:
        return made.proposer.accept(replace(target, **changed)).reason

    made.propose(GREEDY)
    assert reason() == "folded"
    assert reason(logit_adjustment=True) == "logits adjusted"
    assert reason(live_grammar=True) == "live grammar"
    made.propose(SAMPLED)
    assert reason() == "sampled rows"
    made.proposer.eager(made.batch(GREEDY))
    assert reason() == "block not folded"
    made.propose(GREEDY)
    made.proposer.acceptor.epilogue = None
    assert reason() == "verify did not replay"


def test_a_replay_of_another_bucket_raises(
    engine_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prediction and report of a replay are one decision."""
    made = rig(engine_name, "counter")
    made.propose(GREEDY)
    monkeypatch.setattr(made.proposer.acceptor.epilogue, "run", lambda _: 4)
    with pytest.raises(RuntimeError, match="replayed bucket 4; the block ran at 2"):
        made.proposer.accept(target_for(made, 1))


@pytest.mark.parametrize("rule", list(RULES))
def test_sampled_accepts_can_be_recorded(engine_name: str, rule: str) -> None:
    """Laws, both rules and the draw obey the rules of capture, and a replay computes them."""
    device = torch.device("cuda" if engine_name == "cuda" else "cpu")
    asked = requests(5, 3, 7, 3)
    for name, value in vars(asked).items():
        setattr(asked, name, value.to(device))
    out = Commit.empty(5, 3, device)

    def body() -> None:
        law = target_law(asked.target, asked.temperature, asked.top_k, asked.top_p)
        drafts, kept = asked.candidates[:, 1:], asked.step_logits
        claim = claimed_law(drafts, kept, asked.temperature, asked.one_hot, asked.flags, 7)
        lengths = (asked.verify_len, asked.prefix)
        RULES[rule](Asked(asked.candidates, *lengths), law, claim, asked.coins, out)

    body()
    engine = engine_for(device, engine_name)
    recording = engine.record(body, pool=engine.pool())
    for seed in (3, 4):
        for name, value in vars(requests(5, 3, 7, seed)).items():
            getattr(asked, name).copy_(value)
        body()
        eager = out.clone()
        recording.replay()
        assert all(torch.equal(getattr(out, name), getattr(eager, name)) for name in NAMES)


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"min_p": torch.tensor([0.0, 0.1])}, "min_p"),
        ({"penalties": ("repetition",)}, "penalties"),
        ({"processors": ("mine",)}, "processors"),
        ({"threshold": 0.9}, "lossy threshold"),
        ({"threshold_acc": torch.tensor([1.0, 0.5])}, "lossy threshold"),
        ({"typical_p": 0.5}, "typical_p"),
        ({"rule": "tree"}, "unknown rule"),
        ({"top_p": torch.tensor([1.0, 0.0])}, "top_p"),
        ({"top_p": torch.tensor([1.0, 1.001])}, "top_p"),
        ({"top_p": torch.tensor([float("nan"), 1.0])}, "top_p"),
        ({"target_logits": torch.zeros(2, K + 1, V + 1)}, "draft vocabulary differs"),
    ],
)
def test_refusals_have_a_name(changed: dict[str, Any], name: str) -> None:
    """Whatever the rows are; nothing is drawn before the answer."""
    for rows in ((SAMPLED, GREEDY), (GREEDY, GREEDY)):
        made = rig("emulator", "race")
        made.propose(*rows)
        state = consumed(made.noise)
        with pytest.raises(Refused, match=f"^{name}: ") as caught:
            made.proposer.accept(target_for(made, 2, **changed))
        assert caught.value.name == name
        assert consumed(made.noise) == state


def test_parameters_that_change_nothing_are_no_refusal() -> None:
    """min_p 0, thresholds of 1, and no penalties at all."""
    made = rig("emulator", "counter")
    made.propose(SAMPLED)
    neutral: dict[str, Any] = {"min_p": 0.0, "threshold": 1.0, "penalties": (), "processors": None}
    assert made.proposer.accept(target_for(made, 1, **neutral)).reason == "sampled rows"


def test_sampled_rows_without_kept_logits_are_refused() -> None:
    """They are never verified by argmax instead; a one-hot draft needs none."""
    made = rig("emulator", "counter")
    made.propose(SAMPLED)
    block, acceptor = replace(made.proposer.drafted(), step_logits=None), made.proposer.acceptor
    with pytest.raises(Refused, match=r"^no sampled accept: "):
        acceptor.accept(block, target_for(made, 1))
    assert acceptor.accept(replace(block, one_hot=True), target_for(made, 1)).coins.all()


def test_shapes_and_lengths_belong_to_the_block() -> None:
    """Rows of another batch, and more verified rows than there are, name what is wrong."""
    made = rig("emulator", "counter")
    with pytest.raises(RuntimeError, match="no block has run"):
        made.proposer.accept(target_for(made, 1))
    made.propose(SAMPLED)
    with pytest.raises(ValueError, match="logits has shape"):
        made.proposer.accept(target_for(made, 2))
    with pytest.raises(ValueError, match=f"verify length {K + 2}"):
        made.proposer.accept(target_for(made, 1, verify_len=torch.tensor([K + 2])))
