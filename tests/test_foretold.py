"""The values of a CUDA generator from its state: known answers, offsets, layouts that differ."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from impl.graph import engine_for
from oracle.judge import foretold
from oracle.judge.budget import Ledger
from oracle.judge.checks import equality
from oracle.judge.foretold import advance, agree, exponentials, first_exponentials
from oracle.judge.history import History
from oracle.judge.trial import Trial
from oracle.judge.verdict import Outcome, Verdict

from .judging import FOLDED, context, probed, verdict

MASK = 2**32 - 1
SEED = 0x1234_5678_9ABC_DEF0


def philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 on plain numbers."""
    for _ in range(10):
        first, second = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            second >> 32 ^ counter[1] ^ key[0],
            second & MASK,
            first >> 32 ^ counter[3] ^ key[1],
            first & MASK,
        ]
        key = [key[0] + 0x9E3779B9 & MASK, key[1] + 0xBB67AE85 & MASK]
    return counter


def element(i: int, seed: int, offset: int, threads: int) -> float:
    """One value, by the words of the layout."""
    thread, call, word = i % threads, i // (4 * threads), i // threads % 4
    place = offset // 4 + call
    bits = philox([place & MASK, place >> 32, thread, 0], [seed & MASK, seed >> 32])[word]
    u = np.float32(np.float32(bits) * np.float32(2.0**-32) + np.float32(2.0**-33))
    return 2.0**-24 if u >= 1 - 2.0**-24 else -math.log(u)


@pytest.mark.parametrize(
    ("elements", "sms", "threads", "moved"),
    [
        (1, 132, 256, 4),
        (257, 132, 512, 4),
        (8000, 132, 8192, 4),
        (2049, 1, 2048, 4),
        (8192, 1, 2048, 4),
        (8193, 1, 2048, 8),
        (20_011, 1, 2048, 12),
        (4 * 270_336, 132, 270_336, 4),
        (4 * 270_336 + 1, 132, 270_336, 8),
    ],
)
def test_threads_and_offsets_follow_from_sizes(
    elements: int, sms: int, threads: int, moved: int
) -> None:
    """Blocks of 256 threads, eight a multiprocessor at most; four words a call."""
    assert foretold.threads(elements, sms) == threads
    assert advance(elements, sms) == moved


@pytest.mark.parametrize(
    ("elements", "sms", "offset"),
    [(1, 132, 0), (300, 132, 64), (2500, 1, 12), (9001, 1, 4 * (2**32 - 1)), (700, 2, 2**36)],
)
def test_values_equal_those_of_a_loop(elements: int, sms: int, offset: int) -> None:
    """Every element by plain arithmetic: partial blocks, several calls, offsets beyond 32 bits."""
    threads = foretold.threads(elements, sms)
    told = exponentials(SEED, offset, elements, sms)
    slow = [element(i, SEED, offset, threads) for i in range(elements)]
    assert told.dtype == np.float32
    assert told.tolist() == np.array(slow, dtype=np.float32).tolist()
    count = min(elements, 256)
    assert np.array_equal(first_exponentials(SEED, offset, count), told[:count])


def test_draws_that_follow_each_other_are_one_stream() -> None:
    """The second buffer begins where the first one ended, and shares no value with it."""
    step = advance(2500, 1)
    first, second = (exponentials(3, offset, 2500, 1) for offset in (0, step))
    both = exponentials(3, 0, 4 * 2048 + 2048, 1)
    assert np.array_equal(both[: len(first)], first)
    assert np.array_equal(both[4 * 2048 :], second[:2048])
    assert agree(first, second).sum() <= 1


def test_the_smallest_value_is_no_zero() -> None:
    """The 383 largest words round to u = 1 or next to it; the device puts 2^-24 there."""
    words = np.array([2**32 - 1, 2**32 - 383, 2**32 - 384, 0], dtype=np.uint64)
    largest, last, before, least = foretold.transformed(words)
    assert largest == last == np.float32(2.0**-24)
    assert before == np.float32(-math.log1p(-(2.0**-23)))
    assert least == np.float32(33 * math.log(2))


@pytest.mark.parametrize(
    ("offset", "elements"), [(2, 8), (0, 0), (0, 2**31)], ids=["offset", "none", "too many"]
)
def test_what_is_not_known_is_refused(offset: int, elements: int) -> None:
    """No value is better than a wrong one."""
    with pytest.raises(ValueError, match="required"):
        exponentials(0, offset, elements, 132)
    with pytest.raises(ValueError, match="at most 256"):
        first_exponentials(0, 0, 257)


DRAFTS, WIDE, SMS, ROWS = 2, 700, 2, 4


def state(seed: int, offset: int) -> torch.Tensor:
    """The state of a CUDA generator, as torch hands it out."""
    whole = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return torch.tensor(list(whole), dtype=torch.uint8)


def replayed(start: int, *, buffer_from: int, ended: int | None = None, sms: int = SMS) -> list:
    """The events of one replay of a sampler whose buffer was drawn at `buffer_from`."""
    step = advance(ROWS * WIDE, SMS)
    drawn = [exponentials(SEED, start + k * step, ROWS * WIDE, sms) for k in range(DRAFTS)]
    redrawn = torch.stack([torch.from_numpy(e.reshape(ROWS, WIDE)) for e in drawn], 1)
    content = torch.from_numpy(exponentials(SEED, buffer_from, ROWS * WIDE, sms)).view(ROWS, WIDE)
    end = start + DRAFTS * step if ended is None else ended
    # The device's logarithm is a fast one.
    wobble = 1 + 3e-6 * torch.sin(torch.arange(ROWS * WIDE).float()).view(ROWS, WIDE)
    block = {
        "verb": "replay",
        "before": {"noise": {"dialect": "race", "generator": state(SEED, start)}},
        "after": {
            "noise": {"dialect": "race", "generator": state(SEED, end)},
            "path": {"bucket": ROWS},
        },
        "rows": ROWS,
        "redrawn": redrawn,
    }
    look = {"verb": "observe", "buffer": "noise", "role": "noise", "content": content * wobble}
    return [block, look]


def judged(
    events: list, device: str = "cuda", sms: int | None = SMS, **sizes: Any
) -> Verdict | None:
    """The answer on a history of events."""
    usual = {"drafts": DRAFTS, "vocabulary": WIDE, "buckets": (ROWS,)}
    setting = {"dialect": "race", "device": device, **usual, **sizes}
    where = {"torch": "2.11.0", **({} if sms is None else {"sm_count": sms})}
    return foretold.judge(History("equality", "x", setting, {}, {}, {}, where, events=events))


STEP = advance(ROWS * WIDE, SMS)
HEALTHY = [
    *replayed(64, buffer_from=64 + STEP),
    *replayed(64 + 2 * STEP, buffer_from=64 + 3 * STEP),
]


def test_foretold_noise_holds() -> None:
    """Two replays of two draws; on a CPU, or with an unknown GPU, nothing is told."""
    found = judged(HEALTHY)
    assert found.outcome is Outcome.HOLDS, found.reason
    assert found.used == 2 * DRAFTS * ROWS * WIDE
    assert judged(HEALTHY, device="cpu") is None
    assert judged(HEALTHY, sms=None) is None
    assert judged([]) is None


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([*HEALTHY[:2], *replayed(64 + 2 * STEP, buffer_from=64 + STEP)], f"offset {64 + STEP}"),
        (replayed(64, buffer_from=0), "offset 0, required: 64 or 68"),
        (replayed(64, buffer_from=64 + 5 * STEP), f"offset {64 + 5 * STEP}"),
        (
            replayed(64, buffer_from=64, ended=64 + 3 * STEP),
            f"offset {64 + 3 * STEP} after a block from offset 64, required: {64 + 2 * STEP}",
        ),
    ],
    ids=["frozen", "from the start", "ahead", "one draw more"],
)
def test_a_draw_from_another_offset_is_named(events: list, told: str) -> None:
    """Noise of an earlier replay, of the stream's start, of a later draw; and a draw too many."""
    found = judged(events)
    assert found.outcome is Outcome.VIOLATED
    assert told in found.reason


def test_another_layout_is_unknown() -> None:
    """What torch draws by itself is asked first; a foreign buffer is not called wrong either."""
    found = judged(replayed(64, buffer_from=64, sms=1))
    assert found.outcome is Outcome.UNKNOWN
    assert "torch 2.11.0 draws otherwise than foretold" in found.reason
    events = replayed(64, buffer_from=64)
    events[1]["content"] = events[1]["content"] + 1.0
    assert judged(events).outcome is Outcome.UNKNOWN
    events[0]["before"]["noise"]["generator"] = torch.zeros(5000, dtype=torch.uint8)
    found = judged(events)
    assert found.outcome is Outcome.UNKNOWN
    assert "a state of 5000 bytes, required: 16" in found.reason


def test_rows_past_the_bucket_are_not_looked_at() -> None:
    """A buffer of the largest bucket, and a block that drew less than is compared."""
    events = replayed(64, buffer_from=64 + STEP)
    events[0]["redrawn"] = events[0]["redrawn"][:1, :, :19]
    events[0] |= {"rows": 1}
    events[0]["after"]["path"] = {"bucket": 1}
    drawn = torch.from_numpy(exponentials(SEED, 64 + STEP, 19, SMS))
    events[1]["content"] = torch.cat([drawn[None], torch.full((3, 19), -7.0)])
    sizes: dict[str, Any] = {"vocabulary": 19, "buckets": (1, ROWS)}
    assert judged(events, **sizes).outcome is Outcome.HOLDS
    events[1]["content"][0, 18] = -7.0
    assert judged(events, **sizes).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("verb", ["load", "poison", "accept", "count", "replay", "eager"])
def test_a_look_after_something_else_says_nothing_of_the_block(verb: str) -> None:
    """What lies in the buffer may then be somebody else's; a read moves nothing."""
    block, look = replayed(64, buffer_from=64 + STEP)
    look["content"] = torch.full((ROWS, WIDE), 3.0)
    assert judged([block, {"verb": verb}, look]).outcome is Outcome.HOLDS
    assert judged([block, {"verb": "read"}, look]).outcome is Outcome.UNKNOWN


def test_equality_names_the_offset_before_the_tokens() -> None:
    """The check asks what was foretold, and plans the large buffers on CUDA alone."""
    base = context(("dspark", "race"), abilities=("DRAWS", "NOISE"))
    cases = [plan.case for plan in equality.plans(base)]
    on_cuda = [plan.case for plan in equality.plans(replace(base, device="cuda"))]
    assert [*cases, "noise foretold"] == on_cuda
    setting = {"dialect": "race", "device": "cuda", "drafts": DRAFTS, "vocabulary": WIDE}
    setting["buckets"] = (ROWS,)
    where = {"torch": "2.11.0", "sm_count": SMS}
    events = replayed(64, buffer_from=0)
    history = History("equality", "x", setting, {}, {}, {"stages": "torch-cuda"}, where)
    history.events = events
    found = equality.check(history, Ledger())
    assert found.outcome is Outcome.VIOLATED
    assert "holds noise drawn at offset 0" in found.reason


def sm_count() -> int:
    """Of the GPU that is here."""
    return torch.cuda.get_device_properties("cuda").multi_processor_count


@pytest.mark.gpu
@pytest.mark.parametrize("elements", [1, 255, 257, 8000, 1_000_003, 5_000_001])
@pytest.mark.parametrize("offset", [0, 4096])
def test_the_generator_draws_what_is_foretold(elements: int, offset: int) -> None:
    """Eager draws, one call a thread or several."""
    generator = torch.Generator("cuda")
    generator.set_state(state(SEED, offset))
    drawn = torch.empty(elements, device="cuda").exponential_(generator=generator)
    assert agree(drawn.cpu().numpy(), exponentials(SEED, offset, elements, sm_count())).all()
    ended = foretold.seed_and_offset(generator.get_state())
    assert ended == (SEED, offset + advance(elements, sm_count()))


@pytest.mark.gpu
def test_replays_draw_what_is_foretold() -> None:
    """Two draws a recording, three replays: each from the offset that the state holds before it."""
    generator = torch.Generator("cuda").manual_seed(5)
    sizes = (8000, 1_200_000)
    noise = [torch.zeros(size, device="cuda") for size in sizes]
    engine = engine_for("cuda")

    def body() -> None:
        for buffer in noise:
            buffer.exponential_(generator=generator)

    body()
    recording = engine.record(body, pool=engine.pool(), generators=(generator,))
    for _ in range(3):
        seed, offset = foretold.seed_and_offset(generator.get_state())
        recording.replay()
        for buffer, size in zip(noise, sizes, strict=True):
            told = exponentials(seed, offset, size, sm_count())
            assert agree(buffer.cpu().numpy(), told).all()
            offset += advance(size, sm_count())
        assert foretold.seed_and_offset(generator.get_state()) == (seed, offset)


@pytest.mark.gpu
def test_our_sampler_draws_what_is_foretold() -> None:
    """The case of equality, on the real graph: its effect says that noise was foretold."""
    base = probed(context(("dspark", "race"), engine="cuda"))
    (plan,) = [each for each in equality.plans(base) if each.case == "noise foretold"]
    found = verdict("equality", plan, base)
    assert found.outcome is Outcome.HOLDS, found.reason
    assert "noise buffers and offsets are as foretold" in found.effect
    history, _ = Trial(FOLDED, base).case(equality, plan, base)
    assert len(history.of("observe")) == 3
