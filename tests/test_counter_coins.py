"""Coins of the counter dialect: the words the README names, apart from the draft's own."""

import numpy as np
import torch

from oracle.reference import noise


def test_coins_are_the_words_of_their_own_key() -> None:
    """Coin 5 of row 2 is word 1 of the call at (1, 2, 0, block); block counters wrap at 2^32."""
    seed_key, block = 2**64 - 3, 2**32 + 7
    coins = noise.counter_coins(3, 6, block, seed_key)
    call = [np.array([word], dtype=np.uint64) for word in (1, 2, 0, 7)]
    bits = noise.philox(call, seed_key ^ 0x9E3779B97F4A7C15)[1]
    assert coins.shape == (3, 7)
    assert float(coins[2, 5]) == float(noise.uniform(bits)[0])


def test_coins_share_no_word_with_the_noise() -> None:
    """The noise of the same block under the same seed holds other uniforms."""
    coins = noise.counter_coins(4, 7, 3, 11)
    e = noise.counter_noise(4, 1, 8, 3, 11)[:, 0]
    assert not torch.isclose(1 - torch.exp(-e), coins, atol=1e-6).any()
