"""The tensors of one emulated recording: private ones it owns, outside ones it only points at.

A device graph holds addresses, not references. So a recorded argument is a *ghost*: a tensor over
the same bytes that does not keep an outside storage alive. Before each replay every outside
storage must still exist, at the same address and size (G6).
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .hazard import Hazard

__all__ = ["Memory", "poison"]


class _Outside(NamedTuple):
    """A storage that the recording uses and does not own, as it was at its first use."""

    ref: StorageWeakRef
    same: torch.UntypedStorage  # the same bytes, not owned; one per storage, so overlaps show
    address: int
    nbytes: int
    op: str
    where: str


def poison(tensor: torch.Tensor) -> None:
    """Fill `tensor` with what no sound run computes: NaN, the smallest integer, or True."""
    if tensor.dtype == torch.bool:
        tensor.fill_(True)  # noqa: FBT003
    elif tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(float("nan"))
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


class Memory:
    """Every storage that one recording touches."""

    def __init__(self) -> None:
        """Start empty."""
        self._private: set[int] = set()
        self._constants: dict[int, torch.Tensor] = {}
        self._outputs: list[torch.Tensor] = []
        self._blank: list[torch.Tensor] = []
        self._outside: dict[int, _Outside] = {}
        self._ghosts: dict[tuple[Any, ...], torch.Tensor] = {}

    def allocate(self, like: torch.Tensor) -> torch.Tensor:
        """Return a poisoned tensor [shape and strides of `like`] that one step will fill."""
        return self._adopt(_strided(like), self._outputs)

    def allocate_blank(self, like: torch.Tensor) -> torch.Tensor:
        """Return a poisoned tensor that no step fills as a whole, so every replay poisons it."""
        return self._adopt(_strided(like), self._blank)

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Own `tensor`, a host scalar frozen at capture (G9)."""
        key = tensor.untyped_storage()._cdata
        self._constants[key] = tensor
        self._private.add(key)
        return tensor

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Return whether `tensor` is a host scalar that was frozen."""
        return tensor.untyped_storage()._cdata in self._constants

    def _adopt(self, tensor: torch.Tensor, kind: list[torch.Tensor]) -> torch.Tensor:
        poison(tensor)
        self._private.add(tensor.untyped_storage()._cdata)
        kind.append(tensor.detach())
        return tensor

    def ghost(self, tensor: torch.Tensor, op: str, where: str) -> torch.Tensor:
        """Return a tensor over the bytes of `tensor` that keeps only private storages alive."""
        storage = tensor.untyped_storage()
        view = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
        key = (storage._cdata, tensor.dtype, *view)
        if key in self._ghosts:
            return self._ghosts[key]
        if storage._cdata not in self._private:
            storage = self._point_at(storage, op, where)
        ghost = torch.empty(0, dtype=tensor.dtype)
        if tensor.numel() == 0:
            ghost = _strided(tensor)
        else:
            ghost.set_(storage, *view)
        self._ghosts[key] = ghost
        return ghost

    def _point_at(self, storage: torch.UntypedStorage, op: str, where: str) -> torch.UntypedStorage:
        if storage._cdata not in self._outside:
            address, nbytes = storage.data_ptr(), storage.nbytes()
            same = torch._C._construct_storage_from_data_pointer(address, storage.device, nbytes)
            # A weak reference also keeps the identity in _cdata from being given out again.
            entry = _Outside(
                StorageWeakRef(storage),
                cast("torch.UntypedStorage", same),
                address,
                nbytes,
                op,
                where,
            )
            self._outside[storage._cdata] = entry
        return self._outside[storage._cdata].same

    def seal(self) -> None:
        """Raise Hazard when an outside storage did not outlive the call that was recorded."""
        for entry in self._outside.values():
            if entry.ref.expired():
                raise Hazard(
                    "G4",
                    entry.op,
                    entry.where,
                    "used memory that was gone when the recorded call returned: fresh host data,"
                    " or a tensor that the call itself freed",
                    "make the tensor before recording and keep it alive",
                )

    def check(self) -> None:
        """Raise Hazard when an outside storage was freed, moved or resized since capture."""
        for ref, _, address, nbytes, op, where in self._outside.values():
            live = torch.UntypedStorage._new_with_weak_ptr(ref.cdata)
            if live is not None and live.data_ptr() == address and live.nbytes() == nbytes:
                continue
            change = "freed" if live is None else "moved or resized"
            raise Hazard(
                "G6",
                op,
                where,
                f"was the first to use memory that has been {change} since capture",
                "keep the tensor alive and copy into it; never rebind, resize or set .data",
            )

    def blank(self) -> None:
        """Poison what no step fills as a whole."""
        for tensor in self._blank:
            poison(tensor)

    def spoil(self) -> None:
        """Poison everything the recording owns: its results are over (G10)."""
        for tensor in (*self._blank, *self._outputs):
            poison(tensor)


def _strided(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype)
