"""Places of rows: those of a mask come first, each kind in its order."""

import pytest
import torch

triton = pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")
tl = triton.language

from impl.kernels.order import sorted_places  # noqa: E402

from .chains import DEVICE  # noqa: E402

SIZE = 16


@triton.jit
def places_kernel(mask, out, SIZE: tl.constexpr):  # type: ignore[name-defined]
    """Write the sorted places of a mask."""
    place = tl.arange(0, SIZE)
    tl.store(out + place, sorted_places(tl.load(mask + place) == 0, SIZE))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_rows_of_a_mask_come_first(share: float) -> None:
    """A permutation, stable on both sides; of one kind alone, nothing moves."""
    drawn = torch.Generator().manual_seed(4)
    mask = (torch.rand(SIZE, generator=drawn) < share).int()
    out = torch.full((SIZE,), -1, dtype=torch.int32, device=DEVICE)
    places_kernel[(1,)](mask.to(DEVICE), out, SIZE=SIZE)
    assert out.tolist() == sorted(range(SIZE), key=lambda place: (int(mask[place]), place))
