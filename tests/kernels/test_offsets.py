"""Offsets of 64 bits: tensors whose elements lie up to 2**32 apart, of which few are touched.

An offset of 32 bits wraps around, the last one onto the first row, so that a kernel with one takes
a wrong row, and no address outside: memory goes on for 2**31 elements before the tensors, too.
Without a GPU it is a file with holes.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")
tl = triton.language

from impl.acceptance import RULES, Asked, Commit, accept_greedy  # noqa: E402
from impl.choice import choose_greedy  # noqa: E402
from impl.fused import SampledAccept, SplitAccept, SplitChoice  # noqa: E402
from impl.kernels.chain import Slots, launch  # noqa: E402
from impl.kernels.head import Shape, largest_of_product  # noqa: E402

from ..accepting import NAMES  # noqa: E402
from .chains import DEVICE, NARROW, chain, same_bits, torch_block  # noqa: E402

BF16, FULL = torch.bfloat16, torch.float32
# Rows that lie so far apart that an offset of 32 bits takes the last one for the first.
ROWS, APART = 5, 2**30
# Ids of a weight likewise; the last one is alone in its tile.
IDS, IDS_APART = 65, 2**26
WRAPS, BEFORE = 2**32, 2**31
ELEMENTS = BEFORE + WRAPS + 2**16


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.Tensor]:
    """Memory of bfloat16 elements, 12.9 GB, hardly any of it used."""
    if DEVICE.type == "cuda":
        yield torch.empty(ELEMENTS, dtype=BF16, device=DEVICE)
        torch.cuda.empty_cache()
        return
    path: Path = tmp_path_factory.mktemp("offsets") / "memory"
    yield torch.from_file(str(path), shared=True, size=ELEMENTS, dtype=BF16)
    path.unlink()


@pytest.fixture(autouse=True)
def nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter works on CPU tensors in place; its copy back would touch all of them."""
    if DEVICE.type == "cpu":
        executor = "triton.runtime.interpreter.GridExecutor._restore_args_dev"
        monkeypatch.setattr(executor, lambda *_: None)


def spread(memory: torch.Tensor, values: torch.Tensor, start: int = 0) -> torch.Tensor:
    """Values whose rows lie APART, or IDS_APART when they are many, from a start on."""
    apart = APART if len(values) == ROWS else IDS_APART
    strides = (apart, *values[0].contiguous().stride())
    return memory.as_strided(values.shape, strides, BEFORE + start).copy_(values)


@triton.jit
def wrapping_kernel(  # the defect that the others are tested for
    memory,
    out,
    rows,
    apart,
    PLACES: tl.constexpr,  # type: ignore[name-defined]
):
    """Copy the first element of every row by offsets of 32 bits."""
    row = tl.arange(0, PLACES)
    there = row < rows
    tl.store(out + row, tl.load(memory + row * apart, mask=there, other=0.0), mask=there)


def test_an_offset_of_32_bits_takes_the_first_row(memory: torch.Tensor) -> None:
    """The memory tells a kernel that has the defect."""
    for count, apart in ((ROWS, APART), (IDS, IDS_APART)):
        assert apart * (count - 1) == WRAPS
        rows = spread(memory, torch.arange(3, count + 3, device=DEVICE)[:, None].to(BF16))
        found = torch.zeros(count, dtype=BF16, device=DEVICE)
        with np.errstate(all="ignore"):
            wrapping_kernel[(1,)](rows, found, count, apart, PLACES=128)
        assert int(found[-1]) == 3
        assert int(rows[-1]) == count + 2


def test_a_step_reads_and_writes_far_rows(memory: torch.Tensor) -> None:
    """Base logits and kept logits of the last row are its own."""
    given = chain(ROWS, 20, 3, BF16, BF16)
    wanted, tokens = torch_block(given), given.tokens.clone()
    assert given.kept is not None
    base, kept = spread(memory, given.base), spread(memory, given.kept, given.base[0].numel())
    with np.errstate(all="ignore"):
        launch(replace(given, base=base, kept=kept, tokens=tokens), Slots().of(tokens), NARROW)
    assert torch.equal(wanted.tokens, tokens)
    assert same_bits(wanted.kept, kept)
    assert not torch.equal(wanted.kept[0], wanted.kept[-1])


def test_a_step_reads_far_weights(memory: torch.Tensor) -> None:
    """The last id of w2, and of w1, whose embedding follows every anchor."""
    given = replace(chain(2, IDS, 3, BF16, FULL, drafts=1), anchor=torch.tensor([IDS - 1] * 2))
    given = replace(given, anchor=given.anchor.to(DEVICE))
    given.w1[0], given.w1[-1], given.w2[0], given.w2[-1] = 1, 2, 1, -2
    wanted, tokens = torch_block(given), given.tokens.clone()
    w1, w2 = spread(memory, given.w1), spread(memory, given.w2, 16)
    with np.errstate(all="ignore"):
        launch(replace(given, w1=w1, w2=w2, tokens=tokens), Slots().of(tokens), NARROW)
    assert given.kept is not None
    assert same_bits(wanted.kept, given.kept)
    assert torch.equal(wanted.tokens, tokens)


def rows_of_logits() -> torch.Tensor:
    """Logits [ROWS, 3, 20] whose argmax differs from row to row."""
    drawn = torch.Generator().manual_seed(2)
    return torch.randn((ROWS, 3, 20), generator=drawn).to(DEVICE, BF16)


def test_an_argmax_in_parts_reads_far_rows(memory: torch.Tensor) -> None:
    """Logits of the last row."""
    logits = rows_of_logits()
    wanted = torch.full((ROWS, 3), -1, device=DEVICE)
    found, flags = wanted.clone(), torch.empty_like(wanted, dtype=torch.uint8)
    choose_greedy(logits, None, None, None, wanted, flags)
    with np.errstate(all="ignore"):
        SplitChoice()(spread(memory, logits), None, None, None, found, flags)
    assert torch.equal(wanted, found)
    assert not torch.equal(wanted[0], wanted[-1])


def test_a_product_with_its_argmax_reads_far_weights(memory: torch.Tensor) -> None:
    """The last id of the head is the winner."""
    weight = torch.ones(IDS, 16, dtype=BF16, device=DEVICE)
    weight[-1] = 2.0
    hidden = torch.ones(2, 16, dtype=BF16, device=DEVICE)
    tokens = torch.full((2, 1), -1, device=DEVICE)
    flags, shape = torch.empty_like(tokens, dtype=torch.uint8), Shape(16, 16, 4, 2)
    with np.errstate(all="ignore"):
        far = spread(memory, weight)
        largest_of_product(hidden, far, Slots().of(tokens), tokens, flags, shape)
    assert tokens.flatten().tolist() == [IDS - 1] * 2


def asked() -> Asked:
    """Candidates of the rows of logits: some drafts are the argmax."""
    candidates = torch.full((ROWS, 3), 4, device=DEVICE)
    candidates[:, 1] = rows_of_logits().argmax(-1)[:, 0]
    return Asked(candidates, torch.full_like(candidates[:, 0], 3), candidates[:, 0].clone())


def committed(accept: object, *given: torch.Tensor | Asked) -> list[list[int]]:
    """Every field of a commit."""
    out = Commit.empty(ROWS, 2, DEVICE)
    assert callable(accept)
    with np.errstate(all="ignore"):
        accept(*given, out)
    return [getattr(out, name).tolist() for name in NAMES]


def test_accepts_read_far_rows(memory: torch.Tensor) -> None:
    """Greedy by logits, sampled by laws: the last request is its own."""
    logits, parts = rows_of_logits(), asked()
    lengths = (parts.verify_len, parts.prefix)
    wanted = committed(accept_greedy, parts.candidates, logits.flatten(0, 1), *lengths)
    far = spread(memory, logits)
    arrow = SplitAccept()
    out = Commit.empty(ROWS, 2, DEVICE)
    written = [getattr(out, name) for name in vars(out)]
    with np.errstate(all="ignore"):
        slots = arrow.slots.of(parts.candidates)
        arrow.accept(parts.candidates, far, lengths, slots, written)
    assert [getattr(out, name).tolist() for name in NAMES] == wanted

    law = (logits.float() * 3).softmax(-1).to(BF16)
    claim = (logits[:, :-1].float() + 1).softmax(-1).to(BF16)
    coins = torch.rand((ROWS, 3), generator=torch.Generator().manual_seed(3)).to(DEVICE)
    near = (law.float(), claim.float(), coins)
    apart = (spread(memory, law), spread(memory, claim, law[0].numel()), coins)
    for rule, torch_rule in RULES.items():
        wanted = committed(torch_rule, parts, *near)
        assert committed(SampledAccept(rule), parts, *apart) == wanted
        assert wanted[NAMES.index("bonus")][0] != wanted[NAMES.index("bonus")][-1]


@pytest.mark.gpu
def test_a_contiguous_tensor_of_more_than_2_to_31_elements() -> None:
    """Row times vocabulary alone: the last rows of a batch are as in a small one."""
    wide = 151_936
    count = 2**31 // (2 * wide) + 3
    logits = torch.zeros(count, 2, wide, dtype=BF16, device=DEVICE)
    last = logits[-4:].normal_()
    tokens = torch.full((count, 2), -1, device=DEVICE)
    SplitChoice()(logits, None, None, None, tokens, torch.empty_like(tokens, dtype=torch.uint8))
    assert logits.numel() > 2**31
    assert torch.equal(tokens[-4:], last.argmax(-1))
    assert not bool(tokens[:-4].any())
