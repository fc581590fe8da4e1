"""The reference walks the block that was observed, on the noise that was used.

Every step is fed with the subject's own previous token, so one error does not cascade. Where the
subject kept its step logits, tokens are judged by what it kept, and what it kept by the reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..reference import choice, noise
from . import margin
from .protocol import Setting, Tensors
from .redraw import declared_noise, drawable, rows_drawn
from .walk import Booleans, Floats, Walk, as_numpy, walk

# Dialects of counted noise by the name that a noise state gives: the uniform of a word.
COUNTED = {"counter": noise.uniform, "counter-unbounded": noise.unbounded_uniform}


@dataclass(frozen=True)
class Mismatch:
    """One position where the subject and the reference differ by more than rounding explains."""

    what: str
    row: int
    step: int
    observed: float
    required: float
    gap: float
    window: float

    def sentence(self) -> str:
        """Observed and required, where, and by how much."""
        text = f"{self.what} of row {self.row}, step {self.step}: observed {self.observed:.9g}"
        text += f", required {self.required:.9g}"
        if self.what == "token" and np.isfinite(self.gap):
            text += f"; its key is {self.gap:.3g} behind, rounding explains {self.window:.3g}"
        return text


@dataclass(frozen=True)
class Coupled:
    """The comparison of one block.

    mismatches: at most a few, worst first. illegal: how many there are. sampled, greedy: tokens
    judged. gaps: distance of the two best keys of each sampled token; windows: the bound on it;
    laws: the law of each sampled token [n, V].
    """

    mismatches: tuple[Mismatch, ...]
    illegal: int
    sampled: int
    greedy: int
    gaps: Floats
    windows: Floats
    laws: Floats


def block_noise(setting: Setting, event: Mapping[str, Any]) -> torch.Tensor | None:
    """E [B, K, V] of the block an event ran, or None when the subject does not show its noise."""
    state = event["before"]["noise"]
    if law := COUNTED.get(state.get("dialect", "")):
        return noise.counter_noise(
            event["rows"],
            setting["drafts"],
            setting["vocabulary"],
            state["block"],
            state["seed_key"],
            law=law,
        )
    if "redrawn" in event:
        redrawn: torch.Tensor = event["redrawn"]
        return redrawn.to(torch.float64)
    if state.get("dialect") == "race" and drawable(setting["device"]):
        rows = rows_drawn(event["after"]["path"], event["rows"], setting["buckets"])
        drawn = (state["generator"], event["after"]["noise"]["generator"])
        return declared_noise(*drawn, setting, rows)[0][: event["rows"]].double()
    return None


def counter_of(event: Mapping[str, Any]) -> str:
    """Where the noise of an event's block stood, as a phrase for a report; '' when not shown."""
    block = event["before"]["noise"].get("block")
    return "" if block is None else f", block counter {block}"


def kept_mismatches(kept: Floats, walked: Walk) -> tuple[Booleans, list[Mismatch]]:
    """Where kept step logits differ from the reference by more than P1 and P2 allow."""
    with np.errstate(invalid="ignore"):
        apart = np.abs(kept - walked.logits)
    same = (kept == walked.logits) | (np.isnan(kept) & np.isnan(walked.logits))
    wrong = ~same & ~(apart <= walked.bound)
    found = []
    for row, step, token in np.argwhere(wrong)[:3]:
        place = (row, step, token)
        found.append(
            Mismatch(
                f"kept step logit {token}",
                int(row),
                int(step),
                float(kept[place]),
                float(walked.logits[place]),
                float(apart[place]),
                float(walked.bound[place]),
            )
        )
    return wrong, found


def couple(
    setting: Setting,
    inputs: Tensors,
    outputs: Tensors,
    e: torch.Tensor | None,
    arithmetic: margin.Arithmetic,
) -> Coupled:
    """Compare every token of a block with the reference; sampled tokens only when E is known."""
    walked = walk(setting, inputs, outputs)
    decided_by, bound = walked.logits, walked.bound
    mismatches: list[Mismatch] = []
    illegal = 0
    if "step_logits" in outputs:
        kept = as_numpy(outputs["step_logits"])
        wrong, mismatches = kept_mismatches(kept, walked)
        illegal = int(wrong.sum())
        decided_by, bound = kept, np.zeros_like(walked.bound)
    tokens = outputs["tokens"].numpy()
    top = np.where(np.isnan(decided_by), np.inf, decided_by).max(-1)
    is_greedy = walked.greedy.numpy()[:, None] | ~np.isfinite(top)
    found, bad = compare_greedy(decided_by, bound, tokens, is_greedy)
    mismatches += found
    illegal += bad
    if e is None or bool(is_greedy.all()):
        empty = np.zeros(0)
        greedy_count = int(is_greedy.sum())
        law_shape = np.zeros((0, setting["vocabulary"]))
        return Coupled(tuple(mismatches), illegal, 0, greedy_count, empty, empty, law_shape)
    sampled = ~is_greedy
    heat = np.broadcast_to(walked.temperature.numpy()[:, None], tokens.shape)[sampled][:, None]
    race = Race(
        scaled=picked(decided_by, sampled) / heat,
        inherited=picked(bound, sampled) / heat,
        log_noise=np.log(picked(as_numpy(e), sampled)),
        tokens=tokens[sampled],
        places=np.argwhere(sampled),
    )
    found, bad, gaps, windows, laws = compare_sampled(race, setting["dialect"], arithmetic)
    mismatches += found
    return Coupled(
        tuple(mismatches),
        illegal + bad,
        int(sampled.sum()),
        int(is_greedy.sum()),
        gaps,
        windows,
        laws,
    )


def picked(values: Floats, positions: Booleans) -> Floats:
    """The positions of a block [B, K, V], flattened to [n, V]; without a copy when it is all."""
    return values.reshape(-1, values.shape[-1]) if positions.all() else values[positions]


@dataclass(frozen=True)
class Race:
    """The sampled positions of a block, flattened: all arrays lead with n positions."""

    scaled: Floats
    inherited: Floats
    log_noise: Floats
    tokens: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]


def compare_greedy(
    values: Floats, bound: Floats, tokens: npt.NDArray[np.int64], chosen: Booleans
) -> tuple[list[Mismatch], int]:
    """Greedy positions: the lowest id of the largest logit, or one within the bounds of it."""
    if not chosen.any():
        return [], 0
    best = choice.winner(torch.from_numpy(values)).numpy()
    at_best = np.take_along_axis(values, best[..., None], -1)[..., 0]
    at_token = np.take_along_axis(values, tokens[..., None], -1)[..., 0]
    window = (
        np.take_along_axis(bound, best[..., None], -1)
        + np.take_along_axis(bound, tokens[..., None], -1)
    )[..., 0]
    with np.errstate(invalid="ignore"):
        gap = at_best - at_token
    legal = (tokens == best) | ((window > 0) & (gap <= window))
    wrong = chosen & ~legal
    found = [
        Mismatch(
            "token",
            int(row),
            int(step),
            int(tokens[row, step]),
            int(best[row, step]),
            float(gap[row, step]),
            float(window[row, step]),
        )
        for row, step in np.argwhere(wrong)[:3]
    ]
    return found, int(wrong.sum())


def bounds_at(
    race: Race, columns: npt.NDArray[np.int64], dialect: str, arithmetic: margin.Arithmetic
) -> tuple[Floats, Floats]:
    """How far the keys of columns [n, m] may lie below and above the exact ones; 0 at -inf.

    A key is -inf by its logit, or by noise without a bound.
    """
    scaled = np.take_along_axis(race.scaled, columns, -1)
    log_noise = np.take_along_axis(race.log_noise, columns, -1)
    inherited = np.take_along_axis(race.inherited, columns, -1)
    with np.errstate(invalid="ignore"):
        down, up = margin.key_bounds(scaled, log_noise, dialect, arithmetic, race.scaled)
    possible = np.isfinite(scaled) & np.isfinite(log_noise)
    return np.where(possible, inherited + down, 0.0), np.where(possible, inherited + up, 0.0)


def compare_sampled(
    race: Race, dialect: str, arithmetic: margin.Arithmetic
) -> tuple[list[Mismatch], int, Floats, Floats, Floats]:
    """Sampled positions: the winner of this race, or a token whose key rounding may lift to it."""
    # Where no key is finite, differences are no numbers, and decide nothing.
    with np.errstate(invalid="ignore"):
        keys = race.scaled - race.log_noise
        best = choice.winner(torch.from_numpy(keys)).numpy()
        every = np.arange(len(best))
        best_keys = keys[every, best]
        gap = best_keys - keys[every, race.tokens]
        keys[every, best] = -np.inf
        second = keys.argmax(-1)
        lead = best_keys - keys[every, second]
    down, up = bounds_at(race, np.stack([best, race.tokens, second], 1), dialect, arithmetic)
    window = down[:, 0] + up[:, 1]
    wrong = (race.tokens != best) & ~(gap <= window)
    found = [
        Mismatch(
            "token",
            int(race.places[i, 0]),
            int(race.places[i, 1]),
            int(race.tokens[i]),
            int(best[i]),
            float(gap[i]),
            float(window[i]),
        )
        for i in np.flatnonzero(wrong)[:3]
    ]
    lead_window = down[:, 0] + up[:, 2]
    heat = race.scaled - race.scaled.max(-1, keepdims=True)
    laws = np.exp(heat)
    laws /= laws.sum(-1, keepdims=True)
    return found, int(wrong.sum()), lead, lead_window, laws
