"""What was stale, and for how long: the earlier value that explains what was observed.

Every block has its own inputs, weights and noise, and the judge keeps them all. Where a block
contradicts what it was given, the reference is asked again with the value of one earlier block in
the place of the present one. The value under which it agrees with every row is the one that was
used, and the distance of the two blocks is its age. What was read is tried in the same way: tokens,
kept logits or confidence that are right for an earlier block were written by that block.

Limits. The reference has no draft model: where the subject runs its own, only what follows its
hidden states is explained. One field, or one group of GROUPS, is late at a time. An age is found
only up to where the history begins, or DEPTH blocks back; before that there is only the neutral
value that a buffer starts with. Two blocks with equal values of a field cannot be told apart: the
younger is named. Without known noise, sampled rows speak only where they are cold or hot, so a
hypothesis about them is as sharp as the pattern of their temperatures. Without noise and without
buffers, a stale input and a stale result that mean the same tokens are both named.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from ..reference import choice, confidence, draft
from . import margin
from .coupling import couple, kept_mismatches
from .protocol import NEUTRAL, Tensors
from .significance import all_equal
from .timeline import Moment
from .walk import Walk, as_numpy, walk

DEPTH = 12
WEIGHTS = ("head", "w1", "w2", "w3", "b3")
LOADED = ("hidden", "anchor", "temperature", "top_k")
# What is staged together may be late together.
GROUPS: tuple[tuple[str, ...], ...] = (
    *((name,) for name in (*LOADED, "noise", *WEIGHTS)),
    ("temperature", "top_k"),
    ("hidden", "anchor"),
    LOADED,
    WEIGHTS,
)
NEVER = 0
COLD, HOT = 1.1e-5, 50.0
# Two float32 products of up to 1,000 terms near 1, and one exponential.
RATED = 1e-4


@dataclass(frozen=True)
class Stale:
    """What explains a block: field -> age in blocks, NEVER for the value before the first load.

    read: the fields are of what was read, not of what was given. either: another reading of the
    same tokens, which nothing that was seen rules out.
    """

    ages: Mapping[str, int]
    read: bool = False
    either: Mapping[str, int] = field(default_factory=dict)

    @property
    def kind(self) -> tuple[bool, tuple[str, ...]]:
        """What is stale, whatever its age."""
        return self.read, tuple(self.ages)


def behind(walked: Walk, tokens: torch.Tensor) -> np.ndarray:
    """How far each token's logit lies behind the largest, beyond what rounding explains."""
    picked = tokens.numpy()[..., None]
    top = walked.logits.max(-1)
    at_token = np.take_along_axis(walked.logits, picked, -1)[..., 0]
    return np.asarray(top - at_token - 2 * walked.bound.max(-1))


def chance_of_argmax(walked: Walk, rows: np.ndarray | slice = slice(None)) -> float:
    """Probability that sampled rows draw the argmax at every position."""
    heat = walked.temperature.numpy()[rows, None, None]
    logits = walked.logits[rows]
    scaled = (logits - logits.max(-1, keepdims=True)) / heat
    return all_equal(1.0 / np.exp(scaled).sum(-1).ravel())


def contradicted(moment: Moment, tokens: Tensors, arithmetic: margin.Arithmetic) -> float | None:
    """Whether outputs contradict a block: None, or the probability that a correct one does so.

    tokens: the outputs to judge, 'tokens' and maybe 'step_logits', 'hidden'. Without noise, cold
    rows have to draw the argmax, and hot ones all but never draw it everywhere.
    """
    known = moment.noise
    if couple(moment.setting, moment.inputs, tokens, known, arithmetic).illegal:
        return 0.0
    if known is not None:
        return None
    walked = walk(moment.setting, moment.inputs, tokens)
    heat, sampled = walked.temperature.numpy(), ~walked.greedy.numpy()
    top = (behind(walked, tokens["tokens"]) <= 0).all(-1)
    if bool((sampled & (heat <= COLD) & ~top).any()):
        return 0.0
    hot = np.flatnonzero(sampled & (heat >= HOT) & top)
    return chance_of_argmax(walked, hot) if len(hot) else None


def shown(outputs: Tensors, *names: str) -> dict[str, torch.Tensor]:
    """The named outputs, as far as they are there."""
    return {name: outputs[name] for name in ("tokens", "hidden", *names) if name in outputs}


def rated_wrong(moment: Moment, outputs: Tensors, tokens: torch.Tensor) -> bool:
    """Whether confidence is not that of a block that drafted these tokens."""
    setting = moment.setting
    if "confidence" not in outputs or "hidden" not in moment.inputs:
        return False
    hidden = moment.inputs["hidden"][:, -setting["drafts"] :]
    before = draft.tokens_before(moment.inputs["anchor"], tokens)
    weight = setting["confidence_weight"]
    w1 = setting["w1"] if weight.shape[1] > hidden.shape[-1] else None
    raw = confidence.raw_confidence(hidden, before, w1, weight, setting["confidence_bias"])
    wanted = as_numpy(confidence.confidence(raw, setting["confidence_sts"]))
    apart = abs(as_numpy(outputs["confidence"]) - wanted)
    return bool((apart > RATED * (1 + abs(wanted))).any())


def exported_wrong(moment: Moment, outputs: Tensors, name: str) -> bool:
    """Whether an exported 'temperature' or 'greedy' is not what the block was given."""
    if name not in outputs:
        return False
    inputs = moment.inputs
    greedy = choice.is_greedy(inputs["temperature"], inputs["top_k"])
    if name == "greedy":
        return not torch.equal(outputs["greedy"], greedy)
    heat = choice.clamped(inputs["temperature"]).to(torch.float32)
    return not torch.equal(outputs["temperature"][~greedy], heat[~greedy])


def kept_wrong(moment: Moment, outputs: Tensors, tokens: torch.Tensor) -> bool:
    """Whether kept logits are not those of a block that drafted these tokens."""
    if "step_logits" not in outputs:
        return False
    walked = walk(moment.setting, moment.inputs, {**outputs, "tokens": tokens})
    return bool(kept_mismatches(as_numpy(outputs["step_logits"]), walked)[0].any())


def wrong_fields(moment: Moment, outputs: Tensors, tokens: torch.Tensor) -> list[str]:
    """The outputs beside tokens that are not of a block that drafted these tokens."""
    found = [n for n in ("temperature", "greedy") if exported_wrong(moment, outputs, n)]
    if kept_wrong(moment, outputs, tokens):
        found.append("step_logits")
    return [*found, "confidence"] if rated_wrong(moment, outputs, tokens) else found


def differing(now: Moment, old: Moment, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The values of these names that an earlier block had and this one has not."""
    found = {}
    for name in names:
        present, past = now.given(name), old.given(name)
        if present is None or past is None:
            continue
        past = past if name in WEIGHTS else past[: now.rows]
        if past.shape == present.shape and not torch.equal(past, present):
            found[name] = past
    return found


def neutral(now: Moment, names: Sequence[str]) -> dict[str, torch.Tensor]:
    """The values of these names in buffers that nothing was ever loaded into."""
    starts = {**NEUTRAL, "top_k": 1}
    return {
        name: torch.full_like(now.inputs[name], starts[name])
        for name in names
        if name in starts and name in now.inputs
    }


def hypotheses(
    now: Moment, earlier: Sequence[Moment], hint: Stale | None
) -> Iterator[dict[str, torch.Tensor]]:
    """Values that a block may have used in the place of its own, the likely ones first.

    hint: what explained a block before; the same fields at its age, or at one more, are likely.
    """
    back = list(reversed(earlier[-DEPTH:]))
    if hint is not None and not hint.read:
        names, age = tuple(hint.ages), max(hint.ages.values())
        likely = [differing(now, old, names) for old in back[max(age - 1, 0) : age + 1]]
        yield from (found for found in likely if len(found) == len(names))
        if age == NEVER and now.noise is not None and (found := neutral(now, names)):
            yield found
    for names in GROUPS:
        for old in back:
            found = differing(now, old, names)
            if found and (len(names) == 1 or len(found) > 1):
                yield found
    if now.noise is None:
        return
    for names in GROUPS:
        found = neutral(now, names)
        if found and (len(names) == 1 or len(found) > 1):
            yield found


def age_of(now: Moment, earlier: Sequence[Moment], name: str, value: torch.Tensor) -> int:
    """How many blocks ago a value of a field was last given; NEVER when it was not."""
    for age, old in enumerate(reversed(earlier), start=1):
        past = old.given(name)
        if past is None:
            continue
        past = past if name in WEIGHTS else past[: now.rows]
        if torch.equal(past, value):
            return age
    return NEVER


def stale_given(
    now: Moment,
    earlier: Sequence[Moment],
    arithmetic: margin.Arithmetic,
    hint: Stale | None,
) -> dict[str, int]:
    """Inputs, weights or noise of earlier blocks that explain this one, with their ages."""
    outputs = shown(now.outputs, "step_logits")
    for values in hypotheses(now, earlier, hint):
        if contradicted(now.without(values), outputs, arithmetic) is None:
            return {name: age_of(now, earlier, name, value) for name, value in values.items()}
    return {}


def stale_read(
    now: Moment, earlier: Sequence[Moment], arithmetic: margin.Arithmetic
) -> dict[str, int]:
    """Outputs that earlier blocks wrote and this one should have, with their ages."""
    tokens, ages = now.outputs["tokens"], dict[str, int]()
    late = contradicted(now, shown(now.outputs), arithmetic) is not None
    wrong = [] if late else wrong_fields(now, now.outputs, tokens)
    for age, old in enumerate(reversed(earlier[-DEPTH:]), start=1):
        if not old.outputs or old.rows != now.rows:
            continue
        if late and contradicted(old, shown(now.outputs), arithmetic) is None:
            off = wrong_fields(old, now.outputs, tokens)
            told = wrong_fields(now, now.outputs, tokens)
            return {name: age for name in ("tokens", *told) if name not in off}
        off = wrong_fields(old, now.outputs, old.outputs["tokens"])
        ages.update({name: age for name in wrong if name not in off and name not in ages})
    return ages


def same_draws(now: Moment, earlier: Sequence[Moment]) -> tuple[int, float]:
    """How old the noise is when a block repeats one of the same inputs, and the chance of that."""
    for age, old in enumerate(reversed(earlier[-DEPTH:]), start=1):
        same = old.inputs is now.inputs and old.setting is now.setting and old.outputs
        if same and torch.equal(old.outputs["tokens"], now.outputs["tokens"]):
            walked = walk(now.setting, now.inputs, now.outputs)
            heat = walked.temperature.numpy()[:, None, None]
            law = np.exp((walked.logits - walked.logits.max(-1, keepdims=True)) / heat)
            law /= law.sum(-1, keepdims=True)
            return age, all_equal(law.max(-1)[~walked.greedy.numpy()].ravel())
    return 0, 1.0


def stale(
    now: Moment,
    earlier: Sequence[Moment],
    arithmetic: margin.Arithmetic,
    limit: float,
    hint: Stale | None = None,
) -> tuple[bool, Stale | None]:
    """Whether a block contradicts what it was given, and what of an earlier block explains it.

    limit: a contradiction that a correct sampler shows with more than this probability is none.
    hint: what explained another block of this run.
    """
    outputs = now.outputs
    chance = contradicted(now, shown(outputs, "step_logits"), arithmetic)
    apart = wrong_fields(now, outputs, outputs["tokens"])
    if (chance is None or chance > limit) and not apart:
        age, luck = same_draws(now, earlier) if now.noise is None else (0, 1.0)
        return (True, Stale({"noise": age})) if luck <= limit else (False, None)
    read = stale_read(now, earlier, arithmetic) if hint is not None and hint.read else {}
    if read:
        return True, Stale(read, read=True)
    given = stale_given(now, earlier, arithmetic, hint) if chance is not None else {}
    if given and now.noise is not None:
        return True, Stale(given)
    read = stale_read(now, earlier, arithmetic)
    if given:
        return True, Stale(given, either=read)
    return True, Stale(read, read=True) if read else None
