"""Argmax in parts: the one of torch, with its flags, for rows that torch finds hard."""

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.choice import choose_greedy
from impl.fused import Site, SplitChoice
from impl.kernels.head import WIDE
from impl.stages import stages_for

from .chains import DEVICE, INF, NAN

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


def test_dflash_takes_it_where_kernels_run() -> None:
    """Its choice arrow is an arrow like any other."""
    found = stages_for("triton", "none", "greedy", site=Site(DEVICE))
    assert isinstance(found.choice, SplitChoice)
    assert found.chain is None
