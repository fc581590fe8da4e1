"""Drives a decoder and keeps what its verdicts need: a number a token instead of a law a token.

A decoder under test has three verbs. `describe()` gives its name. `submit(request)` queues a
mapping (prompt [n] int64, temperature, top_k, top_p, length, stop) and returns a number. `step()`
runs one step and returns None when nothing is left, else a mapping of

    request, past, anchor [B] int64    whose row, positions the target had read, first input
    tokens [B, K] int64, step_logits [B, K, V]     the drafts, and the logits they were drawn by
    target_logits [B, K + 1, V]        row t is the law after t drafts
    verify_len, correct_len, commit_len, kept [B] int64, out_tokens, coins [B, K + 1]
    ended [B] str                      '' while the request goes on
    folded, reason, bucket, accept_folded, accept_reason     how the block and the commit came about

A *place* is a row and a position of a block that the commit reached: up to the first rejected draft
or the token behind the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from ..reference import choice, filters
from .margin import UNIT

EVERY_ID = 2**30
# Of the sums of a float32 softmax, relative: pairwise over V terms.
SUMS = 2.0**-20
HOW = ("folded", "reason", "bucket", "accept_folded", "accept_reason")


class Decoder(Protocol):
    """What is put under test; the verbs are described at the head of this file."""

    def describe(self) -> Mapping[str, Any]: ...

    def submit(self, request: Mapping[str, Any]) -> int: ...

    def step(self) -> Mapping[str, Any] | None: ...


@dataclass(frozen=True)
class Asked:
    """Sampling parameters by request: temperature [N] clamped, greedy [N], top_k [N], top_p [N]."""

    temperature: Tensor
    greedy: Tensor
    top_k: Tensor
    top_p: Tensor

    @classmethod
    def of(cls, requests: Sequence[Mapping[str, Any]]) -> "Asked":
        """Read them from requests, as any sampler must admit them."""
        heat = torch.tensor([float(one.get("temperature", 0.0)) for one in requests])
        top_k = torch.tensor([int(one.get("top_k", EVERY_ID)) for one in requests])
        share = torch.tensor([float(one.get("top_p", 1.0)) for one in requests])
        return cls(choice.clamped(heat), choice.is_greedy(heat, top_k), top_k, share)

    def law(self, logits: Tensor, request: Tensor) -> Tensor:
        """The target law [P, V] float64 of logits [P, V] under the parameters of requests [P]."""
        heat, top_k = self.temperature[request].double(), self.top_k[request]
        share = self.top_p[request].double()
        plain = (top_k >= logits.shape[-1]) & (share >= 1)
        found = torch.softmax(logits.double() / heat[:, None], -1)
        cut = ~plain
        if bool(cut.any()):
            part = (logits[cut], heat[cut], top_k[cut], share[cut])
            found[cut] = filters.target_law(*part)
        return found


@dataclass
class Watched:
    """What a run left: texts by request, places in the order of time, and how each step came about.

    places  tensors [P] by name, joined: see `reached`
    """

    requests: Sequence[Mapping[str, Any]]
    texts: list[list[int]]
    places: dict[str, Tensor] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)


def spread_of(logits: Tensor, heat: Tensor) -> Tensor:
    """How far, relative, a float32 softmax of logits / T may lie from float64, [P]."""
    present = torch.where(logits.isfinite(), logits, 0.0).double()
    return UNIT * (3 * present.abs().amax(-1) / heat + 8) + SUMS


def reached(step: Mapping[str, Any], asked: Asked) -> dict[str, Tensor]:
    """Measure every place of a step.

    request, place, token, draft [P] int64: draft -1 behind the last. last [P] bool: the commit ends
    here. cut [P] bool: nothing behind it may be used. argmax [P] int64 of the target's row.
    For sampled rows, else 0, in float64: p_draft, q_draft, coin; p_token, q_token; overlap, the sum
    of min(p, q); low, high, the token's interval in the final draw's law, and uniform; loose, how
    far p and q may be off, relative; loose_draw, how far that moves the interval.
    """
    drafts = step["tokens"].shape[1]
    slot = torch.arange(drafts + 1)
    present = (slot <= step["correct_len"][:, None]) & (step["commit_len"][:, None] > 0)
    row, place = present.nonzero(as_tuple=True)
    request = step["request"][row]
    padded = torch.nn.functional.pad(step["tokens"], (0, 1), value=-1)
    logits = step["target_logits"][row, place]
    found = {
        "request": request,
        "place": place,
        "token": step["out_tokens"][row, place],
        "draft": padded[row, place],
        "last": place == step["correct_len"][row],
        "cut": place == step["verify_len"][row] - 1,
        "kept": place < step["kept"][row],
        "sampled": ~asked.greedy[request],
        "argmax": choice.winner(logits.double()),
    }
    sampled = found["sampled"]
    part = {name: value[sampled] for name, value in found.items()}
    measured = laws_of(step, asked, row[sampled], logits[sampled], part)
    for name, value in measured.items():
        found[name] = torch.zeros(len(row), dtype=torch.float64)
        found[name][sampled] = value
    return found


def laws_of(
    step: Mapping[str, Any],
    asked: Asked,
    row: Tensor,
    logits: Tensor,
    found: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """The float64 part of `reached`, for its sampled places."""
    drafts = step["tokens"].shape[1]
    heat = asked.temperature[found["request"]].double()
    p = asked.law(logits, found["request"])
    inside = found["draft"] >= 0
    own = step["step_logits"][row, found["place"].clamp(max=drafts - 1)]
    q = torch.softmax(own.double() / heat[:, None], -1) * inside[:, None]
    rest = (p - q).clamp(min=0)
    mass = rest.sum(-1)
    rest = torch.where(mass[:, None] > 0, rest, p)
    total = rest.sum(-1)
    high = rest.cumsum(-1).gather(1, found["token"][:, None])[:, 0] / total
    loose = spread_of(logits, heat) + spread_of(own, heat)

    def at(law: Tensor, ids: Tensor) -> Tensor:
        return law.gather(1, ids.clamp(min=0)[:, None])[:, 0]

    return {
        "p_draft": at(p, found["draft"]) * inside,
        "q_draft": at(q, found["draft"]) * inside,
        "coin": step["coins"][row, found["place"]].double(),
        "p_token": at(p, found["token"]),
        "q_token": at(q, found["token"]),
        "overlap": torch.minimum(p, q).sum(-1),
        "low": high - at(rest, found["token"]) / total,
        "high": high,
        "uniform": step["coins"][row, drafts].double(),
        "loose": loose,
        "loose_draw": 2 * loose / total,
    }


def on_cpu(step: Mapping[str, Any]) -> dict[str, Any]:
    """The step with every tensor on the CPU."""
    return {
        name: value.cpu() if isinstance(value, Tensor) else value for name, value in step.items()
    }


def unwatched(step: Mapping[str, Any], run: Watched) -> None:
    """Look at nothing."""
    del step, run


def watch(
    decoder: Decoder,
    requests: Sequence[Mapping[str, Any]],
    seen: Callable[[Mapping[str, Any], Watched], None] = unwatched,
) -> Watched:
    """Submit every request, step to the end, and keep what was measured.

    seen(step, run) is called after each step. RuntimeError: a decoder that numbers its requests
    otherwise than 0, 1, 2, or commits what it did not draft.
    """
    run = Watched(requests, [[] for _ in requests])
    numbers = [decoder.submit(request) for request in requests]
    if numbers != list(range(len(requests))):
        raise RuntimeError(f"submit numbered the requests {numbers}, required: 0, 1, 2, ...")
    asked = Asked.of(requests)
    parts: list[dict[str, Tensor]] = []
    while (given := decoder.step()) is not None:
        step = on_cpu(given)
        places = reached(step, asked)
        places["step"] = torch.full_like(places["request"], len(run.steps))
        parts.append(places)
        number = step["request"].tolist()
        for each, tokens, kept, ended in zip(
            number, step["out_tokens"].tolist(), step["kept"].tolist(), step["ended"], strict=True
        ):
            run.texts[each] += tokens[:kept]
            if ended:
                run.ended[each] = ended
        sampled = bool((~asked.greedy[step["request"]]).any())
        told = {name: step[name] for name in HOW}
        run.steps.append({**told, "rows": len(number), "sampled_rows": sampled})
        seen(step, run)
    run.places = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return run
