"""Race noise on CUDA, told from the generator's state before it is drawn.

Torch's `exponential_` gives each element of a buffer a place in a Philox stream. The places depend
on the number of elements and on the number of multiprocessors; they were measured on torch 2.11,
and whether they hold here is asked of every history anew, from the noise that was drawn again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from ..reference.noise import philox
from .history import History
from .protocol import Setting
from .redraw import rows_drawn
from .verdict import Verdict, holds, unknown, violated

Values = npt.NDArray[np.float32]

BLOCK, BLOCKS_PER_SM, WORDS = 256, 8, 4
# From here on the device maps u to 1 and E to NEAREST, so that no E is 0.
NEAREST = np.float32(2.0**-24)
# The fast logarithm, several times over: relative for large E, absolute where u is near 1. A value
# of another draw lies within by chance once in ten thousand.
RELATIVE, ABSOLUTE = 2.0**-15, 2.0**-20
# How far around a block another offset is looked for, and among how many values.
REACH, LOOK = 256, 64
# What leaves every buffer as the block left it.
LOOKS = ("observe", "read", "reread", "ask")
OFFSET, STATE = 8, 16
LOW = np.uint64(0xFFFFFFFF)


def threads(elements: int, sm_count: int) -> int:
    """T, how many threads draw a buffer of so many elements."""
    return BLOCK * min(BLOCKS_PER_SM * sm_count, -(-elements // BLOCK))


def advance(elements: int, sm_count: int) -> int:
    """By how much one draw of a buffer moves the offset of the generator."""
    return WORDS * -(-elements // (WORDS * threads(elements, sm_count)))


def exponentials(seed: int, offset: int, elements: int, sm_count: int) -> Values:
    """The float32 values that `exponential_` puts into a contiguous buffer, in order.

    Element i comes from thread i mod T, call i div 4T of it, word (i div T) mod 4. The counter of a
    call is (offset / 4 + call, 0, thread, 0), its key the seed; u = word 2^-32 + 2^-33 in float32;
    E = -log u, and 2^-24 for u >= 1 - 2^-24.

    Limits: float32 buffers of fewer than 2^31 elements, GPUs of 2048 threads a multiprocessor, an
    offset that is a multiple of 4. The device takes a fast logarithm: its values differ from these
    by 3e-6 of E as a rule, and by up to 3e-2 of the smallest E, where u is near 1.
    """
    if offset % WORDS:
        raise ValueError(f"the offset is {offset}, required: a multiple of {WORDS}")
    if not 0 < elements < 2**31:
        raise ValueError(f"{elements} elements are drawn, required: 1 to 2^31 - 1")
    wide = threads(elements, sm_count)
    calls = -(-elements // (WORDS * wide))
    place = np.uint64(offset // WORDS) + np.arange(calls, dtype=np.uint64)[:, None]
    return _values(place, np.arange(wide, dtype=np.uint64)[None, :], seed)[:elements]


def first_exponentials(seed: int, offset: int, count: int) -> Values:
    """The first values of any buffer of `count` elements or more; at most 256."""
    if count > BLOCK:
        raise ValueError(f"{count} values are asked for, required: at most {BLOCK}")
    place = np.full((1, 1), offset // WORDS, dtype=np.uint64)
    return _values(place, np.arange(count, dtype=np.uint64)[None, :], seed)[:count]


def _values(place: npt.NDArray[np.uint64], thread: npt.NDArray[np.uint64], seed: int) -> Values:
    """E of calls [calls, 1] and threads [1, T], in the order call, word, thread."""
    shape = np.broadcast_shapes(place.shape, thread.shape)
    nothing = np.zeros(shape, dtype=np.uint64)
    counter = [np.broadcast_to(part, shape) for part in (place & LOW, place >> np.uint64(32))]
    words = philox((*counter, np.broadcast_to(thread, shape), nothing), seed)
    return transformed(np.stack(words, axis=1)).ravel()


def transformed(words: npt.NDArray[np.uint64]) -> Values:
    """E of words of 32 bits, of any shape."""
    u = words.astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
    e = -np.log(u.astype(np.float64)).astype(np.float32)
    return np.where(u >= np.float32(1.0) - NEAREST, NEAREST, e)


def agree(seen: Values, told: Values) -> npt.NDArray[np.bool_]:
    """Which values differ by no more than the device's logarithm explains."""
    apart = np.abs(seen.astype(np.float64) - told)
    return np.asarray(apart <= np.maximum(ABSOLUTE, RELATIVE * told))


def seed_and_offset(state: torch.Tensor) -> tuple[int, int]:
    """What the state of a CUDA generator holds; ValueError when it is no such state."""
    if state.dtype != torch.uint8 or state.numel() != STATE:
        raise ValueError(f"a state of {state.numel()} bytes, required: {STATE} of a CUDA generator")
    whole = state.cpu().numpy().tobytes()
    return int.from_bytes(whole[:OFFSET], "little"), int.from_bytes(whole[OFFSET:], "little")


@dataclass(frozen=True)
class Block:
    """One block of race noise: where its generator stood, and what was drawn again from there.

    rows     of the buffer that are drawn before each step; it may have more
    redrawn  E [live rows, K, V]
    buffers  contents of noise buffers after the block, by name
    """

    seed: int
    before: int
    after: int
    rows: int
    redrawn: torch.Tensor
    buffers: Mapping[str, torch.Tensor]


def blocks(history: History, sm_count: int) -> Iterator[Block]:
    """Every replay whose noise was drawn again, with the buffers observed after it."""
    events, setting = history.events, history.setting
    for number, event in enumerate(events):
        if event["verb"] != "replay" or "redrawn" not in event:
            continue
        seen: dict[str, torch.Tensor] = {}
        for later in events[number + 1 :]:
            if later["verb"] not in LOOKS:
                break
            if later["verb"] == "observe" and later.get("role") == "noise":
                seen[later["buffer"]] = later["content"]
        states = (event[side]["noise"]["generator"] for side in ("before", "after"))
        (seed, before), (_, after) = map(seed_and_offset, states)
        counts = rows_drawn(event["after"]["path"], event["rows"], setting["buckets"])
        moved = [
            setting["drafts"] * advance(rows * setting["vocabulary"], sm_count) for rows in counts
        ]
        fitting = [rows for rows, by in zip(counts, moved, strict=True) if after == before + by]
        yield Block(seed, before, after, (fitting or counts)[0], event["redrawn"], seen)


def judge(history: History) -> Verdict | None:
    """Whether race noise on CUDA is what its generator's state foretells; None for other noise.

    Unknown where the noise that was drawn again, by torch itself and outside any recording, is not
    as foretold: then the layout is another one here.
    """
    setting, sm_count = history.setting, history.environment.get("sm_count")
    if setting["dialect"] != "race" or not setting["device"].startswith("cuda") or not sm_count:
        return None
    try:
        found = list(blocks(history, sm_count))
    except ValueError as error:
        return unknown(f"the noise state tells no seed and no offset: {error}")
    judged, shown, origins = 0, False, list[int]()
    for block in found:
        origins.append(block.before)
        wrong = wrong_block(block, setting, sm_count, origins)
        if isinstance(wrong, Verdict):
            return wrong
        if wrong:
            torch_here = history.environment.get("torch")
            return unknown(f"torch {torch_here} draws otherwise than foretold: {wrong}", judged)
        shown = shown or bool(block.buffers)
        judged += block.redrawn.numel()
    what = "noise buffers and offsets are" if shown else "every offset is"
    effect = "one draw from another offset"
    return holds(f"{what} as foretold", judged, effect, "values") if judged else None


def wrong_block(
    block: Block, setting: Setting, sm_count: int, origins: list[int]
) -> Verdict | str | None:
    """A verdict on the sampler, or a sentence on torch itself, or None when all is as foretold."""
    drafts, vocabulary = setting["drafts"], setting["vocabulary"]
    if wrong := mislaid(block, drafts, vocabulary, sm_count):
        return wrong
    step = advance(block.rows * vocabulary, sm_count)
    ends = block.before + drafts * step
    if block.after != ends:
        return violated(
            f"the generator stood at offset {block.after} after a block from offset "
            f"{block.before}, required: {ends}, {drafts} draws of {step} each",
            drafts,
        )
    own = range(block.before, ends, step)
    drawn = min(LOOK, block.rows * vocabulary)
    answers = (
        in_buffer(name, content.ravel()[:drawn], block, own, origins)
        for name, content in block.buffers.items()
    )
    return next((answer for answer in answers if answer is not None), None)


def mislaid(block: Block, drafts: int, vocabulary: int, sm_count: int) -> str:
    """How the noise that torch drew again differs from what is foretold, '' when it does not."""
    elements = block.rows * vocabulary
    step = advance(elements, sm_count)
    for k in range(drafts):
        told = exponentials(block.seed, block.before + k * step, elements, sm_count)
        seen = block.redrawn[:, k].numpy().ravel()
        off = int((~agree(seen, told[: len(seen)])).sum())
        if off:
            return f"{off} of {len(seen)} values of step {k} on {sm_count} multiprocessors"
    return ""


def in_buffer(
    name: str, content: torch.Tensor, block: Block, own: range, origins: list[int]
) -> Verdict | None:
    """None when a buffer holds the start of one of the block's own draws; else whose draw it is.

    content: the first of the elements that the block drew.
    """
    seen = content.float().numpy()

    def is_of(offset: int) -> bool:
        return bool(agree(seen, first_exponentials(block.seed, offset, len(seen))).all())

    if any(is_of(offset) for offset in own):
        return None
    start, stop = min(*origins, own.start - REACH), own.stop + REACH
    required = f"required: {' or '.join(map(str, own))}"
    for offset in range(max(start, 0), stop, WORDS):
        if is_of(offset):
            return violated(
                f"buffer {name!r} holds noise drawn at offset {offset}, {required}, where the "
                "generator stood for this block",
                len(seen),
            )
    return unknown(f"buffer {name!r} holds no noise of this generator, {required}", len(seen))
