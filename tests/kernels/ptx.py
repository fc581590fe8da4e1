"""A reader of the PTX that kernels hold as text: line by line, in NumPy."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

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

    def step(self, line: str) -> None:  # noqa: C901, PLR0912  (a line for each kind of instruction)
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
        elif name.startswith("vote.sync"):
            pass  # a lane alone is its own warp
        elif name == "mul.wide.u32":
            one, other = (self.value(word).astype(np.uint64) for word in words[1:])
            self.put(words[0], one * other, where)
        elif name == "mov.b64" and rest.startswith("{"):
            whole = self.held[words[2]]
            self.put(words[0], (whole & np.uint64(2**32 - 1)).astype(np.uint32), where)
            self.put(words[1], (whole >> np.uint64(32)).astype(np.uint32), where)
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
