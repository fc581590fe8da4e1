"""Sampler and proposer: one noise state for every path, fallback, admission, hard rows."""

import re

import pytest
import torch

from impl.bias import MarkovHead
from impl.config import Config
from impl.graph import engine_for
from impl.logits import BorrowedHead
from impl.noise import philox
from impl.plan import Plan, Refusal, Surroundings
from impl.proposal import Batch
from impl.sampler import DraftSampler, admit, build_dspark_sampler, noise_for

from .rig import ALL, BUCKETS, GREEDY, SAMPLED, D, K, R, V, W, consumed, rig, same

CPU = torch.device("cpu")
INFINITE, NOT = float("inf"), float("nan")
both_dialects = pytest.mark.parametrize("dialect", ["counter", "race"])


@both_dialects
@pytest.mark.parametrize("forward", ["given", "backbone"])
@pytest.mark.parametrize("from_anchor", [True, False])
def test_eager_and_folded_draft_the_same_from_one_noise_state(
    engine_name: str, dialect: str, forward: str, *, from_anchor: bool
) -> None:
    """Three blocks, pad rows included, bit for bit, and the states are equal after each."""
    one, two = (rig(engine_name, dialect, forward, from_anchor=from_anchor) for _ in range(2))
    for seed in range(3):
        rows = (SAMPLED, GREEDY, (0.3, 5))
        folded = one.propose(*rows, seed=seed)
        eager = two.proposer.eager(two.batch(*rows, seed=seed))
        assert (folded.folded, eager.folded) == (True, False)
        same(folded, eager)
        assert consumed(one.noise) == consumed(two.noise)


def test_two_replays_draw_fresh_noise(engine_name: str) -> None:
    """The same loaded batch, run ten times, does not draft the same block every time."""
    made = rig(engine_name)
    made.proposer.load(made.batch((50.0, ALL)))
    blocks = set()
    for _ in range(10):
        made.proposer.run()
        blocks.add(tuple(made.proposer.read().tokens.flatten().tolist()))
    assert len(blocks) > 1


@pytest.mark.parametrize("mode", ["auto", "off"])
@pytest.mark.parametrize("rows", [(GREEDY, GREEDY), (SAMPLED, GREEDY), (SAMPLED,) * 5])
def test_every_path_counts_one_block(
    engine_name: str, mode: str, rows: tuple[tuple[float, int], ...]
) -> None:
    """Folded, eager, greedy-only, above the largest bucket, all greedy: plus one, each time."""
    made = rig(engine_name, "counter", config=Config(folded_sampling=mode))
    counts = []
    for _ in range(2):
        made.propose(*rows)
        counts.append(consumed(made.noise))
    made.proposer.eager(made.batch(*rows))
    assert [*counts, consumed(made.noise)] == [1, 2, 3]


@pytest.mark.parametrize("rows", [(GREEDY, GREEDY), (SAMPLED, GREEDY)])
def test_race_noise_moves_alike_whatever_the_path_and_the_rows(
    engine_name: str, rows: tuple[tuple[float, int], ...]
) -> None:
    """A greedy-only tail, an eager block and a sampled tail leave the generator in one state."""
    states = []
    for mode in ("auto", "off"):
        made = rig(engine_name, "race", config=Config(folded_sampling=mode))
        made.propose(*rows)
        states.append(consumed(made.noise))
    made = rig(engine_name, "race")
    made.proposer.eager(made.batch(*rows))
    plain = rig(engine_name, "race")
    plain.propose(SAMPLED, SAMPLED)
    assert states == [consumed(made.noise)] * 2 == [consumed(plain.noise)] * 2


@both_dialects
def test_a_greedy_only_tail_leaves_sampled_rows_to_the_eager_block(
    engine_name: str, dialect: str
) -> None:
    """Greedy batches stay folded; a sampled row makes the step eager, with its reason."""
    made = rig(engine_name, dialect, config=Config(folded_sampling="off"))
    full = rig(engine_name, dialect)
    assert isinstance(made.proposer.tail, DraftSampler)
    assert made.proposer.tail.decision.reason == "sampling switched off"
    for rows, reason in (
        ((GREEDY, GREEDY), "folded"),
        ((GREEDY, SAMPLED), "sampled rows with a greedy-only tail"),
    ):
        proposal = made.propose(*rows)
        assert (proposal.reason, proposal.folded) == (reason, reason == "folded")
        expected = full.propose(*rows)
        assert torch.equal(proposal.tokens, expected.tokens)


def test_results_are_copies(engine_name: str) -> None:
    """What was read stays as read after the next block."""
    made = rig(engine_name)
    first = made.propose(SAMPLED, GREEDY, seed=1)
    kept = {name: value.clone() for name, value in vars(first).items() if torch.is_tensor(value)}
    second = made.propose((2.0, ALL), SAMPLED, seed=2)
    assert not torch.equal(first.hidden, second.hidden)
    assert kept.keys() >= {"tokens", "step_logits", "temperature", "greedy", "flags"}
    assert all(torch.equal(getattr(first, name), value) for name, value in kept.items())


def test_parameters_are_staged_for_every_block(engine_name: str) -> None:
    """The same row is cold, hot and cold again, and its temperature follows."""
    made = rig(engine_name)
    for wanted in (1e-5, 50.0, 1e-5):
        proposal = made.propose((wanted, ALL))
        assert proposal.temperature is not None
        assert proposal.temperature.tolist() == pytest.approx([wanted])
        assert proposal.greedy is not None
        assert proposal.greedy.tolist() == [False]


@pytest.mark.parametrize(
    ("temperature", "top_k", "greedy", "clamped"),
    [
        (0.0, ALL, True, 1e-5),
        (1.0, -1, True, 1.0),
        (9e-7, 50, True, 1e-5),
        (2e-6, 50, False, 1e-5),
        (5.0, 1, True, 5.0),
        (5.0, ALL, False, 5.0),
    ],
)
def test_admission_clamps_after_the_greedy_test(
    temperature: float, top_k: int, clamped: float, *, greedy: bool
) -> None:
    """Greedy is top_k <= 1 or a temperature below 1e-6, whatever the other one says."""
    admitted = admit(torch.tensor([temperature]), torch.tensor([top_k]))
    assert admitted.greedy.tolist() == [greedy]
    assert admitted.sampled_rows is not greedy
    assert admitted.temperature.tolist() == pytest.approx([clamped])


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf")])
def test_a_temperature_that_is_no_temperature_names_its_row(value: float) -> None:
    """Nothing is clamped into range."""
    with pytest.raises(ValueError, match=f"^row 1 has temperature {re.escape(str(value))}"):
        admit(torch.tensor([1.0, value], dtype=torch.float64), torch.tensor([5, 5]))


def test_a_batch_of_unequal_parts_is_refused() -> None:
    """Rows without parameters would silently run as pad rows."""
    admitted = admit(torch.ones(1), torch.ones(1))
    with pytest.raises(ValueError, match=r"\[2, 2, 1\] rows"):
        Batch(torch.zeros(2, K, D), torch.zeros(2, dtype=torch.int64), admitted)


@both_dialects
@pytest.mark.parametrize("row", [GREEDY, SAMPLED])
@pytest.mark.parametrize(
    ("fill", "values", "token", "flag"),
    [
        (0.0, {7: NOT, 4: NOT}, 4, 1),
        (NOT, {}, 0, 1),
        (0.0, {9: INFINITE, 6: INFINITE}, 6, 0),
        (-INFINITE, {}, 0, 2),
        (-INFINITE, {8: -3.0}, 8, 0),
    ],
)
def test_rows_without_a_finite_maximum(
    engine_name: str,
    dialect: str,
    row: tuple[float, int],
    fill: float,
    values: dict[int, float],
    token: int,
    flag: int,
) -> None:
    """Lowest NaN id, lowest +inf id, id 0; the only finite id wins; each with its flag."""
    made = rig(engine_name, dialect)
    made.markov.w2.zero_()
    made.head.fill_(0)
    made.head[:, 0] = fill
    for place, value in values.items():
        made.head[place, 0] = value
    batch = made.batch(row)
    batch.source.zero_()
    batch.source[..., 0] = 1
    made.head[:, 1:] = 0
    proposal = made.proposer.propose(batch)
    assert proposal.tokens.tolist() == [[token] * K]
    assert proposal.flags.tolist() == [[flag] * K]


def test_a_quantized_head_is_refused_at_build() -> None:
    """Eight-bit floats are floating point, and still not dense."""
    plan, head = Plan(K, V, BUCKETS), BorrowedHead(torch.zeros(W, D).to(torch.float8_e4m3fn))
    markov, noise = MarkovHead(torch.zeros(V, R), torch.zeros(V, R)), noise_for("race", V, 0, CPU)
    around = Surroundings(engine_for(CPU, "emulator"), Config())
    built = build_dspark_sampler(plan, head, markov, noise, around)
    assert built == Refusal("quantized output head")


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        (0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**32 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ],
)
def test_philox_gives_the_known_answers(word: int, answer: str) -> None:
    """Counter and key all zero, and all ones."""
    words = torch.tensor(word)
    found = philox((words,) * 4, (words, words))
    assert [f"{int(out):08x}" for out in found] == answer.split()
