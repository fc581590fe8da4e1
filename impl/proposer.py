"""Proposer: one decision a step, folded or eager, and the proposal that came of it.

The eager block is the folded one, called: the same function over temporary buffers, padded to the
same bucket so that library products see the same sizes, and moving the same noise state.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from . import gate
from .acceptor import Acceptor, Committed, Drafted
from .borrowed import Borrowed
from .buffers import Buffers, Layout
from .draft import Draft
from .gate import Decision, StepFacts
from .noise import Noise
from .plan import Refusal
from .proposal import Batch, Proposal
from .runner import Addresses, Forward, Runner, run_block
from .sampler import Admitted, DraftSampler
from .stages import Stages
from .target import Target

ASKED = Decision("eager", "eager block asked for")
NO_BLOCK = "no block has run"


@dataclass
class _Loaded:
    decision: Decision
    sampler: DraftSampler
    rows: int
    padded: int
    admitted: Admitted
    ran: bool = False
    replay: int = 0
    marked: Noise | None = None


class Proposer:
    """Drives a sampler and a runner, and drafts outside them when the gate says so.

    draft      what is drafted from
    forward    the draft forward
    layout     buffers of a block that samples; an eager block allocates them for its own rows
    stages     the arrows of such a block
    tail       the folded sampler, or why there is none
    runner     replays the tail, None without one
    addresses  where the weights of an eager block lie
    acceptor   accepts the blocks, and marks where their coins are
    """

    def __init__(
        self,
        draft: Draft,
        forward: Forward,
        layout: Layout,
        stages: Stages,
        tail: DraftSampler | Refusal,
        runner: Runner | None,
        addresses: Addresses,
        acceptor: Acceptor,
    ) -> None:
        self.draft = draft
        self.forward = forward
        self.layout = layout
        self.stages = stages
        self.tail = tail
        self.runner = runner
        self.addresses = addresses
        self.acceptor = acceptor
        self._loaded: _Loaded | None = None
        self._last: _Loaded | None = None

    def load(self, batch: Batch) -> Decision:
        """Decide, and copy a batch into the buffers that will draft it; pad rows become neutral."""
        rows = batch.anchor.shape[0]
        decision = gate.step(
            StepFacts(
                tail=self.tail.decision.fold if isinstance(self.tail, DraftSampler) else "eager",
                recording_ran=self.runner is not None and self.runner.replayable(rows),
                sampled_rows=not self.draft.greedy_draft and batch.admitted.sampled_rows,
            )
        )
        self._loaded = self._load(batch, decision)
        return decision

    def run(self) -> None:
        """Draft one block from what is loaded; again on the next call, with fresh noise.

        RuntimeError: nothing is loaded, or the replay contradicts the decision.
        """
        self._run(self._need())

    def read(self) -> Proposal:
        """Return copies of the last block. RuntimeError: no block has run since the last load."""
        return self._read(self._block(self._need()))

    def borrow(self) -> Borrowed:
        """Lend the last block without a copy: the live rows of what its replay wrote, by name.

        Inputs and parameters are not lent, since the next load overwrites them. RuntimeError: no
        block has run since the last load, or it ran eagerly, where no replay can be named.
        """
        loaded = self._block(self._need())
        if loaded.decision.fold == "eager" or self.runner is None:
            raise RuntimeError(
                f"the last block was eager ({loaded.decision.reason}); only a replayed block can "
                "be borrowed, read() gives copies of any"
            )
        written = [held for held in loaded.sampler.buffers.all if held.role == "output"]
        views = {held.name: held.tensor[: loaded.rows] for held in written}
        return Borrowed(views, loaded.replay, partial(getattr, self.runner, "replays"))

    def propose(self, batch: Batch) -> Proposal:
        """Load, run and read one step."""
        self.load(batch)
        self.run()
        return self.read()

    def eager(self, batch: Batch) -> Proposal:
        """Draft a batch outside the recording; what is loaded stays loaded."""
        loaded = self._load(batch, ASKED)
        self._run(loaded)
        return self._read(loaded)

    def path(self) -> dict[str, Any]:
        """How the last block was drafted, and what the recordings have done so far.

        Returns folded, reason (of the build when no tail was built), replays of all buckets,
        bucket, and the kernels of its recording. Before the first block nothing is folded.
        """
        if self._last is None:
            return {"folded": False, "reason": NO_BLOCK, "replays": 0, "bucket": 0, "kernels": ()}
        last, reason = self._last, self._last.decision.reason
        folded = last.decision.fold != "eager"
        kernels: tuple[str, ...] = ()
        if folded and self.runner is not None:
            kernels = self.runner.recordings[last.padded].kernels
        if isinstance(self.tail, Refusal) and last.decision != ASKED:
            reason = self.tail.reason
        return {
            "folded": folded,
            "reason": reason,
            "replays": 0 if self.runner is None else self.runner.replays,
            "bucket": last.padded,
            "kernels": kernels,
        }

    @property
    def buffers(self) -> Buffers | None:
        """The static buffers of the folded tail, None without one."""
        return self.tail.buffers if isinstance(self.tail, DraftSampler) else None

    def _need(self) -> _Loaded:
        if self._loaded is None:
            raise RuntimeError("no batch is loaded; load one first")
        return self._loaded

    def _load(self, batch: Batch, decision: Decision) -> _Loaded:
        rows = batch.anchor.shape[0]
        padded = self.layout.shapes.bucket_for(rows) or rows
        if decision.fold != "eager" and isinstance(self.tail, DraftSampler):
            sampler = self.tail
        else:
            sampler = self._temporary(padded, batch.anchor.device, decision)
        source = "hidden" if self.layout.forward == "given" else "context"
        sampler.buffers.load(source, batch.source, padded)
        sampler.buffers.load("anchor", batch.anchor, padded)
        sampler.stage_sampling_params(batch.admitted, padded)
        return _Loaded(decision, sampler, rows, padded, batch.admitted)

    def _temporary(self, rows: int, device: torch.device, decision: Decision) -> DraftSampler:
        state = {} if self.draft.noise is None else self.draft.noise.state
        buffers = Buffers(self.layout.for_rows(rows), device, state)
        return DraftSampler(self.draft, self.stages, buffers, decision)

    def _run(self, loaded: _Loaded) -> None:
        marked = self.acceptor.coins.mark()
        if loaded.decision.fold == "eager" or self.runner is None:
            self.addresses.check()
            run_block(loaded.sampler.buffers, self.forward, (loaded.sampler,), loaded.padded)
        elif (bucket := self.runner.run(loaded.rows)) != loaded.padded:
            raise RuntimeError(f"bucket {bucket} was replayed; bucket {loaded.padded} was loaded")
        # Only now: a replay that was refused leaves the block before with its own coins.
        loaded.marked = marked
        loaded.ran = True
        loaded.replay = 0 if self.runner is None else self.runner.replays
        self._last = loaded

    def _block(self, loaded: _Loaded) -> _Loaded:
        if not loaded.ran:
            raise RuntimeError("no block has run since the last load; run one first")
        return loaded

    def _read(self, loaded: _Loaded) -> Proposal:
        held = loaded.sampler.read(loaded.rows)
        return Proposal(
            tokens=held["tokens"],
            step_logits=held.get("step_logits"),
            temperature=held.get("temperature"),
            greedy=held.get("greedy"),
            greedy_draft=self.draft.greedy_draft,
            flags=held["flags"],
            hidden=loaded.sampler.buffers["hidden"][: loaded.rows].clone(),
            confidence=held.get("confidence"),
            confidence_raw=held.get("confidence_raw"),
            confidence_flags=held.get("confidence_flags"),
            folded=loaded.decision.fold != "eager",
            reason=loaded.decision.reason,
            bucket=loaded.padded,
        )

    @property
    def one_hot(self) -> bool:
        """Whether no row ever draws its tokens, so that they are accepted as point masses."""
        return self.draft.greedy_draft

    def accept(self, target: Target) -> Committed:
        """Commit what the target accepts of the block that ran last.

        RuntimeError: no block has run. Refused: what the accept cannot honour, by name.
        """
        return self.acceptor.accept(self.drafted(), target)

    def drafted(self) -> Drafted:
        """The block that ran last, as views of its buffers. RuntimeError: no block has run."""
        last = self._last
        if last is None or last.marked is None:
            raise RuntimeError("no block has run; run one first")
        held, rows = last.sampler.buffers, last.rows
        kept = held.get("step_logits")
        return Drafted(
            anchor=held["anchor"][:rows],
            tokens=held["tokens"][:rows],
            step_logits=None if kept is None else kept[:rows],
            flags=held["flags"][:rows],
            temperature=last.admitted.temperature,
            greedy=last.admitted.greedy,
            top_k=last.admitted.top_k,
            sampled_rows=last.admitted.sampled_rows,
            one_hot=self.one_hot,
            folded=last.decision.fold != "eager",
            bucket=last.padded,
            marked=last.marked,
        )
