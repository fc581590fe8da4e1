"""Drawn tokens given all that came before them, over a vocabulary that is too large to count.

The law of every draw comes from the reference, walked along the subject's own previous tokens. No
two contexts need be equal: likelihood ratios add up over draws, and the transform of a token is
uniform and independent of the others whatever its law was.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch

from ..reference import choice, draft, logits
from .bank import LEAK, mean_log, rejects
from .binding import bound_head
from .chain import BIAS_SCALES
from .protocol import Setting, Tensors
from .scan import Finding, scan
from .significance import MISS, Counts, Fit, Floats, equal_counts, noncentrality
from .transform import transformed

ORDERS = ("probability", "id")
TILTS = (0.03, -0.03, 0.1, -0.1)
TURNS = (1, -1)
SHARES = (0.01, 0.1)
BINS, FINE, SIDE = 64, 4096, 8
# Two tables for each order: bins and consecutive steps. Fine bins are scanned in each order.
FITS, SCANS = 2 * len(ORDERS), len(ORDERS)
# Of one table of laws in memory: rows are taken a few at a time.
CELLS = 2**20
MEMBERS = (
    *(f"T {100 * tilt:+g} %" for tilt in TILTS),
    f"{100 * LEAK:g} % uniform",
    *(f"bias x {scale:g}" for scale in BIAS_SCALES),
    "previous token of step k - 2",
    *(
        f"previous token of row {turn:+d} in {100 * share:g} % of draws"
        for turn in TURNS
        for share in SHARES
    ),
)


@dataclass(frozen=True)
class Along:
    """What was learned along the drawn tokens.

    values [MEMBERS] log e-values. spread: variance of l / T under the law, added up over draws.
    u: the transform by order, [replays, B, K] each.
    """

    values: Floats
    spread: float
    u: Mapping[str, Floats]

    @property
    def bins(self) -> dict[str, Counts]:
        """Draws by FINE bins, and pairs of consecutive steps by cells, in each order."""
        return binned(self.u)


@dataclass(frozen=True)
class Place:
    """One step of a few rows: base [N, V], what the head reads, and what was drawn before it.

    tokens: of the whole batch [B, K]; rows [N] its rows that are looked at, k the step.
    """

    base: torch.Tensor
    head: draft.Head
    state: torch.Tensor
    dtype: torch.dtype
    anchor: torch.Tensor
    tokens: torch.Tensor
    rows: torch.Tensor
    k: int

    def previous(self, back: int = 1, turn: int = 0) -> torch.Tensor:
        """The token `back` steps ago, of the row `turn` places on: [N]."""
        rows = (self.rows + turn) % len(self.anchor)
        return self.anchor[rows] if back > self.k else self.tokens[rows, self.k - back]

    def bias(self, previous: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The bias [N, V] after a token [N], and the state that follows."""
        return self.head.step(previous, self.head.at(self.k), self.state)


def log_at(scaled: torch.Tensor, picked: torch.Tensor) -> torch.Tensor:
    """Log probability of each picked id. scaled [N, V] logits over T, picked [N]. Returns [N]."""
    own = scaled.gather(-1, picked.unsqueeze(-1)).squeeze(-1)
    return own - torch.logsumexp(scaled, -1)


def ratios(
    place: Place, bias: torch.Tensor, true: torch.Tensor, heat: torch.Tensor
) -> torch.Tensor:
    """Log of each member's probability of the drawn token over the true one: [MEMBERS].

    bias [N, V] the true one; true [N, V] true step logits; heat [N, 1]. Added up over the rows.
    """
    picked = place.tokens[place.rows, place.k]
    own = log_at(true / heat, picked)
    logs = [log_at(true / (heat * (1 + tilt)), picked) for tilt in TILTS]
    leaked = torch.full_like(own, math.log(LEAK / true.shape[-1]))
    logs.append(torch.logaddexp(own + math.log1p(-LEAK), leaked))
    logs += [log_at((place.base + scale * bias) / heat, picked) for scale in BIAS_SCALES]

    def read(previous: torch.Tensor) -> torch.Tensor:
        wrong = choice.step_logits(place.base, place.bias(previous)[0], place.dtype)
        return log_at(wrong / heat, picked)

    # Step 0 follows the anchor, which was not drafted.
    logs.append(read(place.previous(2)) if place.k else own)
    for turn in TURNS:
        theirs = read(place.previous(1, turn)) if place.k else own
        logs += [
            torch.logaddexp(own + math.log1p(-share), theirs + math.log(share)) for share in SHARES
        ]
    return torch.stack([(log - own).sum() for log in logs])


def along(setting: Setting, inputs: Tensors, tokens: Counts, seed: int) -> Along:
    """Walk the reference along drawn blocks, row by row, each step after the tokens drawn before.

    inputs of one load, all of its rows sampled; tokens [replays, B, K], ids of the vocabulary;
    seed: of the judge's own uniforms.
    """
    drawn = torch.from_numpy(np.ascontiguousarray(tokens))
    hidden = logits.draft_rows(inputs["hidden"], setting["drafts"])
    head, vocabulary = setting["head"], setting["vocabulary"]
    heat, dtype = choice.clamped(inputs["temperature"]), getattr(torch, setting["step_dtype"])
    draws = {order: np.random.default_rng([seed, len(order)]) for order in ORDERS}
    w = {order: torch.from_numpy(draws[order].random(tokens.shape)) for order in ORDERS}
    u = {order: torch.zeros(tokens.shape, dtype=torch.float64) for order in ORDERS}
    values, spread = torch.zeros(len(MEMBERS), dtype=torch.float64), 0.0
    every = torch.arange(tokens.shape[1])
    for rows in every.split(max(1, CELLS // vocabulary)):
        base = logits.base_logits(hidden[rows], head, vocabulary, setting.get("mup", 1.0))
        bound = bound_head(setting, hidden[rows].to(head.dtype))
        for number, block in enumerate(drawn):
            state = bound.started(inputs["anchor"][rows])
            for k in range(setting["drafts"]):
                place = Place(base[:, k], bound, state, dtype, inputs["anchor"], block, rows, k)
                bias, state = place.bias(place.previous())
                true = choice.step_logits(base[:, k], bias, dtype)
                values += ratios(place, bias, true, heat[rows, None])
                law = choice.law(true, heat[rows])
                scaled = true / heat[rows, None]
                middle = (law * scaled).sum(-1, keepdim=True)
                spread += float((law * (scaled - middle) ** 2).sum())
                for order in ORDERS:
                    share = w[order][number, rows, k]
                    u[order][number, rows, k] = transformed(law, block[rows, k], order, share)
    return Along(values.numpy(), spread, {order: u[order].numpy() for order in ORDERS})


def consecutive(u: Floats) -> Floats:
    """The cell of the SIDE x SIDE table in which each pair of consecutive steps lies: [pairs].

    No draw is in two pairs, so that the pairs are independent: even rows begin with steps 0 and 1,
    odd ones with 1 and 2. Cells are given as their middles in [0, 1).
    """
    cells = (u * SIDE).astype(np.int64)
    parts = []
    for parity in (0, 1):
        own = cells[:, parity::2, parity:]
        own = own[..., : own.shape[-1] // 2 * 2]
        parts.append((own[..., ::2] * SIDE + own[..., 1::2]).ravel())
    return (np.concatenate(parts) + 0.5) / SIDE**2


def tokens_in(order: str) -> str:
    """The name of the bins of all draws in an order."""
    return f"tokens in order of {order}"


def binned(u: Mapping[str, Floats]) -> dict[str, Counts]:
    """Draws by FINE bins of the transform, and pairs of consecutive steps by cells, by name."""
    found = {}
    for order in ORDERS:
        fine = (u[order].ravel() * FINE).astype(np.int64)
        found[tokens_in(order)] = np.bincount(fine, minlength=FINE)
        pairs = (consecutive(u[order]) * SIDE**2).astype(np.int64)
        found[f"consecutive {tokens_in(order)}"] = np.bincount(pairs, minlength=SIDE**2)
    return found


def fits(bins: Mapping[str, Counts], level: float) -> list[tuple[str, Fit]]:
    """G of the transform over BINS bins, and of its consecutive pairs, in each order."""
    return [
        (name, equal_counts(counts.reshape(BINS, -1).sum(axis=1), level))
        for name, counts in bins.items()
    ]


def scans(bins: Mapping[str, Counts], alarm: float) -> list[tuple[str, Finding]]:
    """FINE bins of the transform in each order against the uniform law, `alarm` for each."""
    law = np.full(FINE, 1.0 / FINE)
    return [(order, scan(law, bins[tokens_in(order)], alarm)) for order in ORDERS]


def complaint(values: Floats, bins: Mapping[str, Counts], alarm: float) -> str:
    """What the bank or a scan shows, or ''; exact, half of `alarm` each."""
    if rejects(values, alarm / 2):
        return (
            f"draws do not follow the chain of laws: likelihood ratio exp("
            f"{mean_log(values):.4g}) over the bank, required below {2 / alarm:.2g}; likest "
            f"fault: {MEMBERS[int(values.argmax())]}"
        )
    for order, found in scans(bins, alarm / 2 / SCANS):
        if found.rejects:
            first, last = found.first / FINE, (found.last + 1) / FINE
            return (
                f"draws in order of {order}: {found.observed} in [{first:.4g}, {last:.4g}) of "
                f"their law, expected {found.expected:.1f}, p = {found.adjusted:.2g}, required > "
                f"{alarm / 2 / SCANS:.2g}"
            )
    return ""


def smallest_tilt(spread: float, alarm: float, miss: float = MISS) -> float:
    """Relative error of T that `complaint` finds with probability 1 - miss, to second order.

    At an error t, the member of size m rises by (m t - m^2 / 2) spread, with variance m^2 spread.
    """
    goal, quantile = math.log(2 * len(MEMBERS) / alarm), NormalDist().inv_cdf(1 - miss)
    sizes = {abs(tilt) for tilt in TILTS}
    return min(
        (goal + quantile * m * math.sqrt(spread) + m**2 * spread / 2) / (m * spread) for m in sizes
    )


def smallest_share(found: Sequence[tuple[str, Fit]], draws: int, miss: float = MISS) -> float:
    """Smallest share of draws moved into one bin that the first of `fits` finds."""
    one = found[0][1]
    needed = noncentrality(one.degrees, one.level, miss)
    return math.sqrt(needed / draws / one.degrees)
