"""Our sampler behind the verbs of a judge: mappings of tensors in, mappings of tensors out.

A setting that cannot be served raises NotImplementedError with the reason. To break the sampler on
purpose, replace its stages, a part, or the engine; nothing in here is a hook for tests.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from . import gate
from .assembly import Parts, assemble
from .backbone import Backbone
from .buffers import Buffers
from .facts import build_decision
from .gate import AcceptFacts, BuildFacts, Decision, StepFacts
from .graph import engine_for
from .graph.engine import BLIND, Engine
from .noise import CounterNoise, RaceNoise
from .plan import Refusal
from .proposal import Batch, Proposal
from .proposer import Proposer
from .sampler import RATED, DraftSampler, admit, layout_for
from .setting import config_of, group_of, head_of, markov_of, plan_of, refuse_unserved
from .stages import Stages
from .tally import Tally
from .target import Target

BACKBONE_SEED = 0


class GivenForward:
    """Hidden states are an input: the forward returns the static buffer."""

    def __init__(self, mask_token: int) -> None:
        self.mask_token = mask_token

    def weights(self) -> Mapping[str, Tensor]:
        """No weights."""
        return {}

    def __call__(self, buffers: Buffers, rows: int) -> Tensor:
        """Return the hidden states that were loaded, [rows * Q, D]."""
        return buffers["hidden"][:rows].flatten(0, 1)


class BackboneForward:
    """The small draft model over the target features that were loaded."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone = backbone
        self.mask_token = backbone.mask_token

    def weights(self) -> Mapping[str, Tensor]:
        """The weights of the model."""
        return self.backbone.weights()

    def __call__(self, buffers: Buffers, rows: int) -> Tensor:
        """Run the model, keep its hidden states in their buffer, and return them."""
        hidden = self.backbone.forward(buffers["context"][:rows], buffers["input_ids"][:rows])
        kept = buffers["hidden"][:rows].flatten(0, 1)
        return kept.copy_(hidden)


def factory(
    setting: Mapping[str, Any],
    *,
    stages: Callable[[Stages], Stages] = lambda chosen: chosen,
    parts: Parts = Parts(),  # noqa: B008  (frozen)
    engine: Engine | None = None,
) -> "Subject":
    """Build a subject for a setting.

    stages  maps the chosen stages to those to use, folded and eager
    parts   types of sampler, runner and proposer
    engine  takes the place of the engine that the setting names

    NotImplementedError: a setting that cannot be served, with the reason.
    """
    refuse_unserved(setting)
    eager = setting["engine"] == "eager"
    config, plan = config_of(setting), plan_of(setting)
    head, markov = head_of(setting), markov_of(setting)
    forward: GivenForward | BackboneForward = GivenForward(plan.vocabulary)
    if plan.forward == "backbone":
        shapes = layout_for(plan, setting["head"], markov, config.noise).shapes
        drawn = torch.Generator().manual_seed(BACKBONE_SEED)
        forward = BackboneForward(Backbone(shapes, setting["head"].dtype, plan.device, drawn))

    def find_engine(device: torch.device, name: str) -> Engine | None:
        return None if eager else engine or engine_for(device, name)

    proposer = assemble(
        plan,
        head,
        markov,
        forward,
        config,
        setting["seed"],
        find_engine=find_engine,
        restage=stages,
        parts=parts,
    )
    return Subject(setting, proposer)


class Subject:
    """The verbs; what they mean is said where the judge defines them.

    setting   as given to the factory
    proposer  assembled and captured
    """

    def __init__(self, setting: Mapping[str, Any], proposer: Proposer) -> None:
        self.setting = setting
        self.proposer = proposer
        self.noise = proposer.draft.noise
        self.tallies: dict[int, Tally] = {}
        self.loaded = (0, Decision("eager", "nothing is loaded"))

    def describe(self) -> dict[str, Any]:
        """Name, abilities, what the engine cannot show, and the arithmetic if it is not torch's."""
        names = [self.setting[key] for key in ("family", "dialect", "engine")]
        found: dict[str, Any] = {"name": "draftproof " + " ".join(names)}
        if self.proposer.stages.chain is not None:
            found["stages"] = "triton-cuda"
        blind = BLIND.get(self.setting["engine"], ())
        return {**found, "abilities": tuple(self._abilities()), "blind": blind}

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Admit and load a batch."""
        batch = self._batch(inputs)
        self.loaded = (len(batch.anchor), self.proposer.load(batch))

    def replay(self) -> None:
        """Run one block."""
        self.proposer.run()

    def read(self) -> dict[str, Tensor]:
        """Copies of the results of the last block."""
        return self._outputs(self.proposer.read())

    def counts(self, replays: int) -> dict[str, Tensor]:
        """Replay what is loaded so many times and count pairs of tokens where they lie.

        ValueError: less than one replay. RuntimeError: what is loaded is not replayed.
        """
        if replays < 1:
            raise ValueError(f"{replays} replays were asked for; there should be 1 or more")
        rows, decision = self.loaded
        tail, runner = self.proposer.tail, self.proposer.runner
        engine = None if runner is None else runner.engine
        if decision.fold == "eager" or not isinstance(tail, DraftSampler) or engine is None:
            raise RuntimeError(f"the block is eager ({decision.reason}); only replays are counted")
        if rows not in self.tallies:
            self.tallies[rows] = Tally(engine, tail.buffers, rows)
        return self.tallies[rows].run(self.proposer.run, replays)

    def eager(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The same block outside the recording, from the same noise state."""
        return self._outputs(self.proposer.eager(self._batch(inputs)))

    def path(self) -> dict[str, Any]:
        """How the last block was drafted, and what the recordings have done so far."""
        return self.proposer.path()

    def buffers(self) -> dict[str, dict[str, Any]]:
        """Every static buffer of the folded tail."""
        held = self.proposer.buffers
        fields = ("tensor", "role", "pad", "rows")
        return {
            buffer.name: {field: getattr(buffer, field) for field in fields}
            for buffer in (() if held is None else held.all)
        }

    def reweight(self, weights: Mapping[str, Tensor]) -> None:
        """Write values into the weights where they lie. ValueError: another shape or dtype."""
        for name, values in weights.items():
            held = self.setting[name]
            if (held.shape, held.dtype) != (values.shape, values.dtype):
                raise ValueError(
                    f"{name} is {values.dtype} {tuple(values.shape)}; "
                    f"it should be {held.dtype} {tuple(held.shape)}"
                )
            held.copy_(values)

    def noise_state(self) -> dict[str, Any]:
        """The state that the next block draws from; reads the device."""
        if isinstance(self.noise, CounterNoise):
            low, high = self.noise.seed_key.tolist()
            return {
                "dialect": "counter",
                "seed_key": low | high << 32,
                "block": int(self.noise.block),
            }
        if isinstance(self.noise, RaceNoise):
            return {"dialect": "race", "generator": self.noise.generator.get_state()}
        raise NotImplementedError("dflash draws no noise")

    def reseed(self, seed: int) -> None:
        """Start the noise of another seed, at block 0."""
        if self.noise is None:
            raise NotImplementedError("dflash draws no noise")
        self.noise.reseed(seed)

    def gate(self, facts: Mapping[str, Any]) -> dict[str, str]:
        """Answer one table: `table` is build, step or accept, the rest are its facts by name.

        A build is answered from real objects that are made to fit the facts.
        """
        values = dict(facts)
        table = values.pop("table")
        if table == "step":
            decision = gate.step(StepFacts(**values))
        elif table == "accept":
            decision = gate.accept(AcceptFacts(**values))
        elif table == "build":
            decision = build_decision(BuildFacts(**values), group_of(self.setting))
        else:
            raise ValueError(f"the table is {table!r}; it should be build, step or accept")
        return {"fold": decision.fold, "reason": decision.reason}

    def accept(self, target: Mapping[str, Any]) -> dict[str, Tensor]:
        """Commit what the target accepts of the block just run; refuses by name."""
        return self.proposer.accept(Target.from_mapping(target)).tensors()

    def _abilities(self) -> Iterator[str]:
        yield from ("FLAGS", "FORWARD", "EAGER", "WEIGHTS", "GATES", "ACCEPTS", "CONFIDENCE")
        tail = self.proposer.tail
        if self.noise is not None:
            yield "HEADS"
        if self.setting["dialect"] != "race":
            yield "RANKS"
        # A greedy draft draws nothing, and its rows have one-hot laws that need no logits.
        if self.noise is not None and not self.proposer.draft.greedy_draft:
            yield from ("DRAWS", "NOISE")
            # A greedy-only tail keeps no step logits, so its folded blocks claim nothing.
            if isinstance(tail, Refusal) or tail.decision.fold == "sampled":
                yield "CLAIMS"
            if isinstance(tail, DraftSampler):
                yield "COUNTS"
        if self.setting["engine"] != "eager":
            yield "REPLAYS"
        if isinstance(tail, DraftSampler):
            yield "BUFFERS"

    def _batch(self, inputs: Mapping[str, Tensor]) -> Batch:
        source = "hidden" if self.setting["forward"] == "given" else "context"
        anchor, wide = inputs["anchor"], self.setting["vocabulary"]
        outside = (anchor < 0) | (anchor >= wide)
        if bool(outside.any()):
            row = int(outside.nonzero()[0])
            raise ValueError(
                f"row {row} has anchor {int(anchor[row])}; it should be in [0, {wide})"
            )
        return Batch(inputs[source], anchor, admit(inputs["temperature"], inputs["top_k"]))

    def _outputs(self, proposal: Proposal) -> dict[str, Tensor]:
        names = ["tokens", "flags", *RATED]
        if not proposal.greedy_draft:
            names += ["step_logits", "temperature", "greedy"]
        if self.setting["forward"] == "backbone":
            names.append("hidden")
        found = {name: getattr(proposal, name) for name in names}
        return {name: value for name, value in found.items() if value is not None}
