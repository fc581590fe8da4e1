"""The tensors of one emulated recording: private ones it owns, outside ones it only points at.

A device graph holds addresses, not references. So a recorded argument is a *ghost*: a tensor over
the same bytes that does not keep an outside storage alive. Before each replay every outside
storage must still exist, at the same address and size (G6).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .hazard import Hazard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        self._outputs: dict[int, torch.Tensor] = {}
        self._blank: dict[int, torch.Tensor] = {}
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

    def _adopt(self, tensor: torch.Tensor, kind: dict[int, torch.Tensor]) -> torch.Tensor:
        poison(tensor)
        key = tensor.untyped_storage()._cdata
        self._private.add(key)
        kind[key] = tensor.detach()
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

    def share(self, touched: Sequence[Iterable[torch.Tensor]]) -> None:
        """Lay results that nobody can see on common bytes, as a pool does.

        touched: the ghosts of each step, in order

        A step fills its results whole, so bytes may be given on once the last step that touches
        them is over. Fewer bytes stay in the cache. What someone may still look at keeps its own.
        """
        ghosts: dict[int, list[torch.Tensor]] = {}
        for (storage, *_), ghost in self._ghosts.items():
            if ghost.numel():
                ghosts.setdefault(storage, []).append(ghost)
        tensors, names = _holders(torch.empty(1).detach())
        unseen = {
            key
            for key, held in self._outputs.items()
            if key in ghosts and _holders(held) == (tensors + len(ghosts[key]), names)
        }
        self._outputs = {key: held for key, held in self._outputs.items() if key not in unseen}
        named = [{tensor.untyped_storage()._cdata for tensor in step} & unseen for step in touched]
        last = {storage: number for number, step in enumerate(named) for storage in step}
        free: dict[int, list[torch.UntypedStorage]] = {}
        lying: dict[int, torch.UntypedStorage] = {}
        for number, step in enumerate(named):
            for storage in step - lying.keys():
                own = ghosts[storage][0].untyped_storage()
                given = free.get(own.nbytes())
                lying[storage] = given.pop() if given else own
                for ghost in ghosts[storage] if lying[storage] is not own else ():
                    view = (ghost.storage_offset(), ghost.shape, ghost.stride())
                    ghost.set_(lying[storage], *view)
            for storage in step:
                if last[storage] == number:
                    free.setdefault(lying[storage].nbytes(), []).append(lying[storage])

    def blank(self) -> None:
        """Poison what no step fills as a whole."""
        for tensor in self._blank.values():
            poison(tensor)

    def spoil(self) -> None:
        """Poison everything the recording owns: its results are over (G10)."""
        for tensor in (*self._blank.values(), *self._outputs.values()):
            poison(tensor)


def _holders(tensor: torch.Tensor) -> tuple[int, int]:
    """Return how many tensors, and how many Python names, hold the bytes of `tensor`.

    What torch itself adds to the numbers depends on its version: compare with a tensor alone.
    """
    key = tensor.untyped_storage()._cdata
    return int(torch._C._storage_Use_Count(key)), sys.getrefcount(tensor.untyped_storage())


def _strided(like: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tuple(like.shape), like.stride(), dtype=like.dtype)
