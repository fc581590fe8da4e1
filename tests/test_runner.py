"""Runner: buckets, warm-up, capture, pad rows, and what makes a recording stale."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from impl.buffers import NEUTRAL, Buffers
from impl.config import Config
from impl.runner import NO_HIDDEN, Runner
from impl.sampler import noise_for
from impl.subject import GivenForward

from .rig import BUCKETS, GREEDY, SAMPLED, SEED, D, K, Rig, V, consumed, rig, same

both_dialects = pytest.mark.parametrize("dialect", ["counter", "race"])


@pytest.mark.parametrize(("rows", "bucket"), [(1, 2), (2, 2), (3, 4), (4, 4)])
def test_the_smallest_bucket_that_fits_is_replayed(
    engine_name: str, rows: int, bucket: int
) -> None:
    """The block runs at the bucket, and only the live rows are returned."""
    made = rig(engine_name)
    proposal = made.propose(*[SAMPLED] * rows)
    assert (proposal.folded, proposal.bucket, len(proposal.tokens)) == (True, bucket, rows)
    replays = {size: held.replays for size, held in made.runner.recordings.items()}
    assert replays == {size: int(size == bucket) for size in BUCKETS}


def test_rows_above_the_largest_bucket_are_drafted_eagerly(engine_name: str) -> None:
    """Nothing is replayed, and the reason says so."""
    made = rig(engine_name)
    proposal = made.propose(*[SAMPLED] * 5)
    assert (proposal.folded, proposal.reason) == (False, "recording did not run")
    assert made.runner.replays == 0
    assert proposal.tokens.shape == (5, K)


class Counted(GivenForward):
    """A forward that lists the rows it was called with."""

    def __init__(self, mask_token: int) -> None:
        super().__init__(mask_token)
        self.calls: list[int] = []

    def __call__(self, buffers: Buffers, rows: int) -> torch.Tensor:
        """Note the call."""
        self.calls.append(rows)
        return super().__call__(buffers, rows)


def test_each_bucket_is_warmed_twice_and_captured_largest_first(engine_name: str) -> None:
    """Three calls a bucket: two warm-ups and the capture; a replay calls nothing."""
    made = rig(engine_name)
    forward, old = Counted(V), made.runner
    runner = Runner(old.engine, old.shapes, old.buffers, forward, old.hooks, noise=old.noise)
    runner.capture()
    runner.run(1)
    assert forward.calls == [4, 4, 4, 2, 2, 2]


@both_dialects
def test_capture_leaves_the_noise_as_found(engine_name: str, dialect: str) -> None:
    """The first block after capture draws what a fresh state of the seed draws."""
    made = rig(engine_name, dialect)
    fresh = noise_for(dialect, V, SEED, made.device)
    assert consumed(made.noise) == consumed(fresh)


class Forged(GivenForward):
    """A forward that returns what it is told to."""

    def __init__(self, answer: Callable[[Buffers, int], object]) -> None:
        super().__init__(V)
        self.answer = answer

    def __call__(self, buffers: Buffers, rows: int) -> Any:
        """Return the answer."""
        return self.answer(buffers, rows)


def captured(made: Rig, answer: Callable[[Buffers, int], object]) -> None:
    """Capture the rig's tail behind another forward."""
    old = made.runner
    Runner(old.engine, old.shapes, old.buffers, Forged(answer), old.hooks).capture()


@pytest.mark.parametrize("hidden", [None, ("states",), torch.zeros(BUCKETS[-1] * K, D).long()])
def test_capture_without_hidden_states_is_an_error(engine_name: str, hidden: object) -> None:
    """No hidden states, or another type, with a hook to feed."""
    with pytest.raises(RuntimeError, match=f"^{re.escape(NO_HIDDEN)}$"):
        captured(rig(engine_name), lambda *_: hidden)


def test_capture_with_too_few_hidden_states_is_an_error(engine_name: str) -> None:
    """The rows must be the bucket times the queries."""
    with pytest.raises(RuntimeError, match=r"shape \(4, 8\).*should give \(8, 8\)"):
        captured(rig(engine_name), lambda buffers, rows: buffers["hidden"][:rows, 0])


@pytest.mark.parametrize("forward", ["given", "backbone"])
def test_pad_rows_are_neutral_after_a_load(engine_name: str, forward: str) -> None:
    """Whatever the buffers held, the pad row is a valid greedy request afterwards."""
    made = rig(engine_name, forward=forward)
    neutral = [buffer for buffer in made.buffers.all if buffer.pad == "neutral"]
    for buffer in neutral:
        buffer.tensor.fill_(False if buffer.tensor.dtype == torch.bool else 99)
    made.propose(SAMPLED, SAMPLED, SAMPLED)
    assert {buffer.name for buffer in neutral} >= {"anchor", "temperature", "greedy"}
    for buffer in neutral:
        assert bool((buffer.tensor[3] == NEUTRAL[buffer.name]).all()), buffer.name


@both_dialects
@pytest.mark.parametrize("forward", ["given", "backbone"])
def test_live_rows_do_not_depend_on_pad_rows(engine_name: str, dialect: str, forward: str) -> None:
    """Other values in the pad row, from the same noise state: the live rows keep their bits."""
    found = []
    for pad in (0, 3):
        made = rig(engine_name, dialect, forward)
        made.proposer.load(made.batch(SAMPLED, GREEDY, SAMPLED))
        for name in NEUTRAL.keys() & made.buffers.keys() if pad else ():
            made.buffers[name][3].fill_(pad * (name != "greedy"))
        made.proposer.run()
        found.append(made.proposer.read())
    same(*found)


def moved_head(made: Rig) -> None:
    """The owner of the head holds another tensor."""
    made.lm_head.weight = made.head.clone()


def moved_markov(made: Rig) -> None:
    """The tensor object is the same, its memory is not."""
    made.markov.w2.data = made.markov.w2.data.clone()


def moved_backbone(made: Rig) -> None:
    """A weight of the draft forward is replaced."""
    weight = made.forward.weights()["backbone.merge"]
    weight.data = weight.data.clone()


@pytest.mark.parametrize(
    ("move", "name"),
    [
        (moved_head, "head.weight"),
        (moved_markov, "markov.w2"),
        (moved_backbone, "backbone.merge"),
    ],
)
def test_a_reallocated_weight_is_refused_by_name(
    engine_name: str, move: Callable[[Rig], None], name: str
) -> None:
    """A replay would read the old memory."""
    made = rig(engine_name, forward="backbone")
    made.proposer.load(made.batch(SAMPLED))
    move(made)
    with pytest.raises(RuntimeError, match=f"^recapture needed: {name} "):
        made.proposer.run()


def test_strict_watches_the_buffers_too(engine_name: str) -> None:
    """A static buffer that moves is named, but only when the environment asks for it."""
    made = rig(engine_name, config=Config(strict=True))
    made.proposer.load(made.batch(SAMPLED))
    made.buffers["tokens"].data = made.buffers["tokens"].data.clone()
    with pytest.raises(RuntimeError, match=r"^recapture needed: buffer tokens "):
        made.proposer.run()


def test_a_weight_that_is_written_in_place_is_used(engine_name: str) -> None:
    """In-place updates need no new capture: the next replay reads them."""
    made = rig(engine_name)
    batch = made.batch(GREEDY)
    made.proposer.propose(batch)
    made.markov.w2.zero_()
    made.head.zero_()
    made.head[5] = batch.source[0, 0] * 8
    assert int(made.proposer.propose(batch).tokens[0, 0]) == 5
