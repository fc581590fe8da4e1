"""A vocabulary over ranks: the sharded block equals the whole one bit for bit."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl import gate
from impl.bias import MarkovHead
from impl.buffers import Buffers
from impl.noise import CounterNoise, RaceNoise, counter
from impl.ranks import ShardedDspark, ShardedLayout, asked, head_of
from impl.shards import Shard, agree, candidate, even_ranges, winner
from oracle.judge.checks.gates import OPEN_BUILD

from .local_group import LocalGroup
from .sharding import CPU, Case, Ranges, case, differences, rank_parts, sharded, whole
from .strategies import Shape, shapes

VALUES = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 2.0, torch.inf, -torch.inf, torch.nan])


@st.composite
def cuts(draw: st.DrawFn, vocabulary: int, multiple: int) -> Ranges:
    """Contiguous shards of up to five ranks, uneven and empty ones among them."""
    last = (vocabulary - 1) // multiple
    inner = draw(st.lists(st.integers(0, last + 1), max_size=4), label="edges")
    edges = [0, *(min(edge * multiple, vocabulary) for edge in sorted(inner)), vocabulary]
    return tuple(pairwise(edges))


def poison(buffers: Buffers) -> None:
    """Fill whatever a block may not read before it wrote it."""
    for buffer in buffers.all:
        if buffer.role in ("scratch", "output"):
            floating = buffer.tensor.is_floating_point()
            buffer.tensor.fill_(torch.nan if floating else 77)


def check(drawn: Case, ranges: Ranges, block: int) -> None:
    """Every rank has the bits of the whole block, whatever its buffers held."""
    expected = whole(drawn, block)
    ranks = LocalGroup.together(
        len(ranges), lambda group: sharded(drawn, ranges, group, block, poison)
    )
    for rank, got in enumerate(ranks):
        assert differences(got, expected) == [], (rank, ranges)


@given(shapes(), st.sampled_from(["sampled", "greedy"]), st.integers(0, 2**33), st.data())
def test_a_sharded_dspark_block_equals_the_whole_one(
    shape: Shape, fold: str, block: int, data: st.DataObject
) -> None:
    """Tokens, flags and kept logits of mixed rows, with ties, NaN, masks and padded heads."""
    ranges = data.draw(cuts(shape.vocabulary, 4), label="ranges")
    check(case(shape, "dspark", fold), ranges, block)


@given(shapes(), st.data())
def test_a_sharded_dflash_block_equals_the_whole_one(shape: Shape, data: st.DataObject) -> None:
    """Every position takes the argmax of all shards; a shard may start anywhere."""
    ranges = data.draw(cuts(shape.vocabulary, 1), label="ranges")
    check(case(shape, "dflash", "greedy"), ranges, 0)


@given(st.lists(VALUES, min_size=1, max_size=12), st.data())
def test_the_winner_over_shards_is_the_argmax(values: list[float], data: st.DataObject) -> None:
    """Ties go to the lowest id over all edges, NaN beats everything, empty shards never win."""
    ranges = data.draw(cuts(len(values), 1), label="ranges")
    row = torch.tensor([values])
    sent = torch.zeros(len(ranges), 2, 1, dtype=torch.int32)
    for rank, (start, end) in enumerate(ranges):
        candidate(row[:, start:end], Shard(ranges, rank), sent[rank])
    top, ids = winner(sent)
    assert int(ids) == int(row.argmax(-1))
    assert torch.equal(top.nan_to_num(7e7), row.amax(-1).nan_to_num(7e7))


def test_a_scaled_logit_that_overflows_is_a_point_mass_over_shards() -> None:
    """l / T is infinite for many ids, on several ranks; the largest logit wins, not the lowest."""
    given_ = replace(case(small(rows=3), "dspark", "sampled", spoil=False), noise_seed=3)
    spoil = 1e36 * (1 + torch.arange(13.0) % 11).expand(3, 2, 13)
    hot = replace(given_, spoil=spoil, heat=torch.full((3,), 1e-5), top_k=torch.full((3,), 9))
    check(hot, ((0, 4), (4, 8), (8, 13)), 0)
    assert (whole(hot)["tokens"] == 10).all()


def test_an_empty_first_shard_loses_to_masked_ids() -> None:
    """A row that is -inf everywhere yields id 0, not the id of a rank that holds none."""
    ranges = ((0, 0), (0, 4), (4, 4))
    sent = torch.zeros(3, 2, 1, dtype=torch.int32)
    for rank, (start, end) in enumerate(ranges):
        candidate(torch.full((1, end - start), -torch.inf), Shard(ranges, rank), sent[rank])
    assert sent[:, 1, 0].tolist() == [4, 0, 4]
    assert winner(sent)[1].tolist() == [0]


@pytest.mark.parametrize("start", [0, 4, 20])
def test_noise_belongs_to_the_global_id(start: int) -> None:
    """A shard draws the words that the whole vocabulary draws for its ids."""
    noise = CounterNoise.seeded(30, 5, CPU)
    full = counter(noise, 3, 2, None)
    assert torch.equal(counter(noise.shard(start, 7), 3, 2, None), full[:, start : start + 7])
    assert counter(noise.shard(30, 0), 3, 2, None).shape == (3, 0)


def small(**changes: Any) -> Shape:
    """A DSPARK shape of thirteen ids."""
    sizes: dict[str, Any] = {"rows": 3, "drafts": 2, "dropped": 0, "vocabulary": 13, "stored": 16}
    sizes |= {"hidden": 4, "rank": 2, "dtype": torch.float32, "step_dtype": torch.float32}
    return Shape(**(sizes | {"seed": 1} | changes))


def solo(ranges: Ranges, given_: Case | None = None) -> Any:
    """Build one rank's draft without meeting the others."""
    drawn = given_ or case(small(), "dspark", "sampled")
    group = LocalGroup.together(1, lambda group: group)[0]
    return rank_parts(drawn, ranges, group, drawn.noise())


def test_a_shard_of_counter_noise_starts_at_a_multiple_of_four() -> None:
    """The start and the rule are named."""
    noise = CounterNoise.seeded(13, 5, CPU)
    with pytest.raises(ValueError, match=r"starts at id 6; .* should start at a multiple of 4"):
        noise.shard(6, 7)
    drawn = case(small(), "dspark", "sampled")
    ranges = ((0, 6), (6, 13))
    with pytest.raises(ValueError, match="starts at id 6"):
        LocalGroup.together(2, lambda group: sharded(drawn, ranges, group))


def test_race_noise_over_shards_is_refused() -> None:
    """Its keys need the softmax over all ids; buffers and draft say so by name."""
    drawn, shard = case(small(), "dspark", "sampled"), Shard(((0, 13),), 0)
    sizes = (drawn.shapes, "dspark", "race", "sampled", "given", torch.float32, torch.float32)
    with pytest.raises(ValueError, match="race noise over shards"):
        ShardedLayout(*sizes, shard=shard)
    group = LocalGroup.together(1, lambda group: group)[0]
    race = RaceNoise.seeded(13, 5, CPU)
    head = head_of(shard, drawn.weight)
    with pytest.raises(ValueError, match="race noise over shards"):
        ShardedDspark(drawn.shapes, head, drawn.markov, race, shard=shard, group=group)


@pytest.mark.parametrize(
    ("ranges", "rank", "words"),
    [
        (((0, 4), (5, 9)), 0, r"shard of rank 1 is \[5, 9\); it should start at 4"),
        (((0, 4), (3, 9)), 0, r"shard of rank 1 is \[3, 9\); it should start at 4"),
        (((0, 4), (4, 2)), 0, "not end before it starts"),
        (((1, 4),), 0, "should start at 0"),
        (((0, 0), (0, 0)), 0, "the shards hold 0 ids"),
        (((0, 4),), 1, "rank 1 has no shard; there are 1"),
    ],
)
def test_ranges_that_are_no_shards_are_refused(ranges: Ranges, rank: int, words: str) -> None:
    """Gaps, overlaps and missing ranks are named."""
    with pytest.raises(ValueError, match=words):
        Shard(ranges, rank)


def test_parts_of_other_ranks_are_refused() -> None:
    """A head, a group or shapes that belong to other shards never meet."""
    with pytest.raises(ValueError, match="number 0 of 2; as its rank it should be number 0 of 1"):
        solo(((0, 8), (8, 13)))
    with pytest.raises(ValueError, match=r"the shards hold 12 ids; they should hold .* of 13"):
        solo(((0, 12),))
    shard = Shard(((0, 8), (8, 13)), 1)
    with pytest.raises(ValueError, match=r"the shard at id 8 has a head of shape \(4, 3\)"):
        head_of(shard, torch.zeros(4, 3))
    drawn = case(small(), "dspark", "sampled")

    def mixed(group: LocalGroup) -> None:
        own, other = Shard(shard.ranges, group.rank), Shard(shard.ranges, 1 - group.rank)
        head, markov = head_of(other, drawn.weight), MarkovHead(drawn.markov.w1, drawn.markov.w2)
        ShardedDspark(drawn.shapes, head, markov, drawn.noise(), shard=own, group=group)

    with pytest.raises(ValueError, match=r"the head holds \d ids from \d; it should hold the"):
        LocalGroup.together(2, mixed)


@pytest.mark.parametrize(
    ("vocabulary", "ranks", "expected"),
    [
        (16, 2, ((0, 8), (8, 16))),
        (13, 2, ((0, 8), (8, 13))),
        (10, 4, ((0, 4), (4, 8), (8, 10), (10, 10))),
        (3, 2, ((0, 3), (3, 3))),
    ],
)
def test_even_ranges_start_at_multiples(vocabulary: int, ranks: int, expected: Ranges) -> None:
    """The last shards may be short or empty; all of them together are the vocabulary."""
    assert even_ranges(vocabulary, ranks) == expected
    assert Shard(expected, ranks - 1).vocabulary == vocabulary


def test_every_rank_asks_for_the_same_bytes() -> None:
    """The need of the memory gate does not depend on how many ids a rank holds."""
    drawn = case(small(), "dspark", "sampled")
    ranges = ((0, 8), (8, 13), (13, 13))
    for fold in ("sampled", "greedy"):
        sizes = (drawn.shapes, "dspark", "counter", fold, "given", torch.float16, torch.float32)
        layouts = [ShardedLayout(*sizes, shard=Shard(ranges, rank)) for rank in range(3)]
        needs = {layout.nbytes() for layout in layouts}
        held = [sum(spec.nbytes for spec in layout.specs()) for layout in layouts]
        assert needs == {max(held)}
        assert held[0] > held[1] > held[2]


def decided(group: LocalGroup, free: list[int | None]) -> gate.Decision:
    """Ask the gate about facts that only differ in free memory."""
    facts = {**OPEN_BUILD, "family": "dspark", "need_bytes": 10, "free_bytes": free[group.rank]}
    return asked(group, gate.BuildFacts(**facts))


@pytest.mark.parametrize(
    ("free", "fold", "least"),
    [
        ([2**30 + 10, 2**40], "sampled", 2**30 + 10),
        ([2**40, 2**30 + 9], "greedy", 2**30 + 9),
        ([None, 2**30], "greedy", 2**30),
        ([None, None], "sampled", None),
    ],
)
def test_the_group_decides_from_the_least_free_memory(
    free: list[int | None], fold: str, least: int | None
) -> None:
    """Both ranks get one decision, with the figures that made it."""
    decisions = LocalGroup.together(2, lambda group: decided(group, free))
    assert decisions == [gate.Decision(fold, decisions[0].reason, 10, least)] * 2


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        ({"drafts": 3}, {"drafts": 4}, "drafts is 3 on rank 0 and 4 on rank 1"),
        ({"fold": "sampled"}, {"fold": "greedy"}, "fold is 'sampled' on rank 0 and 'greedy' on"),
        ({"drafts": 3}, {}, "drafts is 3 on rank 0 and 'absent' on rank 1"),
    ],
)
def test_ranks_that_disagree_are_named(
    ours: dict[str, Any], theirs: dict[str, Any], words: str
) -> None:
    """Every rank raises, with the fact, the rank and both values."""

    def body(group: LocalGroup) -> str:
        with pytest.raises(ValueError, match=words) as caught:
            agree(group, (ours, theirs)[group.rank])
        return str(caught.value)

    assert len(set(LocalGroup.together(2, body))) == 1


def test_an_error_of_one_rank_lets_the_others_go() -> None:
    """The error of the rank that failed is raised, and nobody waits for it."""

    def body(group: LocalGroup) -> None:
        if group.rank == 1:
            raise RuntimeError("rank 1 stops")
        group.exchange("here")

    with pytest.raises(RuntimeError, match="rank 1 stops"):
        LocalGroup.together(3, body)
