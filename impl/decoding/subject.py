"""The decoder behind the verbs of a judge: mappings in, mappings of tensors out.

To break it on purpose, replace a part or a stage; nothing in here is a hook for tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..assembly import Parts, assemble
from ..bias import MarkovHead
from ..config import Config
from ..graph import engine_for
from ..graph.engine import Engine
from ..logits import BorrowedHead
from ..plan import Plan
from ..stages import Stages
from .drafter import Drafter
from .loop import Decoder, Step
from .request import Request

WEIGHTS = ("project", "lift", "widen", "gain")


def factory(
    setting: Mapping[str, Any],
    *,
    stages: Callable[[Stages], Stages] = lambda chosen: chosen,
    parts: Parts = Parts(),  # noqa: B008  (frozen)
    decoder: type[Decoder] = Decoder,
) -> "Subject":
    """Build and capture a decoder for a setting.

    setting  `network` the target; `drafter` and `markov`, weights by name; `kind` of the Markov
             head; `buckets`, `engine` (emulator, cuda or eager), `rule`, `seed`

    NotImplementedError: an engine that is not here.
    """
    network, weights = setting["network"], setting["drafter"]
    head: Tensor = network.head
    drafter = Drafter(head, **{name: weights[name] for name in WEIGHTS})
    given = setting["markov"]
    markov = MarkovHead(given["w1"], given["w2"], setting["kind"], given.get("w3"), given.get("b3"))
    if setting["engine"] not in ("emulator", "cuda", "eager"):
        raise NotImplementedError(f"engine {setting['engine']!r}; there are emulator, cuda, eager")
    config = replace(Config.from_environment(), noise="counter", engine=setting["engine"])
    plan = Plan(
        drafter.drafts,
        head.shape[0],
        tuple(setting["buckets"]),
        forward="backbone",
        device=head.device,
    )

    def find_engine(device: torch.device, name: str) -> Engine | None:
        return None if name == "eager" else engine_for(device, name)

    proposer = assemble(
        plan,
        BorrowedHead(head),
        markov,
        drafter,
        config,
        setting["seed"],
        find_engine=find_engine,
        restage=stages,
        parts=parts,
    )
    return Subject(setting, decoder(proposer, network, setting["rule"]))


class Subject:
    """The verbs; what they mean is said where the judge defines them."""

    def __init__(self, setting: Mapping[str, Any], decoder: Decoder) -> None:
        self.setting = setting
        self.decoder = decoder

    def describe(self) -> dict[str, Any]:
        """Its name, and how the arrows were chosen."""
        chosen = self.decoder.proposer.stages.chosen
        return {"name": f"draftproof decoder {self.setting['engine']}", "stages": chosen}

    def submit(self, request: Mapping[str, Any]) -> int:
        """Queue a request by its fields; returns its number."""
        values = dict(request)
        for name in ("prompt", "stop"):
            values[name] = tuple(int(token) for token in values.get(name, ()))
        return self.decoder.submit(Request(**values))

    def step(self) -> dict[str, Any] | None:
        """Run one step; None when nothing is left to do."""
        step = self.decoder.step()
        return None if step is None else seen(step)


def seen(step: Step) -> dict[str, Any]:
    """A step as plain values and tensors, by name."""
    drafted, target, committed = step.proposal, step.target, step.committed
    return {
        "request": step.request,
        "past": step.past,
        "anchor": step.anchor,
        "tokens": drafted.tokens,
        "flags": drafted.flags,
        "step_logits": drafted.step_logits,
        "target_logits": target.logits,
        "verify_len": target.verify_len,
        **committed.tensors(),
        "kept": step.kept,
        "ended": list(step.ended),
        "bucket": drafted.bucket,
        "folded": drafted.folded,
        "reason": drafted.reason,
        "accept_folded": committed.folded,
        "accept_reason": committed.reason,
    }
