"""Verify epilogue: the greedy accept, recorded, over what a folded block left in its buffers.

It reads the drafts where the draft recording writes them, so it may be believed only for a block
that came from a replay; the gate's accept table says when.
"""

from functools import partial

import torch
from torch import Tensor

from .acceptance import Commit, accept_greedy
from .buffers import Buffers
from .graph.engine import Engine, Recording
from .runner import WARM_UPS
from .target import Target


class VerifyEpilogue:
    """Static target buffers, and one recording of the greedy accept for every bucket.

    engine  what records
    drafts  static buffers of the folded draft: its anchors and tokens are the candidates

    Everything is allocated here.
    """

    def __init__(self, engine: Engine, drafts: Buffers) -> None:
        self.engine = engine
        self.drafts = drafts
        self.shapes = drafts.layout.shapes
        top, wide, device = self.shapes.rows_max, self.shapes.drafts + 1, drafts["tokens"].device
        size = (top, wide, self.shapes.vocabulary)
        self.candidates = torch.zeros(top, wide, dtype=torch.int64, device=device)
        self.target_logits = torch.zeros(size, dtype=torch.float32, device=device)
        self.verify_len = torch.zeros(top, dtype=torch.int64, device=device)
        self.prefix_len = torch.zeros(top, dtype=torch.int64, device=device)
        self.commit = Commit.empty(top, wide - 1, device)
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
        self.target_logits[:rows].copy_(target.logits)
        _padded(self.verify_len, target.verify_len, bucket)
        _padded(self.prefix_len, target.prefix_len, bucket)
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
        candidates = self.candidates[:rows]
        candidates[:, 0].copy_(self.drafts["anchor"][:rows])
        candidates[:, 1:].copy_(self.drafts["tokens"][:rows])
        target = self.target_logits[:rows].flatten(0, 1)
        lengths = (self.verify_len[:rows], self.prefix_len[:rows])
        accept_greedy(candidates, target, *lengths, self.commit.rows(rows))


def _padded(held: Tensor, live: Tensor, bucket: int) -> None:
    rows = live.shape[0]
    held[:rows].copy_(live)
    held[rows:bucket].zero_()
