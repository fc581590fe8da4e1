"""The fused step: the block of the torch arrows, bit for bit, whatever the logits hold."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.kernels.chain import EMPTY_SLOT, INTERPRETED, Slots, launch

from .chains import BLOCK, DEVICE, NARROW, broken, chain, fused_block, same_bits, torch_block

HALF, BF16, FULL = torch.float16, torch.bfloat16, torch.float32
TYPES = [(BF16, FULL), (HALF, HALF), (FULL, BF16)]


def test_kernels_are_interpreted_exactly_where_no_gpu_is() -> None:
    """The other tests of this folder say which of the two they ran on by this one."""
    assert (DEVICE.type == "cpu") == INTERPRETED


@pytest.mark.parametrize(("dtype", "step_dtype"), TYPES, ids=str)
def test_a_block_equals_the_torch_arrows(dtype: torch.dtype, step_dtype: torch.dtype) -> None:
    """Tokens, kept logits and flags: ties, NaN, infinities, masked columns, a ragged last tile."""
    given = broken(chain(9, 75, 5, dtype, step_dtype))
    wanted, found = torch_block(given), fused_block(given)
    assert torch.equal(wanted.tokens, found.tokens)
    assert torch.equal(wanted.flags, found.flags)
    assert same_bits(wanted.kept, found.kept)
    assert set(wanted.flags.unique().tolist()) == {0, 1, 2}


def test_a_greedy_block_draws_nothing_and_keeps_nothing() -> None:
    """Every row takes its argmax; the base logits stay as they were."""
    given = replace(broken(chain(9, 75, 5, BF16, BF16)), drawn=False)
    before, wanted = given.base.clone(), torch_block(given)
    found = fused_block(replace(given, kept=None))
    assert torch.equal(wanted.tokens, found.tokens)
    assert torch.equal(wanted.flags, found.flags)
    assert same_bits(before, given.base)


def test_keys_that_leave_float32_are_settled_by_their_logits() -> None:
    """Quotients of either sign overflow: the largest logit wins, its flag says a number was there.

    Row 0 has two that overflow upwards, the larger one later; in row 2 all overflow downwards.
    """
    given = chain(3, 40, 3, FULL, FULL, drafts=1)
    given.temperature.fill_(1e-5)
    given.base[0, 0, [4, 30]] = torch.tensor([1e34, 2e34], device=DEVICE)
    given.base[2] = -torch.arange(2, 42, device=DEVICE).flip(0).float() * 1e37 / 4
    wanted, found = torch_block(given), fused_block(given)
    assert wanted.tokens[[0, 2], 0].tolist() == [30, 39]
    assert torch.equal(wanted.tokens, found.tokens)
    assert torch.equal(wanted.flags, found.flags)


def test_a_row_has_the_same_bits_in_every_batch() -> None:
    """Programs of 16 or 32 rows, one group or two, narrow tiles or wide, in order or sorted."""
    whole = fused_block(chain(17, 75, 5, BF16, BF16, drafts=1))
    for rows, config in ((3, None), (17, replace(NARROW, rows=16, sort=True))):
        part = fused_block(chain(rows, 75, 5, BF16, BF16, drafts=1), config)
        assert torch.equal(part.tokens, whole.tokens[:rows])
        assert torch.equal(part.kept, whole.kept[:rows])


def test_a_block_counts_itself_and_leaves_its_slots_empty() -> None:
    """The next block draws other noise from the same slots."""
    given = chain(2, 40, 3, BF16, BF16, drafts=1)
    given.greedy.fill_(value=False)
    slots, seen = Slots().of(given.tokens), set()
    for count in range(3):
        assert given.noise is not None
        assert int(given.noise[1]) == BLOCK + count
        launch(given, slots, NARROW)
        assert bool((slots == EMPTY_SLOT).all())
        seen.add(tuple(given.tokens.flatten().tolist()))
    assert len(seen) > 1
