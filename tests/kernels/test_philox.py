"""Counter noise of the kernels: known words, both ends of the uniform, accurate logarithms."""

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")
tl = triton.language

from impl.kernels.philox import (  # noqa: E402
    BUMP_HIGH,
    BUMP_LOW,
    REST,
    ROUNDS,
    SHARED,
    exponential,
    log_exponential,
    philox,
    uniform,
)
from oracle.judge.margin import ARITHMETIC, UNIT  # noqa: E402

from .chains import DEVICE  # noqa: E402
from .ptx import Reader  # noqa: E402

ONES = 2**32 - 1
# Philox4x32-10 of counter and key all zero, all one, and the digits of pi, as Random123 lists them.
KNOWN = {
    (0, 0, 0, 0, 0, 0): (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    (ONES, ONES, ONES, ONES, ONES, ONES): (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0): (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ),
}


@triton.jit
def words_kernel(given, out):
    """Write four words of four counters and two key words."""
    c0, c1 = tl.load(given).to(tl.uint32), tl.load(given + 1).to(tl.uint32)
    c2, c3 = tl.load(given + 2).to(tl.uint32), tl.load(given + 3).to(tl.uint32)
    k0, k1 = tl.load(given + 4).to(tl.uint32), tl.load(given + 5).to(tl.uint32)
    w0, w1, w2, w3 = philox(c0, c1, c2, c3, k0, k1)
    tl.store(out, w0.to(tl.int64))
    tl.store(out + 1, w1.to(tl.int64))
    tl.store(out + 2, w2.to(tl.int64))
    tl.store(out + 3, w3.to(tl.int64))


@triton.jit
def noise_kernel(words, u, e, log_e, WIDE: tl.constexpr):  # type: ignore[name-defined]
    """Write uniform, exponential and its logarithm of words."""
    at = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    drawn = uniform(tl.load(words + at).to(tl.uint32))
    tl.store(u + at, drawn)
    tl.store(e + at, exponential(drawn))
    tl.store(log_e + at, log_exponential(exponential(drawn)))


def noise_of(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return u, E and log E of words, on the host."""
    out = [torch.zeros(len(words), device=DEVICE) for _ in range(3)]
    noise_kernel[(1,)](words.to(DEVICE), *out, WIDE=len(words))
    u, e, log_e = (found.cpu() for found in out)
    return u, e, log_e


@pytest.mark.parametrize(("given", "wanted"), KNOWN.items())
def test_words_are_those_of_random123(given: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Ten rounds, word order, and key order."""
    out = torch.zeros(4, dtype=torch.int64, device=DEVICE)
    words_kernel[(1,)](torch.tensor(given, device=DEVICE), out)
    assert tuple(out.tolist()) == wanted


@pytest.mark.parametrize(("given", "wanted"), KNOWN.items())
def test_the_text_of_the_last_rounds_says_what_the_function_says(
    given: tuple[int, ...], wanted: tuple[int, ...]
) -> None:
    """Of a row that draws; the words of one that draws nothing are all ones."""
    *state, low, high = given
    keys = [
        (key + turn * bump) % 2**32
        for turn in range(ROUNDS.value)
        for key, bump in ((low, BUMP_LOW.value), (high, BUMP_HIGH.value))
    ]
    for turn in range(SHARED.value):
        even, odd = state[0] * 0xD2511F53, state[2] * 0xCD9E8D57
        one, other = (odd >> 32) ^ state[1], (even >> 32) ^ state[3]
        state = [one ^ keys[2 * turn], odd % 2**32, other ^ keys[2 * turn + 1], even % 2**32]
    heat = np.array([0.8, -1.0], np.float32).view(np.uint32)
    words = [np.full(2, word, np.uint32) for word in (*state, *keys[2 * SHARED.value :])]
    reader = Reader({"$4": heat, **{f"${5 + i}": word for i, word in enumerate(words)}}, 2)
    reader.run(REST.value)
    found = [reader.held[f"${i}"].tolist() for i in range(4)]
    assert found == [[word, ONES] for word in wanted]


def test_the_uniform_is_open_at_both_ends_and_rounded_once() -> None:
    """Word 0 gives 2**-33, the largest words 1 - 2**-24, and ties of the division do not lean."""
    drawn = torch.Generator().manual_seed(1)
    edges = torch.tensor([0, 1, 2**24 + 1, 2**25 + 2, 2**32 - 129, 2**32 - 128, 2**32 - 1, 2**31])
    words = torch.cat([edges, torch.randint(2**32, (2**12 - len(edges),), generator=drawn)])
    u, e, log_e = noise_of(words)
    wanted = ((words.double() + 0.5) * 2.0**-32).float().clamp(max=1 - UNIT)
    assert torch.equal(u, wanted)
    assert (float(u[0]), float(u[6])) == (2.0**-33, 1 - UNIT)
    assert bool((e > 0).all())
    assert bool(log_e.isfinite().all())


def test_both_logarithms_keep_what_the_judge_grants_them() -> None:
    """E and log E lie as near the float64 values as margins say, over every octave of u."""
    granted = ARITHMETIC["triton-cuda"]
    drawn = torch.Generator().manual_seed(2)
    octave = torch.arange(2**12) % 33
    low = (torch.rand(2**12, generator=drawn, dtype=torch.float64) * 2.0**octave).long()
    words = torch.cat([low, 2**32 - 1 - low])
    u, e, log_e = noise_of(words)
    exact = -torch.log1p(-u.double())
    assert float(((e - exact) / exact).abs().max()) <= granted.exponential_variable * UNIT
    exact = e.double().log()
    assert float(((log_e - exact) / exact).abs().max()) <= granted.logarithm * UNIT
    assert (float(u.min()), float(u.max())) == (2.0**-33, 1 - UNIT)
