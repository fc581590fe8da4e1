"""The PTX of a contest says what its functions say: its text is read, line by line, in NumPy."""

from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")
tl = triton.language

from impl.kernels.contest import CONTEST, bits_of, contest  # noqa: E402

from .chains import DEVICE  # noqa: E402
from .ptx import Array, Reader  # noqa: E402

ROWS, GROUPS = 8, 64
INTERPRETED = tl.constexpr(value=True)
EMPTY = -(2**63)


@triton.jit
def contest_kernel(  # noqa: PLR0913, PLR0917  (a kernel lists its tensors)
    words,
    logits,
    lines,
    best,
    winner,
    slots,
    out,
    down,
    R: tl.constexpr,  # type: ignore[name-defined]
    G: tl.constexpr,  # type: ignore[name-defined]
):
    """Run a contest of one tile."""
    row, group = tl.arange(0, R), tl.arange(0, G)
    at = row[:, None] * G + group[None, :]
    w0, w1 = tl.load(words + at).to(tl.uint32), tl.load(words + R * G + at).to(tl.uint32)
    w2 = tl.load(words + 2 * R * G + at).to(tl.uint32)
    w3 = tl.load(words + 3 * R * G + at).to(tl.uint32)
    l0, l1 = tl.load(logits + at), tl.load(logits + R * G + at)
    l2, l3 = tl.load(logits + 2 * R * G + at), tl.load(logits + 3 * R * G + at)
    slope, constant = tl.load(lines + row)[:, None], tl.load(lines + R + row)[:, None]
    temperature = tl.load(lines + 2 * R + row)[:, None]
    over = (slope, constant, temperature, row[:, None], slots)
    first = group[None, :] * 4 + 1000 + tl.zeros((R, G), tl.int32)
    start, stands = tl.load(best + at), tl.load(winner + at)
    top, leader = contest(
        start,
        stands,
        (w0, w1, w2, w3),
        (l0, l1, l2, l3),
        first,
        over,
        tl.load(down) > 0,
        INTERPRETED,
    )
    tl.store(out + at, bits_of(top))
    tl.store(out + R * G + at, leader)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="the functions are those of the interpreter")
@pytest.mark.parametrize("down", [0, 1])
def test_text_and_functions_of_a_contest_agree(down: int) -> None:
    """Sampled and greedy rows, bounds that prune, infinite keys, NaN and ties."""
    drawn = torch.Generator().manual_seed(3)
    words = torch.randint(0, 2**32, (4, ROWS, GROUPS), generator=drawn)
    logits = torch.randn((4, ROWS, GROUPS), generator=drawn).mul(3).bfloat16().float()
    logits[1, 2, 3], logits[:, 3] = float("nan"), -float("inf")
    logits[:, 4] = logits[:, 4].sign() * 3e38
    logits[2, 5, :7] = float("inf")
    temperature = torch.tensor([0.8, 0.0, 1.3, 0.5, 1e-5, 0.7, 0.0, 2.0])
    slope = torch.where(temperature > 0, 1.4426950408889634 / temperature, 2.0**20)
    constant = torch.tensor([float("inf")] * 6 + [-(2.0**20) * 4.0, -1.44 * 3.0])
    best = torch.randn((ROWS, GROUPS), generator=drawn).mul(2).bfloat16().float()
    best[1, :20] = logits[:, 1, :20].amax(0)  # of equal keys the lowest id stands
    best.view(torch.int32)[2, 3] = 0x7FFFFFFF
    winner = torch.full((ROWS, GROUPS), 9000 if down else 5, dtype=torch.int32)
    lines = torch.stack([slope, constant, temperature])
    slots = torch.full((ROWS,), EMPTY, dtype=torch.int64)
    out = torch.zeros((2, ROWS, GROUPS), dtype=torch.int32)
    with np.errstate(all="ignore"):
        contest_kernel[(1,)](
            words, logits, lines, best, winner, slots, out, torch.tensor([down]), R=ROWS, G=GROUPS
        )

        def flat(tensor: torch.Tensor) -> Array:
            whole = tensor.expand(ROWS, GROUPS).contiguous().numpy().reshape(-1)
            return whole.view(np.uint32)

        column = torch.arange(ROWS, dtype=torch.int32)[:, None]
        first = torch.arange(GROUPS, dtype=torch.int32)[None, :] * 4 + 1000
        given: dict[str, Any] = {
            f"${2 + i}": words[i].numpy().astype(np.uint32).reshape(-1) for i in range(4)
        }
        given |= {f"${6 + i}": flat(logits[i]) for i in range(4)}
        rows = [*(line[:, None] for line in lines), best, winner, first, column]
        given |= {f"${10 + i}": flat(row) for i, row in enumerate(rows)}
        given |= {"$17": np.int64(0), "$18": np.full(ROWS * GROUPS, down, np.uint32)}
        reader = Reader(given, ROWS * GROUPS)
        reader.run(CONTEST.value)
    assert np.array_equal(reader.held["$0"].view(np.int32), out[0].numpy().reshape(-1))
    assert np.array_equal(reader.held["$1"].view(np.int32), out[1].numpy().reshape(-1))
    raised = [EMPTY] * ROWS
    for at, packed in reader.raised:
        raised[at // 8] = max(raised[at // 8], packed)
    assert raised == slots.tolist()
    assert raised[4] > EMPTY
    assert raised[5] > EMPTY
    kept = (out[1] == winner).float().mean(1)
    assert kept[7] > kept[0], "the bound of the last row prunes"
