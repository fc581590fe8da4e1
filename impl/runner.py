"""Runner: buckets, warm-up, capture largest first, replay of the smallest bucket that fits.

What is captured, per bucket: the draft input ids, the draft forward, and the tail hooks in order.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from .buffers import Buffers
from .graph.engine import Engine, Recording
from .noise import Noise, preserved
from .shapes import Shapes

WARM_UPS = 2
NO_HIDDEN = (
    "draft sampler set but the draft forward has no hidden_states to capture into the graph."
)

Hook = Callable[[Tensor, Tensor], None]
Place = tuple[int, torch.Size, tuple[int, ...], torch.dtype]


class Forward(Protocol):
    """A draft forward over static buffers.

    mask_token  the id that stands for a token to be drafted

    `base_logits`, optional: see `offers_base_logits`.
    """

    mask_token: int

    def weights(self) -> Mapping[str, Tensor]:
        """The weights that a recording reads by address, by name."""

    def __call__(self, buffers: Buffers, rows: int) -> object:
        """Return the hidden states [rows * Q, D] of the first `rows` rows of the buffers."""


def offers_base_logits(forward: Forward) -> bool:
    """Say whether a recording can make base logits from the hidden states of a draft forward.

    A forward that cannot serve one has the attribute `base_logits = False`; an eager block still
    asks the borrowed output head. Without the attribute the head serves the recording too.
    """
    return bool(getattr(forward, "base_logits", True))


def run_block(buffers: Buffers, forward: Forward, hooks: Sequence[Hook], rows: int) -> object:
    """Run one padded block: input ids, draft forward, tail hooks; the function that is captured.

    rows  Bp, live and pad rows together

    Returns the hidden states. RuntimeError: hooks that find no hidden states, or not B * Q of them.
    """
    with torch.no_grad():
        ids = buffers["input_ids"][:rows]
        ids.fill_(forward.mask_token)
        ids[:, 0].copy_(buffers["anchor"][:rows])
        hidden = forward(buffers, rows)
        for hook in hooks:
            hook(_hidden_states(hidden, buffers.layout.shapes, rows), ids)
        return hidden


def _hidden_states(hidden: object, shapes: Shapes, rows: int) -> Tensor:
    if not isinstance(hidden, Tensor) or not hidden.is_floating_point():
        raise RuntimeError(NO_HIDDEN)
    wanted = (rows * shapes.query_rows, shapes.hidden)
    if tuple(hidden.shape) != wanted:
        raise RuntimeError(
            f"the draft forward returned hidden states of shape {tuple(hidden.shape)}; "
            f"{rows} rows of {shapes.query_rows} queries should give {wanted}"
        )
    return hidden


class Addresses:
    """Where captured tensors lie; a tensor that moves makes every recording stale.

    current  returns the tensors as their owners hold them now, by name
    """

    def __init__(self, current: Callable[[], Mapping[str, Tensor | None]]) -> None:
        self.current = current
        self.captured = {name: _place(tensor) for name, tensor in current().items()}

    def check(self) -> None:
        """Compare with what was found first. RuntimeError: names the first tensor that moved."""
        now = self.current()
        for name, captured in self.captured.items():
            found = _place(now.get(name))
            if found != captured:
                raise RuntimeError(
                    f"recapture needed: {name} is at {found}, but was captured at {captured} "
                    "(address, shape, strides, dtype)"
                )


def _place(tensor: Tensor | None) -> Place | None:
    if tensor is None:
        return None
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


class Runner:
    """Captures the draft step of every bucket and replays it.

    engine   what records; None replays nothing
    shapes   buckets and sizes
    buffers  static tensors, at least those of a forward
    forward  the draft forward
    hooks    tail hooks, in order; none can be added later, for it would not be recorded
    noise    state that warm-ups must leave as found; its generators are registered
    weights  further tensors whose address is compared before a replay
    strict   compare the addresses of all buffers too
    """

    def __init__(
        self,
        engine: Engine | None,
        shapes: Shapes,
        buffers: Buffers,
        forward: Forward,
        hooks: Sequence[Hook] = (),
        *,
        noise: Noise | None = None,
        weights: Callable[[], Mapping[str, Tensor | None]] = dict,
        strict: bool = False,
    ) -> None:
        self.engine = engine
        self.shapes = shapes
        self.buffers = buffers
        self.forward = forward
        self.hooks = tuple(hooks)
        self.noise = noise
        self.recordings: dict[int, Recording] = {}
        self.weights = weights
        self.strict = strict
        self.addresses = Addresses(self._watched)

    def capture(self) -> None:
        """Warm up twice and record, largest bucket first, into one pool.

        The noise state stays as found. RuntimeError: the forward gives no hidden states.
        """
        if self.engine is None:
            return
        pool = self.engine.pool()
        generators = () if self.noise is None else self.noise.generators
        for bucket in reversed(self.shapes.buckets):
            body = partial(run_block, self.buffers, self.forward, self.hooks, bucket)
            with preserved(self.noise):
                for _ in range(WARM_UPS):
                    body()
            self.recordings[bucket] = self.engine.record(body, pool=pool, generators=generators)

    def replayable(self, rows: int) -> bool:
        """Say whether a recording exists that holds `rows` live rows."""
        return self.shapes.bucket_for(rows) in self.recordings

    def run(self, rows: int) -> int:
        """Replay the smallest bucket that holds `rows` and return it.

        RuntimeError: no recording holds them, or a captured tensor has moved.
        """
        bucket = self.shapes.bucket_for(rows)
        if bucket is None or bucket not in self.recordings:
            raise RuntimeError(f"{rows} rows; recordings exist for {sorted(self.recordings)}")
        self.addresses.check()
        self.recordings[bucket].replay()
        return bucket

    @property
    def replays(self) -> int:
        """Replays of all buckets so far."""
        return sum(recording.replays for recording in self.recordings.values())

    def _watched(self) -> dict[str, Tensor | None]:
        held = self.buffers.items() if self.strict else ()
        buffers = {f"buffer {name}": tensor for name, tensor in held}
        return {**buffers, **self.forward.weights(), **self.weights()}
