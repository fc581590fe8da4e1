"""What a graph engine promises.

An engine calls a function once, *records* the device work of that call, and *replays* that work
without the function. The rules, the same for every engine:

G1   Python runs at capture only.
G2   A replay touches the storages seen at capture, at the same offsets.
G3   Rebinding a name after capture changes nothing.
G4   No host read, and no copy of fresh host data, while recording.
G5   No shape that depends on data.
G6   Nothing captured is freed, moved or resized while the recording lives.
G7   Noise moves on the device at each replay: a counter buffer, or a generator registered with
     the recording. Nothing else draws.
G8   Capture computes nothing; values are undefined before the first replay.
G9   Host scalars are frozen at capture.
G10  An output lives until the next replay from its pool.

KEEPS says how each engine keeps a rule, BLIND what it cannot show.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

__all__ = ["BLIND", "KEEPS", "Engine", "Pool", "Recording"]

# obeys: by construction. refuses: raises Hazard. poison: whoever breaks the rule reads poison.
# silent: obeyed, and whoever relies on the opposite is not told. blind: broken without a sign.
KEEPS = {
    "emulator": {
        **dict.fromkeys(("G1", "G2", "G3", "G9"), "obeys"),
        **dict.fromkeys(("G4", "G5", "G6", "G7"), "refuses"),
        **dict.fromkeys(("G8", "G10"), "poison"),
    },
    "cuda": {
        **dict.fromkeys(("G1", "G2", "G3", "G9"), "obeys"),
        **dict.fromkeys(("G4", "G5", "G7"), "refuses"),
        "G6": "blind",
        **dict.fromkeys(("G8", "G10"), "silent"),
    },
}

BLIND = {
    "emulator": (
        "stream order",
        "asynchronous copies",
        "reuse of pool memory",
        "races inside a kernel",
        "compiled Triton code",
        "errors of the driver",
        "speed",
        "ops on other threads",
        "memory handed over by from_numpy or dlpack",
    ),
    "cuda": (
        "captured memory that was freed or moved (G6)",
        "a result that is read before the first replay (G8)",
        "a result that is read after a later replay (G10)",
    ),
}


class Pool:
    """Memory shared by the recordings of one runner; get one from `engine.pool()`."""

    def __init__(self, engine: str, handle: Any) -> None:
        """Keep the name of the engine that made the pool, and its handle, private to it."""
        self.engine = engine
        self.handle = handle

    def handle_for(self, engine: str) -> Any:
        """Return the handle; ValueError when another engine made the pool."""
        if self.engine != engine:
            msg = f"the pool was made by engine {self.engine!r}; required: a pool of {engine!r}"
            raise ValueError(msg)
        return self.handle


@runtime_checkable
class Recording(Protocol):
    """The device work of one call.

    result   what the function returned at capture; its tensors are filled by a replay (G8)
    replays  replays so far
    kernels  emulator: recorded op names in order; cuda: empty, torch offers no node names
    """

    result: Any
    replays: int
    kernels: tuple[str, ...]

    def replay(self) -> None:
        """Run the recorded work once; Hazard when captured memory is gone (emulator, G6)."""


@runtime_checkable
class Engine(Protocol):
    """Records calls. Warm-up calls are the caller's business: `record` calls `body` once."""

    name: str

    def pool(self) -> Pool:
        """Make a new, empty pool."""

    def record(
        self,
        body: Callable[[], Any],
        *,
        pool: Pool,
        generators: Sequence[torch.Generator] = (),
    ) -> Recording:
        """Record the device work of one call of `body`, without gradients.

        body        called once, now; what it returns becomes `Recording.result`
        pool        where tensors made by `body` live
        generators  the only ones that recorded work may draw from (G7)
        Raises Hazard when `body` breaks a rule, RuntimeError inside another recording.
        """
