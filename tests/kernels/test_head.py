"""Argmax in parts: the one of torch, with its flags, for rows that torch finds hard."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.buffers import Buffers, Layout
from impl.choice import choose_greedy
from impl.draft import DflashDraft
from impl.fused import FusedHead, Site, SplitChoice
from impl.kernels.chain import Slots
from impl.kernels.head import FEW, WIDE, Shape, largest_of_product
from impl.logits import OutputHead, base_logits, factors
from impl.shapes import Shapes
from impl.stages import Stages, stages_for

from .chains import DEVICE, INF, NAN

HALF, BF16, FULL = torch.float16, torch.bfloat16, torch.float32
ROWS, DRAFTS = 3, 2
VOCABULARY = 2 * WIDE + 37


def written() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and flags that no choice leaves."""
    tokens = torch.full((ROWS, DRAFTS), -1, device=DEVICE)
    return tokens, torch.full((ROWS, DRAFTS), 9, dtype=torch.uint8, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_row_takes_the_argmax_of_torch(dtype: torch.dtype) -> None:
    """Ties over parts, NaN, infinities of both kinds, nothing finite; twice from the same slots."""
    drawn = torch.Generator().manual_seed(4)
    logits = torch.randint(-40, 40, (ROWS + 1, DRAFTS, VOCABULARY), generator=drawn)
    logits = logits.to(DEVICE, dtype)[:ROWS]
    logits[0, 1] = -INF
    logits[1, 0, [5, VOCABULARY - 1]] = NAN
    logits[1, 1, [WIDE + 2, 2 * WIDE + 9]] = INF
    logits[2, 0] = -0.0
    logits[2, 0, 40] = 0.0
    arrow = SplitChoice()
    for _ in range(2):
        wanted, found = written(), written()
        choose_greedy(logits, None, None, None, *wanted)
        arrow(logits, None, None, None, *found)
        assert torch.equal(wanted[0], found[0])
        assert torch.equal(wanted[1], found[1])


@pytest.mark.gpu
def test_more_rows_than_a_second_dimension_of_a_grid_has() -> None:
    """A statistical batch: 70,000 rows of few ids."""
    logits = torch.randint(-40, 40, (70_000, 1, 16), device=DEVICE).to(torch.bfloat16)
    tokens = torch.full((70_000, 1), -1, device=DEVICE)
    SplitChoice()(logits, None, None, None, tokens, torch.empty_like(tokens, dtype=torch.uint8))
    assert torch.equal(tokens, logits.float().argmax(-1))


HIDDEN = 70
PAIRS = [(BF16, None), (FULL, None), (HALF, Shape(64, 32, 4, 2))]


def head_of(dtype: torch.dtype, vocabulary: int = 300, mup: float = 1.0) -> OutputHead:
    """A head of small integers, with large ones in its padding: products are exact, and tie."""
    drawn = torch.Generator().manual_seed(vocabulary)
    weight = torch.randint(-2, 3, (vocabulary + 9, HIDDEN), generator=drawn).to(DEVICE, dtype)
    weight[vocabulary:] = 50
    return OutputHead(weight, vocabulary, mup=mup)


def states(dtype: torch.dtype, rows: int = ROWS, drafts: int = DRAFTS) -> torch.Tensor:
    """Hidden states of small integers, a row of NaN, one of zeros and one that reaches infinity."""
    drawn = torch.Generator().manual_seed(8)
    made = torch.randint(-2, 3, (rows, drafts, HIDDEN), generator=drawn).to(DEVICE, dtype)
    made[0, 1, 3] = NAN
    made[1, 0] = 0.0
    made[1, 1, 5] = INF
    return made


@pytest.mark.parametrize(("dtype", "shape"), PAIRS, ids=str)
def test_a_product_with_its_argmax_ends_as_torch(dtype: torch.dtype, shape: Shape | None) -> None:
    """Three tiles, the last one ragged, and turns that are; ties over tiles; twice."""
    head, hidden = head_of(dtype), states(dtype)
    logits = torch.empty(ROWS, DRAFTS, head.vocabulary, dtype=dtype, device=DEVICE)
    base_logits(head, hidden, logits)
    wanted, slots = written(), Slots().of(written()[0])
    choose_greedy(logits, None, None, None, *wanted)
    assert set(wanted[1].flatten().tolist()) == {0, 1}
    rows, weight = factors(head, hidden)
    for _ in range(2):
        found = written()
        with np.errstate(all="ignore"):
            largest_of_product(rows, weight, slots, *found, shape)
        assert torch.equal(wanted[0], found[0])
        assert torch.equal(wanted[1], found[1])


def drafted(stages: Stages, dtype: torch.dtype, rows: int, mup: float) -> torch.Tensor:
    """Tokens and flags of a DFLASH block."""
    head = OutputHead(head_of(dtype).weight, 300, vocab_start=1000, mup=mup)
    shapes = Shapes(DRAFTS, 300, 309, HIDDEN, 0, (rows,), sample_from_anchor=True)
    layout = Layout(shapes, "dflash", "none", "greedy", "given", dtype, dtype)
    buffers = Buffers(layout, DEVICE, {})
    anchor = torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    hidden = states(dtype, rows).flatten(0, 1)
    with np.errstate(all="ignore"):
        DflashDraft(shapes, head).block(stages, buffers, hidden, anchor)
    return torch.stack([buffers["tokens"], buffers["flags"].long()])


@pytest.mark.parametrize(("rows", "mup"), [(3, 1.0), (3, 2.0**130), (33, 3.0)])
def test_a_dflash_block_is_the_same_with_both_sets(rows: int, mup: float) -> None:
    """Few rows in one launch, many by the library; a mup that leaves nothing is divided by too."""
    fused = stages_for("triton", "none", "greedy", site=Site(DEVICE))
    one = drafted(stages_for("torch", "none", "greedy"), BF16, rows, mup)
    two = drafted(fused, BF16, rows, mup)
    assert torch.equal(one, two)
    assert len(one[0].unique()) > 2 or mup > 3


def test_dflash_takes_it_where_kernels_run() -> None:
    """Its arrow stands for two, and steps aside when one of them is replaced."""
    found = stages_for("triton", "none", "greedy", site=Site(DEVICE))
    assert isinstance(found.choice, SplitChoice)
    assert isinstance(found.head, FusedHead)
    assert found.chain is None
    for arrow in ("logits", "choice"):
        replaced: dict[str, Any] = {arrow: partial(getattr(found, arrow))}
        assert found._replace(**replaced).head is None
    few, many = written()[0], torch.zeros(FEW, 2)
    assert found.head.fits(head_of(BF16), few)
    assert not found.head.fits(head_of(BF16), many)
    assert not found.head.fits(head_of(FULL), few)
