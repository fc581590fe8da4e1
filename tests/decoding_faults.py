"""Faults of a decoder, each in one replaced part, and the check that must name it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from impl.acceptor import Committed, Drafted
from impl.assembly import Parts
from impl.filters import target_law
from impl.proposer import Proposer
from impl.residual import inverse_cdf
from impl.sampler import Admitted, DraftSampler
from impl.target import Target


class CoarseClaim(Proposer):
    """Accepts by q of step logits that were rounded to bfloat16; the drafts were not."""

    def drafted(self) -> Drafted:
        """Round what the accept sees."""
        found = super().drafted()
        return replace(found, step_logits=found.step_logits.bfloat16().float())


class LateHeat(DraftSampler):
    """Stages parameters only when the number of rows changes."""

    rows = 0

    def stage_sampling_params(self, admitted: Admitted, padded: int) -> None:
        """Skip by a key that lacks the values."""
        if len(admitted.greedy) != self.rows:
            super().stage_sampling_params(admitted, padded)
        self.rows = len(admitted.greedy)


class EarlyBonus(Proposer):
    """Takes the bonus token from the target's row before the one that follows the accepted."""

    def accept(self, target: Target) -> Committed:
        """Draw it there, with the coin that was meant for it."""
        found, block = super().accept(target), self.drafted()
        rows, late = torch.arange(len(found.bonus)), found.correct_len > 0
        early = target.logits[rows, (found.correct_len - 1).clamp(min=0)]
        law = target_law(early[:, None], block.temperature, block.top_k, target.top_p)[:, 0]
        drawn = torch.where(block.greedy, early.argmax(-1), inverse_cdf(law, found.coins[:, -1]))
        bonus = torch.where(late, drawn, found.bonus)
        found.out_tokens[rows, found.correct_len] = bonus
        return replace(found, bonus=bonus)


@dataclass(frozen=True)
class Fault:
    """A story, the parts that make it, and the checks that must name it."""

    story: str
    parts: Callable[[], Parts]
    killers: tuple[str, ...]


FAULTS = {
    "coarse q": Fault(
        "q from bfloat16 logits", lambda: Parts(proposer=CoarseClaim), ("decode_accept",)
    ),
    "late heat": Fault(
        "drafts are drawn at the temperature of the request that left the row",
        lambda: Parts(sampler=LateHeat),
        ("decode_law",),
    ),
    "early bonus": Fault(
        "the bonus token comes from one row too early",
        lambda: Parts(proposer=EarlyBonus),
        ("decode_identity", "decode_accept"),
    ),
}
