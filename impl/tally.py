"""Counts of pairs of tokens, kept on the device and added to by a recording of their own.

Nothing waits for the host between two blocks, so a wide batch of a small vocabulary is counted as
fast as it is drafted. Counts are integers, and exact.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .buffers import Buffers
from .graph.engine import Engine

TABLES = ("steps", "rows", "replays")
# Rows write into tables of their own, as many as these bounds leave, so that few write one cell at
# the same time; a sum makes one of them.
SPREAD, CELLS_MAX = 256, 2**22


class Tally:
    """Counts the first rows of the block that the buffers hold.

    engine   records the counting
    buffers  those of the block: anchor and tokens
    rows     live rows
    """

    def __init__(self, engine: Engine, buffers: Buffers, rows: int) -> None:
        sizes, self.rows = buffers.layout.shapes, rows
        self.drafts, self.wide = sizes.drafts, sizes.vocabulary
        self.anchor, self.tokens = buffers["anchor"][:rows], buffers["tokens"][:rows]
        device, cells = self.tokens.device, self.drafts * self.wide**2
        self.spread = max(1, min(SPREAD, rows, CELLS_MAX // cells))
        own = torch.arange(rows, device=device) % self.spread * cells
        column = torch.arange(self.drafts, device=device) * self.wide**2
        self.places = own[:, None] + column
        self.last = torch.zeros_like(self.tokens)
        self.ones = torch.ones(rows * self.drafts, dtype=torch.int64, device=device)
        self.started = torch.zeros(1, dtype=torch.int64, device=device)
        self.counts = {
            name: torch.zeros(self.spread * cells, dtype=torch.int64, device=device)
            for name in TABLES
        }
        self._count()
        self.recording = engine.record(self._count, pool=engine.pool())

    def run(self, block: Callable[[], None], replays: int) -> dict[str, Tensor]:
        """Run so many blocks and return their counts, [K, V, V] int64 by table.

        steps    [k, a, b]: draft k is b, the token before it a
        rows     [k, a, b]: draft k of row 2 r is a, of row 2 r + 1 it is b
        replays  [k, a, b]: draft k of a row is a, in the next block b
        """
        for held in (*self.counts.values(), self.started):
            held.zero_()
        for _ in range(replays):
            block()
            self.recording.replay()
        shape = (self.spread, self.drafts, self.wide, self.wide)
        return {name: held.view(shape).sum(0) for name, held in self.counts.items()}

    def _count(self) -> None:
        # A token that is no id must not write past the tables; it is for others to find.
        tokens = self.tokens.clamp(0, self.wide - 1)
        before = torch.cat([self.anchor[:, None], tokens[:, :-1]], 1)
        self._add("steps", before, tokens, self.ones)
        even = self.rows // 2 * 2
        self._add("rows", tokens[0:even:2], tokens[1:even:2], self.ones)
        # The first block of a run has none before it.
        self._add("replays", self.last, tokens, self.ones * self.started)
        self.last.copy_(tokens)
        self.started.fill_(1)

    def _add(self, name: str, left: Tensor, right: Tensor, weight: Tensor) -> None:
        cells = (left * self.wide + right + self.places[: len(left)]).flatten()
        self.counts[name].scatter_add_(0, cells, weight[: len(cells)])
