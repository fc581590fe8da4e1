"""The form of a vector file: arrays as bit patterns, recipes with a checksum, groups of cases.

An array is an object with dtype and shape, and its elements in row-major order as `bits` (floats
and words: fixed-width hexadecimal, space between), as `values` (integers; booleans as 0 and 1), or
as a `recipe`. Nothing depends on how a language reads decimals. A `margin` on an expected array
allows |found - expected| <= absolute + relative * |expected|; without one every bit counts.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ...reference import noise

FORMAT = "draftproof-vectors-1"
REFERENCE = "float64 reference of draftproof"
LICENCE = "Apache-2.0"

Entry = dict[str, Any]
# dtype -> the unsigned integers that its bits are read as
WORDS: dict[str, Any] = {
    "float64": np.uint64,
    "float32": np.uint32,
    "bfloat16": np.uint16,
    "uint64": np.uint64,
    "uint32": np.uint32,
}
INTEGERS = {"int64": torch.int64, "uint8": torch.uint8, "bool": torch.bool}
FNV_START, FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3
# What is recorded with a margin keeps so many bits, so that a last bit of float64, which another
# processor may compute otherwise, does not change the file.
KEPT_BITS = 32


def fnv1a64(data: bytes) -> int:
    """FNV-1a over bytes: a checksum of three lines in any language."""
    found = FNV_START
    for byte in data:
        found = ((found ^ byte) * FNV_PRIME) % 2**64
    return found


def seed_of(name: str) -> int:
    """The seed of a case: the checksum of its id."""
    return fnv1a64(name.encode())


def words_of(values: torch.Tensor, dtype: str) -> npt.NDArray[Any]:
    """The bit patterns of a float tensor, flat."""
    flat = values.detach().to(getattr(torch, dtype)).contiguous().flatten()
    same_width = {"float64": torch.int64, "float32": torch.int32, "bfloat16": torch.int16}[dtype]
    return np.asarray(flat.view(same_width).numpy().view(WORDS[dtype]))


def spelled(words: npt.NDArray[Any]) -> str:
    """Bit patterns as fixed-width hexadecimal."""
    digits = 2 * words.dtype.itemsize
    return " ".join(f"{int(word):0{digits}x}" for word in words.flatten())


def packed(values: torch.Tensor | npt.NDArray[Any]) -> Entry:
    """An array as an object: a torch tensor, or a numpy array of uint32 or uint64 words."""
    if isinstance(values, np.ndarray):
        return {"dtype": values.dtype.name, "shape": list(values.shape), "bits": spelled(values)}
    dtype = str(values.dtype).removeprefix("torch.")
    described: Entry = {"dtype": dtype, "shape": list(values.shape)}
    if dtype in INTEGERS:
        return {**described, "values": [int(value) for value in values.flatten().tolist()]}
    return {**described, "bits": spelled(words_of(values, dtype))}


def within(values: torch.Tensor, relative: float, absolute: float = 0.0) -> Entry:
    """Expected float64 values, of which a right answer may be off by a margin."""
    mantissa, exponent = np.frexp(values.detach().to(torch.float64).numpy())
    kept = np.ldexp(np.rint(np.ldexp(mantissa, KEPT_BITS)), exponent - KEPT_BITS)
    bounds = {"relative": relative + 2.0**-KEPT_BITS, "absolute": absolute}
    margin = {name: spelled(np.array([bound]).view(np.uint64)) for name, bound in bounds.items()}
    return {**packed(torch.from_numpy(np.asarray(kept))), "margin": margin}


def recipe(
    name: str, shape: Sequence[int], dtype: str, span: int, shift: int, *, positive: bool = False
) -> Entry:
    """A large array by recipe: integers in [-span, span], or [1, 2 span + 1], times 2^-shift.

    The key is the checksum of `name`. `span` must leave every value exact in `dtype`.
    """
    offset = span + 1 if positive else 0
    made: Entry = {"key": f"{seed_of(name):016x}", "span": span, "offset": offset, "shift": shift}
    described = {"dtype": dtype, "shape": list(shape), "recipe": made}
    data = words_of(cooked(described), dtype).tobytes()
    return {**described, "fnv1a64": f"{fnv1a64(data):016x}"}


def cooked(entry: Entry) -> torch.Tensor:
    """The array of a recipe.

    Element i is (w mod (2 span + 1) - span + offset) * 2^-shift, where w is word 0 of Philox at
    (i, 0, 0, 0) under the key, low word first.
    """
    made, size = entry["recipe"], int(np.prod(entry["shape"]))
    zero = np.zeros(size, dtype=np.uint64)
    first = noise.philox((np.arange(size, dtype=np.uint64), zero, zero, zero), int(made["key"], 16))
    drawn = (first[0] % np.uint64(2 * made["span"] + 1)).astype(np.int64)
    whole = drawn - made["span"] + made["offset"]
    values = torch.from_numpy(np.ldexp(whole.astype(np.float64), -made["shift"]))
    return values.to(getattr(torch, entry["dtype"])).reshape(entry["shape"])


def unpacked(entry: Any) -> Any:
    """A plain value as it is; an array as a torch tensor, words as a numpy array.

    ValueError: another number of elements than the shape says, or a recipe whose checksum differs.
    """
    if not isinstance(entry, dict):
        return entry
    dtype, shape = entry["dtype"], entry["shape"]
    if "recipe" in entry:
        values = cooked(entry)
        seen = f"{fnv1a64(words_of(values, dtype).tobytes()):016x}"
        if seen != entry["fnv1a64"]:
            raise ValueError(f"the recipe gives checksum {seen}, required {entry['fnv1a64']}")
        return values
    texts = entry["bits"].split() if "bits" in entry else entry["values"]
    if len(texts) != int(np.prod(shape)):
        raise ValueError(f"{len(texts)} elements, required {int(np.prod(shape))} of shape {shape}")
    if dtype in INTEGERS:
        return torch.tensor(texts, dtype=torch.int64).to(INTEGERS[dtype]).reshape(shape)
    words = np.array([int(text, 16) for text in texts], dtype=WORDS[dtype]).reshape(shape)
    if dtype.startswith("uint"):
        return words
    signed = torch.from_numpy(words.view(words.dtype.name.removeprefix("u")))
    return signed.view(getattr(torch, dtype))


def allowed(entry: Entry) -> tuple[float, float] | None:
    """The relative and the absolute margin of an expected array, None where every bit counts."""
    if "margin" not in entry:
        return None
    words = [int(entry["margin"][name], 16) for name in ("relative", "absolute")]
    relative, absolute = np.array(words, dtype=np.uint64).view(np.float64)
    return float(relative), float(absolute)


def case(name: str, inputs: Entry, expected: Entry) -> Entry:
    """One vector; arrays are packed, what is packed or plain stays."""
    sides = {"inputs": inputs, "expected": expected}
    arrays = torch.Tensor | np.ndarray
    return {"id": name} | {
        side: {key: packed(part) if isinstance(part, arrays) else part for key, part in of.items()}
        for side, of in sides.items()
    }


def group(
    name: str,
    operation: str,
    flags: Sequence[str],
    effect: str,
    references: Sequence[str],
    cases: Sequence[Entry],
    source: str = REFERENCE,
    licence: str = LICENCE,
) -> Entry:
    """Cases that hunt one family of bugs; flags are classes of bugs, effect what a bug would do."""
    return {
        "id": name,
        "operation": operation,
        "flags": list(flags),
        "effect": effect,
        "references": list(references),
        "source": source,
        "licence": licence,
        "cases": list(cases),
    }
