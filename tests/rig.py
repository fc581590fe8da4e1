"""A small DSPARK proposer with everything that went into it, for the tests of its parts."""

from dataclasses import dataclass, replace

import torch

from impl.assembly import assemble
from impl.backbone import Backbone
from impl.bias import MarkovHead
from impl.buffers import Buffers
from impl.config import Config
from impl.logits import BorrowedHead
from impl.noise import CounterNoise, Noise
from impl.plan import Plan
from impl.proposal import Batch, Proposal
from impl.proposer import Proposer
from impl.runner import Runner
from impl.sampler import admit, layout_for
from impl.subject import BackboneForward, GivenForward

K, V, W, D, R = 2, 13, 16, 8, 4
BUCKETS = (2, 4)
SEED = 11
ALL = 2**30
GREEDY, SAMPLED = (0.0, ALL), (1.0, ALL)
Row = tuple[float, int]


def consumed(noise: Noise) -> object:
    """What the noise has drawn so far, in a form that compares."""
    if isinstance(noise, CounterNoise):
        return int(noise.block)
    return noise.generator.get_state().tolist()


@dataclass
class Rig:
    """A proposer, and the objects that its owner keeps."""

    proposer: Proposer
    noise: Noise
    lm_head: BorrowedHead
    markov: MarkovHead
    forward: GivenForward | BackboneForward
    device: torch.device

    @property
    def runner(self) -> Runner:
        """The runner, which every rig has."""
        assert self.proposer.runner is not None
        return self.proposer.runner

    @property
    def buffers(self) -> Buffers:
        """The static buffers, which every rig has."""
        assert self.proposer.buffers is not None
        return self.proposer.buffers

    @property
    def head(self) -> torch.Tensor:
        """The weight of the output head."""
        assert self.lm_head.weight is not None
        return self.lm_head.weight

    def batch(self, *rows: Row, seed: int = 7) -> Batch:
        """Random inputs for rows given as (temperature, top_k)."""
        drawn = torch.Generator().manual_seed(seed)
        layout = self.proposer.layout
        inner = (layout.shapes.query_rows, D) if layout.forward == "given" else (D,)
        temperature, top_k = (
            torch.tensor(column).to(self.device) for column in zip(*rows, strict=True)
        )
        return Batch(
            torch.randn((len(rows), *inner), generator=drawn).to(self.device, torch.bfloat16),
            torch.randint(V, (len(rows),), generator=drawn).to(self.device),
            admit(temperature, top_k),
        )

    def propose(self, *rows: Row, seed: int = 7) -> Proposal:
        """Draft one block for random inputs, folded if the gate lets it."""
        return self.proposer.propose(self.batch(*rows, seed=seed))


def rig(
    engine_name: str,
    dialect: str = "race",
    forward: str = "given",
    config: Config | None = None,
    *,
    from_anchor: bool = True,
) -> Rig:
    """Assemble a proposer over random weights, captured by the engine."""
    device = torch.device("cuda" if engine_name == "cuda" else "cpu")
    drawn = torch.Generator().manual_seed(3)

    def weight(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=drawn).to(device, torch.bfloat16)

    plan = Plan(K, V, BUCKETS, from_anchor, forward=forward, device=device)
    head, markov = weight(W, D), MarkovHead(weight(V, R), weight(V, R))
    lm_head = BorrowedHead(head)
    runs: GivenForward | BackboneForward = GivenForward(V)
    if forward == "backbone":
        shapes = layout_for(plan, head, markov, dialect).shapes
        runs = BackboneForward(Backbone(shapes, torch.bfloat16, device, drawn))
    config = replace(config or Config(), noise=dialect, engine=engine_name)
    proposer = assemble(plan, lm_head, markov, runs, config, SEED)
    noise = proposer.draft.noise
    assert noise is not None
    return Rig(proposer, noise, lm_head, markov, runs, device)


def same(one: Proposal, two: Proposal) -> None:
    """Two proposals hold the same bits."""
    for name in ("tokens", "step_logits", "temperature", "greedy", "flags", "hidden"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name
