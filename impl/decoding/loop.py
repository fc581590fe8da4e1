"""Decoder: a step drafts a block for every live request, verifies, accepts and commits.

Requests wait until a row is free. A step makes one batch of the rows that live, in the order of
their admission; a request that ends frees its slot, and the rows behind it move up.
"""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from ..acceptor import Committed
from ..proposal import Batch, Proposal
from ..proposer import Proposer
from ..sampler import admit
from ..target import Target
from .network import Network
from .request import Live, Request


@dataclass(frozen=True)
class Step:
    """One step on record; B live rows, tensors are the reader's own.

    request [B] int64: whose row it is. past [B] int64: positions that the target had read
    proposal, target, committed  what was drafted, what the target said, what came of it
    top_k [B] int64
    kept [B] int64: committed tokens that stayed, a stop token being the last
    ended   per row, '' or why the request ended
    """

    request: Tensor
    past: Tensor
    anchor: Tensor
    top_k: Tensor
    proposal: Proposal
    target: Target
    committed: Committed
    kept: Tensor
    ended: tuple[str, ...]


class Decoder:
    """Decodes requests with one proposer and one target network.

    proposer  drafts and accepts; its largest bucket is the largest batch
    network   the target
    rule      'chain' or 'block': how sampled rows are accepted
    """

    def __init__(self, proposer: Proposer, network: Network, rule: str = "chain") -> None:
        self.proposer = proposer
        self.network = network
        self.rule = rule
        self.shapes = proposer.layout.shapes
        self.device = network.head.device
        self.rows = min(self.shapes.rows_max, network.slots)
        self.waiting: deque[tuple[int, Request]] = deque()
        self.live: list[Live] = []
        self.done: dict[int, Live] = {}
        self._submitted = 0

    def submit(self, request: Request) -> int:
        """Queue a request and return its number. ValueError: a slot is too short for it."""
        reach = len(request.prompt) + request.length + self.shapes.drafts
        if reach > self.network.length:
            raise ValueError(
                f"the request may reach {reach} positions; a slot holds {self.network.length}"
            )
        self.waiting.append((self._submitted, request))
        self._submitted += 1
        return self._submitted - 1

    def step(self) -> Step | None:
        """Run one step over everything that lives; None when nothing is left to do."""
        self._admit()
        if not self.live:
            return None
        batch, past = self._batch(), self._ints([each.past for each in self.live])
        proposal = self.proposer.propose(batch)
        ids = torch.cat([batch.anchor[:, None], proposal.tokens], 1)
        slots = self._ints([each.slot for each in self.live])
        states = self.network.extend(slots, ids, past)
        target = self._target(states, past)
        committed = self.proposer.accept(target)
        request = self._ints([each.number for each in self.live])
        kept, ended = self._commit(states, committed)
        own = (request, past, batch.anchor, batch.admitted.top_k)
        return Step(*own, proposal, target, committed, kept, ended)

    def _admit(self) -> None:
        taken = {each.slot for each in self.live}
        free = [slot for slot in range(self.rows) if slot not in taken]
        while free and self.waiting:
            number, request = self.waiting.popleft()
            slot = free.pop(0)
            read = self._ints(request.prompt[:-1])[None]
            nothing = self._ints([0])
            states = self.network.extend(self._ints([slot]), read, nothing)
            self.live.append(Live(number, request, slot, states[0, -1].clone()))

    def _batch(self) -> Batch:
        asked = [each.request for each in self.live]
        heat = torch.tensor([each.temperature for each in asked], device=self.device)
        parameters = admit(heat, self._ints([each.top_k for each in asked]))
        anchor = self._ints([each.anchor for each in self.live])
        return Batch(torch.stack([each.feature for each in self.live]), anchor, parameters)

    def _target(self, states: Tensor, past: Tensor) -> Target:
        wide = self.shapes.drafts + 1
        share = torch.tensor([each.request.top_p for each in self.live], device=self.device)
        return Target(
            logits=self.network.logits(states),
            top_p=share,
            verify_len=self._ints([min(wide, each.left) for each in self.live]),
            prefix_len=past + 1,
            rule=self.rule,
        )

    def _commit(self, states: Tensor, committed: Committed) -> tuple[Tensor, tuple[str, ...]]:
        rows = zip(
            self.live,
            states,
            committed.correct_len.tolist(),
            committed.commit_len.tolist(),
            committed.out_tokens.tolist(),
            strict=True,
        )
        # The row of the last accepted token predicted the bonus token, the next anchor.
        kept = [
            each.commit(tokens[:count], own[accepted].clone())
            for each, own, accepted, count, tokens in rows
        ]
        ended = tuple(each.ended for each in self.live)
        self.done |= {each.number: each for each in self.live if each.ended}
        self.live = [each for each in self.live if not each.ended]
        return self._ints(kept), ended

    def _ints(self, values: list[int] | tuple[int, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)
