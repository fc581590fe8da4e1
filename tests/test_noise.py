"""Philox known answers, both sides word for word, and the two transforms."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.noise import CounterNoise, RaceNoise
from impl.noise import counter as folded_counter
from impl.noise import philox as folded_philox
from impl.noise import race as folded_race
from oracle.reference import noise

ANSWERS = Path(__file__).parents[1] / "fixtures" / "kat" / "philox4x32_10.txt"
LINES = [line for line in ANSWERS.read_text().splitlines() if line and not line.startswith("#")]
WORD = st.integers(0, 2**32 - 1)


def known(line: str) -> tuple[list[int], int, list[int]]:
    """Counter words, seed key and output words of one recorded line."""
    words = [int(word, 16) for word in line.split()]
    return words[:4], words[4] | words[5] << 32, words[6:]


def test_all_recorded_answers_are_read() -> None:
    """Three lines of ten words each."""
    assert [len(line.split()) for line in LINES] == [10, 10, 10]


@pytest.mark.parametrize("line", LINES)
def test_both_sides_give_the_known_answers(line: str) -> None:
    """Random123's vectors, through numpy and through torch."""
    counter, key, expected = known(line)
    ours = noise.philox([np.array([word], dtype=np.uint64) for word in counter], key)
    assert [int(word[0]) for word in ours] == expected
    low, high = torch.tensor(key & 0xFFFFFFFF), torch.tensor(key >> 32)
    theirs = folded_philox(tuple(torch.tensor([word]) for word in counter), (low, high))
    assert [int(word[0]) for word in theirs] == expected


@given(
    seed=st.integers(0, 2**64 - 1),
    block=st.integers(0, 2**34),
    rows=st.integers(1, 5),
    step=st.integers(0, 6),
    vocabulary=st.integers(1, 40),
)
def test_both_sides_draw_the_same_noise(
    seed: int, block: int, rows: int, step: int, vocabulary: int
) -> None:
    """E of the fold lies within three float32 roundings of the reference's."""
    state = CounterNoise.seeded(vocabulary, seed, torch.device("cpu"))
    state.block.fill_(block)
    folded = folded_counter(state, rows, step, None).double()
    exact = noise.counter_noise(rows, step + 1, vocabulary, block, seed)[:, step]
    assert bool(((folded - exact).abs() <= 3 * 2.0**-24 * exact).all())


@given(st.lists(WORD, min_size=1, max_size=50))
def test_the_uniform_is_open_at_both_ends(bits: list[int]) -> None:
    """No word becomes 0 or 1, so E is positive and finite."""
    u = noise.uniform(np.array([0, 2**32 - 1, *bits], dtype=np.uint64))
    assert ((u > 0) & (u < 1)).all()
    e = noise.exponential(u)
    assert (e > 0).all()
    assert e.max() <= 16.64
    assert np.isfinite(noise.gumbel(e)).all()


def test_the_top_words_are_kept_below_one() -> None:
    """The 128 largest words round to 1 in float32; E stays 16.64 there."""
    u = noise.uniform(np.arange(2**32 - 128, 2**32, dtype=np.uint64))
    assert (u == 1 - 2.0**-24).all()
    assert noise.uniform(np.array([2**32 - 129], dtype=np.uint64))[0] <= 1 - 2.0**-24


@pytest.mark.parametrize("start", [0, 3, 16, 21])
def test_a_shard_draws_what_the_whole_vocabulary_draws(start: int) -> None:
    """Noise belongs to the global id, wherever the cut lies among the four words of a call."""
    whole = noise.counter_noise(2, 3, 24, 5, 77)
    shard = noise.counter_noise(2, 3, 24 - start, 5, 77, vocab_start=start)
    assert torch.equal(shard, whole[:, :, start:])


def test_the_word_of_an_id_is_the_one_its_noise_came_from() -> None:
    """Id v is word v mod 4 of call v div 4; only the low 32 bits of the block counter count."""
    ids, row, step = (np.arange(n, dtype=np.uint64) for n in (24, 2, 3))
    for block in (5, 2**32 - 1, 2**32 + 5, 2**62 + 5):
        places = (ids[None, None, :], row[:, None, None], step[None, :, None])
        e = noise.exponential(noise.uniform(noise.words(*places, block, 77)))
        assert e.shape == (2, 3, 24)
        assert torch.equal(torch.from_numpy(e), noise.counter_noise(2, 3, 24, block, 77))
    assert torch.equal(
        noise.counter_noise(2, 3, 24, 2**32 + 5, 77), noise.counter_noise(2, 3, 24, 5, 77)
    )
    # No step is named: the words of a step alone.
    assert noise.words(ids[:1], row[:1], step, 5, 77).tolist() == [
        int(noise.words(ids[:1], row[:1], step[k : k + 1], 5, 77)[0]) for k in range(3)
    ]


def test_the_transforms_of_a_uniform() -> None:
    """E = -log(1 - u) and G = -log E, in float64; a uniform is a float32 value."""
    u = noise.uniform(np.array([3, 2**31, 2**32 - 1000], dtype=np.uint64))
    assert u.dtype == np.float64
    assert (u == u.astype(np.float32)).all()
    e = noise.exponential(u)
    assert e == pytest.approx([-math.log1p(-value) for value in u], rel=1e-14)
    assert noise.gumbel(e) == pytest.approx([-math.log(value) for value in e], rel=1e-14)
    assert noise.floored(torch.ones(1)).dtype == torch.float64


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(1, 30))
def test_the_bucket_does_not_change_a_row_of_the_counter_dialect(
    seed: int, rows: int, vocabulary: int
) -> None:
    """Row 0 of one row equals row 0 of many."""
    state = CounterNoise.seeded(vocabulary, seed, torch.device("cpu"))
    few, many = folded_counter(state, 1, 2, None), folded_counter(state, rows, 2, None)
    assert torch.equal(few[0], many[0])


def test_race_noise_is_floored_at_the_smallest_normal_number() -> None:
    """A zero would let a masked token win by 0 / 0; the reference floors alike."""
    tiny = torch.finfo(torch.float32).tiny
    assert float(noise.floored(torch.zeros(1))) == tiny
    state = RaceNoise.seeded(64, 5, torch.device("cpu"))
    buffer = torch.empty(8, 64)
    drawn = folded_race(state, 8, 0, buffer)
    again = torch.empty(8, 64).exponential_(generator=torch.Generator().manual_seed(5))
    assert torch.equal(drawn.double(), noise.floored(again))


def test_the_unbounded_uniform_reaches_one() -> None:
    """Another dialect of the same words: exact for small ones, 1 for the 128 largest ones."""
    bits = np.array([0, 1, 2**22, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 1], np.uint64)
    found = noise.unbounded_uniform(bits)
    half = [2.0**-33, 1.5 * 2.0**-32, (2**22 + 0.5) * 2.0**-32, 0.5, 1 - 2.0**-24, 1.0, 1.0]
    assert found.tolist() == half
    assert noise.uniform(bits[:5]).tolist() == half[:5]
    assert np.isinf(noise.exponential(found[-1:])).all()


def test_a_block_of_noise_has_the_law_that_is_asked_for() -> None:
    """The same words, another transform."""
    usual = noise.counter_noise(2, 3, 5, 7, 11)
    other = noise.counter_noise(2, 3, 5, 7, 11, law=lambda bits: 0 * bits.astype(float) + 0.5)
    assert torch.equal(other, torch.full((2, 3, 5), np.log(2.0), dtype=torch.float64))
    same = noise.counter_noise(2, 3, 5, 7, 11, law=noise.unbounded_uniform)
    assert torch.allclose(same, usual, rtol=1e-6, atol=0)
