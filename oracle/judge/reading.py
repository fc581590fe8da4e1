"""The model's own reading of what was decoded: the exact law of every committed token.

A reader maps a whole text to the logits of its positions, without a cache and without the decoder.
For a greedy token it gives the gap to the best one and the window in which float32 cannot tell; for
a sampled one log p and the log ratios of known faults, which is what an e-value is made of.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .decoding import Asked, Watched
from .margin import UNIT

# How far the states of one text may differ between two float32 readings, relative to the terms of
# a logit: 2^-24 a rounding, some two hundred roundings deep.
STATES = 2.0**-16
TILTS = (0.01, 0.03, 0.1, 0.3, 1.0)
DRAFT_SHARES = (0.03, 0.3)
ROW_SHARE = 0.3
LEAK = 0.01

Reader = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Model:
    """What reads: states [n, D] of a text [n] int64, and the output head [V, D] float32."""

    states: Reader
    head: Tensor

    def logits(self, text: Tensor) -> tuple[Tensor, Tensor]:
        """States [n, D] and logits [n, V] of a text."""
        states = self.states(text)
        return states, states @ self.head.T


def names() -> tuple[str, ...]:
    """The known faults, in the order of the columns of `ratios`."""
    tilts = [
        f"T {100 * sign * tilt:+g} %" for tilt in TILTS for sign in (1, -1) if sign * tilt > -1
    ]
    drafts = [f"{100 * share:g} % of the draft's law" for share in DRAFT_SHARES]
    return (*tilts, "T ignored", "1 % uniform", "30 % of the row before", "bf16 logits", *drafts)


def heated(logits: Tensor, kept: Tensor, heat: Tensor | float) -> Tensor:
    """Log of softmax(logits / T) over the ids that are kept, -inf elsewhere: [n, V] float64."""
    return (logits / heat).masked_fill(~kept, -torch.inf).log_softmax(-1)


def ratios(
    logits: Tensor, before: Tensor, law: Tensor, heat: float, token: Tensor, claimed: Tensor
) -> Tensor:
    """Log ratios [n, members] of the tokens [n] under each known fault against the law.

    logits [n, V] float64 of the positions, before [n, V] those one position earlier, law [n, V] the
    true law; claimed [n]: the draft's probability of each token, NaN where nothing was drafted.
    """
    kept = law > 0

    def at(values: Tensor) -> Tensor:
        return values.gather(1, token[:, None])[:, 0]

    true = at(law).log()
    tilts = [sign * tilt for tilt in TILTS for sign in (1, -1) if sign * tilt > -1]
    found = [at(heated(logits, kept, heat * (1 + tilt))) - true for tilt in tilts]
    found.append(at(heated(logits, kept, 1.0)) - true)
    found.append(torch.log(1 - LEAK + LEAK / kept.sum(-1) / at(law)))
    earlier = at(heated(before, kept, heat)).exp()
    found.append(torch.log(1 - ROW_SHARE + ROW_SHARE * earlier / at(law)))
    found.append(at(heated(logits.bfloat16().double(), kept, heat)) - true)
    drafted = torch.where(claimed.isnan(), at(law), claimed) / at(law)
    found += [torch.log(1 - share + share * drafted) for share in DRAFT_SHARES]
    return torch.stack(found, 1)


def claims(run: Watched) -> list[Tensor]:
    """The draft's probability of each committed token, by request; NaN where none was drafted."""
    places = run.places
    value = torch.where(places["draft"] >= 0, places["q_token"], torch.nan)
    rows = [places["kept"] & (places["request"] == n) for n in range(len(run.texts))]
    return [value[row] for row in rows]


def read(run: Watched, model: Model, plain: Mapping[int, Sequence[int]]) -> list[dict[str, Any]]:
    """Read every text. plain: what plain decoding made of greedy requests, by number.

    Returns an event a request: prompt, tokens, sampled; gap, window, lead [n] of greedy tokens (the
    lead of the best over the second); log_p, variance [n], ratios [n, members] of sampled ones;
    plain, and at its first difference plain_gap and plain_window.
    """
    asked, claimed = Asked.of(run.requests), claims(run)
    found = []
    for number, (request, tokens) in enumerate(zip(run.requests, run.texts, strict=True)):
        prompt = torch.as_tensor(request["prompt"])
        event: dict[str, Any] = {
            "verb": "text",
            "request": number,
            "prompt": prompt,
            "tokens": torch.tensor(tokens, dtype=torch.int64),
            "sampled": not bool(asked.greedy[number]),
            "ended": run.ended.get(number, ""),
        }
        if tokens:
            text = torch.cat([prompt, event["tokens"]])
            states, logits = model.logits(text)
            own = slice(len(prompt) - 1, len(text) - 1)
            if event["sampled"]:
                event |= sampled(logits, own, asked, number, event["tokens"], claimed[number])
            else:
                event |= greedy(states[own], logits[own], model.head, event["tokens"])
                if number in plain:
                    told = list(plain[number])
                    event |= beside(states[own], logits[own], model.head, tokens, told)
        found.append(event)
    return found


def sampled(
    logits: Tensor, own: slice, asked: Asked, number: int, tokens: Tensor, claimed: Tensor
) -> dict[str, Tensor]:
    """log_p, variance and ratios of a sampled text; logits [all positions, V], own its part."""
    wide = logits.double()
    whose = torch.full_like(tokens, number)
    law = asked.law(logits[own], whose)
    log_law = torch.where(law > 0, law, 1.0).log()
    mean = (law * log_law).sum(-1)
    before = wide[own.start - 1 : own.stop - 1]
    heat = float(asked.temperature[number])
    return {
        "log_p": law.gather(1, tokens[:, None])[:, 0].log(),
        "variance": (law * log_law**2).sum(-1) - mean**2,
        "ratios": ratios(wide[own], before, law, heat, tokens, claimed),
    }


def window(states: Tensor, head: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """How close two logits must be for float32 to swap them, [n]: states [n, D], ids [n].

    Each logit is a sum of D products; Higham's bound on its rounding, and STATES for the states.
    """
    width = head.shape[1]
    growth = width * UNIT / (1 - width * UNIT) + STATES
    terms = head[one].double().abs() + head[other].double().abs()
    return 2 * growth * (states.double().abs() * terms).sum(-1)


def greedy(states: Tensor, logits: Tensor, head: Tensor, tokens: Tensor) -> dict[str, Tensor]:
    """gap, window and lead of a greedy text."""
    best = logits.topk(2, -1)
    top = best.indices[:, 0]
    gap = best.values[:, 0] - logits.gather(1, tokens[:, None])[:, 0]
    return {
        "gap": gap.double(),
        "window": window(states, head, top, tokens),
        "lead": (best.values[:, 0] - best.values[:, 1]).double(),
    }


def beside(
    states: Tensor, logits: Tensor, head: Tensor, tokens: list[int], plain: list[int]
) -> dict[str, Any]:
    """The text of plain decoding, and how close the call was where it first differs."""
    event: dict[str, Any] = {"plain": torch.tensor(plain, dtype=torch.int64)}
    pairs = zip(tokens, plain, strict=False)
    differs = [place for place, (one, other) in enumerate(pairs) if one != other]
    if differs:
        place = differs[0]
        ids = [torch.tensor([text[place]]) for text in (tokens, plain)]
        event["plain_gap"] = float((logits[place, ids[0]] - logits[place, ids[1]]).abs())
        event["plain_window"] = float(window(states[place : place + 1], head, *ids))
    return event
