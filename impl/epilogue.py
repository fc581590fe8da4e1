"""Verify epilogue: the greedy accept, recorded, over what a folded block left in its buffers.

It reads the drafts where the draft recording writes them, so it may be believed only for a block
that came from a replay; the gate's accept table says when.
"""

from dataclasses import dataclass, fields
from functools import partial

import torch
from torch import Tensor

from .acceptance import Commit
from .buffers import Buffers
from .graph.engine import Engine, Recording
from .runner import WARM_UPS
from .shapes import Shapes
from .stages import Accept
from .target import Target


@dataclass(frozen=True)
class Held:
    """The static tensors of an epilogue, of the largest bucket.

    candidates    [Bmax, K + 1] int64
    target_logits [Bmax, K + 1, V] float32
    verify_len    [Bmax] int64
    prefix_len    [Bmax] int64
    commit        what the accept writes
    """

    candidates: Tensor
    target_logits: Tensor
    verify_len: Tensor
    prefix_len: Tensor
    commit: Commit

    @classmethod
    def empty(cls, shapes: Shapes, device: torch.device) -> "Held":
        """Allocate for the largest bucket, all zeros."""
        top, wide = shapes.rows_max, shapes.drafts + 1

        def zeros(*size: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        return cls(
            candidates=zeros(top, wide),
            target_logits=zeros(top, wide, shapes.vocabulary, dtype=torch.float32),
            verify_len=zeros(top),
            prefix_len=zeros(top),
            commit=Commit.empty(top, shapes.drafts, device),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all of them, in integers."""
        own = (self.candidates, self.target_logits, self.verify_len, self.prefix_len)
        written = (getattr(self.commit, field.name) for field in fields(self.commit))
        return sum(tensor.nbytes for tensor in (*own, *written))


def epilogue_bytes(shapes: Shapes) -> int:
    """Bytes that an epilogue of these sizes will hold; allocates nothing."""
    return Held.empty(shapes, torch.device("meta")).nbytes


class VerifyEpilogue:
    """Static target buffers, and one recording of the greedy accept for every bucket.

    engine  what records
    drafts  static buffers of the folded draft: its anchors and tokens are the candidates
    accept  the greedy accept, as stages.py chose it

    Everything is allocated here, after the build decision, which counts it by `epilogue_bytes`.
    """

    def __init__(self, engine: Engine, drafts: Buffers, accept: Accept) -> None:
        self.engine = engine
        self.accept = accept
        self.drafts = drafts
        self.shapes = drafts.layout.shapes
        self.held = Held.empty(self.shapes, drafts["tokens"].device)
        self.commit = self.held.commit
        self.recordings: dict[int, Recording] = {}

    def capture(self) -> None:
        """Warm up and record, largest bucket first, into one pool."""
        pool = self.engine.pool()
        for bucket in reversed(self.shapes.buckets):
            body = partial(self._accept, bucket)
            with torch.no_grad():
                for _ in range(WARM_UPS):
                    body()
            self.recordings[bucket] = self.engine.record(body, pool=pool)

    def replayable(self, rows: int) -> bool:
        """Say whether a recording exists that holds `rows` live rows."""
        return self.shapes.bucket_for(rows) in self.recordings

    def run(self, target: Target) -> int:
        """Load the target of a block, replay the smallest bucket that holds it, and return it.

        Pad rows verify nothing. RuntimeError: no recording holds the rows.
        """
        rows = target.verify_len.shape[0]
        bucket = self.shapes.bucket_for(rows)
        if bucket is None or bucket not in self.recordings:
            raise RuntimeError(f"{rows} rows; recordings exist for {sorted(self.recordings)}")
        self.held.target_logits[:rows].copy_(target.logits)
        _padded(self.held.verify_len, target.verify_len, bucket)
        _padded(self.held.prefix_len, target.prefix_len, bucket)
        self.recordings[bucket].replay()
        return bucket

    def read(self, rows: int) -> Commit:
        """Return copies of what the live rows commit."""
        return self.commit.rows(rows).clone()

    @property
    def replays(self) -> int:
        """Replays of all buckets so far."""
        return sum(recording.replays for recording in self.recordings.values())

    def _accept(self, rows: int) -> None:
        held, candidates = self.held, self.held.candidates[:rows]
        candidates[:, 0].copy_(self.drafts["anchor"][:rows])
        candidates[:, 1:].copy_(self.drafts["tokens"][:rows])
        target = held.target_logits[:rows].flatten(0, 1)
        lengths = (held.verify_len[:rows], held.prefix_len[:rows])
        self.accept(candidates, target, *lengths, self.commit.rows(rows))


def _padded(held: Tensor, live: Tensor, bucket: int) -> None:
    rows = live.shape[0]
    held[:rows].copy_(live)
    held[rows:bucket].zero_()
