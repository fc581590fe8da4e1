"""The PTX of a contest says what its functions say: its text is read, line by line, in NumPy."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")
tl = triton.language

from impl.kernels.contest import CONTEST, bits_of, contest  # noqa: E402

from .chains import DEVICE  # noqa: E402

ROWS, GROUPS = 8, 64
INTERPRETED = tl.constexpr(value=True)
EMPTY = -(2**63)
Array = Any
FLOAT: dict[str, Callable[..., Array]] = {
    "fma.rn": lambda a, b, c: a * b + c,
    "ex2.approx.ftz": np.exp2,
    "add.rn": np.add,
    "sub.rn": np.subtract,
    "mul.rn": np.multiply,
    "div.rn": np.divide,
    "min": np.fmin,
    "neg": np.negative,
    "abs": np.abs,
}
WHOLE: dict[str, Callable[..., Array]] = {
    "mov.b32": lambda a: a,
    "shr.u32": lambda a, b: a >> b,
    "shr.s32": lambda a, b: (a.view(np.int32) >> b.view(np.int32)).view(np.uint32),
    "and.b32": np.bitwise_and,
    "or.b32": np.bitwise_or,
    "xor.b32": np.bitwise_xor,
    "not.b32": np.invert,
    "add.s32": np.add,
    "sub.s32": np.subtract,
    "cvt.rn.f32.u32": lambda a: a.astype(np.float32).view(np.uint32),
    "cvt.rn.f32.s32": lambda a: a.view(np.int32).astype(np.float32).view(np.uint32),
}
COMPARED = {
    "gt": np.greater,
    "eq": np.equal,
    "ne": np.not_equal,
    "neu": np.not_equal,
}


class Reader:
    """Runs the text over lanes; a branch sends the lanes that take it to its label."""

    def __init__(self, given: dict[str, Array], lanes: int) -> None:
        self.held = dict(given)
        self.lanes = lanes
        self.waiting = np.full(lanes, "", dtype=object)
        self.raised: list[tuple[int, int]] = []

    def value(self, name: str) -> Array:
        """Return a register, or a constant of every lane."""
        if name in self.held:
            return self.held[name]
        number = int(name.replace("0f", "0x"), 0)
        return np.full(self.lanes, number, np.uint32)

    def put(self, name: str, found: Array, where: Array) -> None:
        """Write a register in the lanes that are here."""
        self.held[name] = np.where(where, found, self.held.get(name, np.zeros_like(found)))

    def run(self, text: str) -> None:
        """Run every line."""
        for line in re.findall(r"[A-Z]+\d?:|[^;:]+(?=;)", text.strip().removeprefix("{")):
            said = line.strip()
            if said.endswith(":"):
                self.waiting[self.waiting == said[:-1]] = ""
            elif not said.startswith(".reg"):
                self.step(said)

    def step(self, line: str) -> None:  # noqa: C901  (a line for each kind of instruction)
        """Run one line."""
        where = self.waiting == ""
        if line.startswith("@"):
            guard, line = line.split(" ", 1)
            taken = self.held[guard.lstrip("@!")]
            where = where & (~taken if "!" in guard else taken)
        name, rest = line.split(" ", 1)
        words = [word.strip(" {}[]") for word in rest.split(",")]
        kind, _, last = name.rpartition(".")
        if name.startswith("bra"):
            self.waiting[where] = words[0]
        elif name == "vote.sync.all.pred":
            pass  # a lane alone is its own warp
        elif name == "mov.b64":
            low, high = (self.value(word).astype(np.int64) for word in words[1:])
            self.put(words[0], (high << 32) | low, where)
        elif name == "mad.wide.s32":
            self.put(words[0], self.value(words[1]) * np.int64(8) + self.held[words[3]], where)
        elif name == "red.global.max.s64":
            pairs = zip(self.held[words[0]][where], self.held[words[1]][where], strict=True)
            self.raised += [(int(at), int(packed)) for at, packed in pairs]
        elif name.startswith("setp"):
            self.compare(name.split("."), words, where)
        elif name.startswith("selp"):
            one, other = self.value(words[1]), self.value(words[2])
            self.put(words[0], np.where(self.held[words[3]], one, other), where)
        elif name == "max.NaN.f32":
            found = np.maximum(*(self.value(word).view(np.float32) for word in words[1:]))
            whole = np.where(np.isnan(found), np.uint32(0x7FFFFFFF), found.view(np.uint32))
            self.put(words[0], whole, where)
        elif name in WHOLE:
            self.put(words[0], WHOLE[name](*map(self.value, words[1:])), where)
        else:
            assert last == "f32", line
            found = FLOAT[kind](*(self.value(word).view(np.float32) for word in words[1:]))
            whole = np.where(np.isnan(found), np.uint32(0x7FFFFFFF), found.view(np.uint32))
            self.put(words[0], whole, where)

    def compare(self, parts: list[str], words: list[str], where: Array) -> None:
        """Run a setp, with what it is joined to."""
        view = np.float32 if parts[-1] == "f32" else np.int32
        one, other = (self.value(word).view(view) for word in words[1:3])
        found = COMPARED[parts[1]](one, other)
        if "and" in parts:
            found = found & self.held[words[3]]
        if "xor" in parts:
            found = found ^ self.held[words[3]]
        self.put(words[0], found, where)


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
