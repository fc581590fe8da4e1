"""Builders: what real objects are refused for, and the bytes that the memory gate counts."""

from dataclasses import replace

import pytest
import torch

from impl.assembly import assemble
from impl.bias import MarkovHead
from impl.config import Config
from impl.epilogue import epilogue_bytes
from impl.logits import BorrowedHead
from impl.plan import Plan, Refusal, Surroundings
from impl.proposal import Batch
from impl.proposer import Proposer
from impl.sampler import DraftSampler, admit, decide, layout_for, need_bytes
from impl.shapes import Shapes
from impl.subject import GivenForward

from .local_group import LocalGroup

K, V, W, D, R = 2, 13, 16, 8, 4
RANGES = ((0, 8), (8, V))
PLAN = Plan(K, V, (2, 4))
EAGER = Config.from_environment({"DRAFTPROOF_SHARDED_DFLASH": "eager"})
KEPT = "sharded dflash kept eager"


class NoBaseLogits(GivenForward):
    """A draft forward whose base logits a recording cannot have."""

    base_logits = False


def weights() -> tuple[torch.Tensor, MarkovHead]:
    """An output head and a Markov head, the same on every call."""
    drawn = torch.Generator().manual_seed(5)

    def weight(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=drawn).bfloat16()

    return weight(W, D), MarkovHead(weight(V, R), weight(V, R))


def made(family: str, forward: GivenForward, config: Config) -> Proposer:
    """A proposer on one rank."""
    head, markov = weights()
    lone = markov if family == "dspark" else None
    config = replace(config, engine="emulator")
    return assemble(PLAN, BorrowedHead(head), lone, forward, config, 3)


def shared(group: LocalGroup, config: Config) -> Proposer:
    """A proposer of dflash on one rank of two."""
    head, _ = weights()
    first, last = RANGES[group.rank]
    lm_head = BorrowedHead(head[first:last].clone(), shard_ranges=RANGES)
    plan = replace(PLAN, ranks=group.size, group=group)
    config = replace(config, engine="emulator")
    return assemble(plan, lm_head, None, GivenForward(V), config, 3)


def batch() -> Batch:
    """Two rows, one greedy and one sampled."""
    drawn = torch.Generator().manual_seed(9)
    hidden = torch.randn((2, K, D), generator=drawn).bfloat16()
    admitted = admit(torch.tensor([0.0, 1.0]), torch.tensor([V, V]))
    return Batch(hidden, torch.tensor([1, 12]), admitted)


def tensors(holder: object) -> list[torch.Tensor]:
    """Every tensor that an object holds, or that an object in it holds."""
    if isinstance(holder, torch.Tensor):
        return [holder]
    return [found for part in vars(holder).values() for found in tensors(part)]


def test_a_forward_without_base_logits_is_not_folded() -> None:
    """DSPARK drafts eagerly and says why, and the block is the one that a fold drafts."""
    lacking = made("dspark", NoBaseLogits(V), Config())
    assert lacking.tail == Refusal("no base logits")
    assert lacking.runner is None
    proposal = lacking.propose(batch())
    assert not proposal.folded
    assert lacking.path()["reason"] == "no base logits"
    whole = made("dspark", GivenForward(V), Config()).propose(batch())
    assert whole.folded
    assert torch.equal(proposal.tokens, whole.tokens)


def test_dflash_needs_no_base_logits_of_the_draft_model() -> None:
    """The row speaks of dspark, so the same forward is folded."""
    assert made("dflash", NoBaseLogits(V), Config()).propose(batch()).folded


def test_the_operator_keeps_sharded_dflash_eager() -> None:
    """On every rank: no recording, the reason, and the tokens of the whole head."""
    expected = made("dflash", GivenForward(V), Config()).propose(batch())
    assert expected.folded

    def body(group: LocalGroup) -> tuple[object, object, bool, list[list[int]]]:
        proposer = shared(group, EAGER)
        proposal = proposer.propose(batch())
        reason = proposer.path()["reason"]
        return proposer.tail, reason, proposal.folded, proposal.tokens.tolist()

    answer = (Refusal(KEPT), KEPT, False, expected.tokens.tolist())
    assert LocalGroup.together(2, body) == [answer] * 2


def test_the_same_word_leaves_one_rank_folded() -> None:
    """The rule speaks of ranks."""
    assert made("dflash", GivenForward(V), EAGER).propose(batch()).folded


@pytest.mark.parametrize(
    ("family", "config", "reason"),
    [("dflash", Config(), "folded"), ("dflash", EAGER, KEPT), ("dspark", EAGER, "folded")],
)
def test_only_dflash_asks_the_operator_about_ranks(
    family: str, config: Config, reason: str
) -> None:
    """From the objects of two ranks, the answer on each of them."""
    head, markov = weights()

    def body(group: LocalGroup) -> str:
        first, last = RANGES[group.rank]
        plan = replace(PLAN, ranks=2, group=group)
        lm_head = BorrowedHead(head[first:last], shard_ranges=RANGES)
        own = markov if family == "dspark" else None
        around = Surroundings(object(), config)
        return decide(family, plan, lm_head, own, "counter", around).reason

    assert LocalGroup.together(2, body) == [reason] * 2


def test_ranks_with_other_words_raise() -> None:
    """A word that only one rank was given is an error on both."""

    def body(group: LocalGroup) -> str:
        with pytest.raises(ValueError, match="sharded_dflash='eager'") as caught:
            shared(group, (Config(), EAGER)[group.rank])
        return str(caught.value)

    assert len(set(LocalGroup.together(2, body))) == 1


@pytest.mark.parametrize("dialect", ["race", "counter"])
def test_the_need_grows_by_the_bytes_of_the_epilogue(dialect: str) -> None:
    """What the gate was asked about is what was allocated, the epilogue's tensors included."""
    proposer = made("dspark", GivenForward(V), Config(noise=dialect))
    assert isinstance(proposer.tail, DraftSampler)
    epilogue = proposer.acceptor.epilogue
    assert epilogue is not None
    own = sum(tensor.nbytes for tensor in tensors(epilogue.held))
    # Candidates, target logits, two lengths; five counts, committed tokens, and flags of one byte.
    assert own == 4 * (8 * 3 + 4 * 3 * V + 8 + 8 + 5 * 8 + 8 * 3 + 1)
    layout = proposer.tail.buffers.layout
    assert proposer.tail.decision.need_bytes - layout.nbytes() == own
    held = sum(buffer.tensor.nbytes for buffer in proposer.tail.buffers.all)
    assert proposer.tail.decision.need_bytes == held + own
    # Nothing static lies beside what is counted.
    assert not [part for part in vars(epilogue).values() if isinstance(part, torch.Tensor)]


@pytest.mark.parametrize(("spare", "fold"), [(0, "sampled"), (-1, "greedy")])
def test_the_bytes_of_the_epilogue_decide(spare: int, fold: str) -> None:
    """One byte less than buffers, epilogue and 1 GiB together is short."""
    head, markov = weights()
    layout = layout_for(PLAN, head, markov, "counter")
    need = layout.nbytes() + epilogue_bytes(layout.shapes)
    assert need == need_bytes(PLAN, head, markov, "counter")
    around = Surroundings(object(), Config(), free_bytes=need + 2**30 + spare)
    decision = decide("dspark", PLAN, BorrowedHead(head), markov, "counter", around)
    assert (decision.fold, decision.need_bytes) == (fold, need)


def test_large_sizes_are_counted_without_memory() -> None:
    """Half a TiB of target logits is a number, not an allocation."""
    shapes = Shapes(7, 2**17, 2**17, 64, 8, (2**17,))
    assert epilogue_bytes(shapes) > 2**39
