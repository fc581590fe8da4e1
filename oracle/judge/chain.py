"""Laws of a block step by step over a small vocabulary, and the laws of its known faults.

A *context* of step k is the type of a request, its own tokens so far and those of a neighbour row.
Several types lie side by side in a batch, so that whatever is taken from a neighbour is another
law.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch

from ..reference import choice, law, logits
from .bank import Member, member, normalised, tilted
from .binding import bound_head
from .binomial import MISS
from .protocol import Setting, Tensors
from .significance import Counts, Floats

TILT_LAST = 0.05
BIAS_SCALES = (0.95, 1.05)
# How much of a step copies the token before it in the member of shared noise.
COPIES = 0.2
# Of a standard normal law, at a miss of MISS.
QUANTILE = NormalDist().inv_cdf(1 - MISS)


@dataclass(frozen=True)
class Chain:
    """The laws of every type of request.

    steps[k] [types, V^k, V, V]: log of the law of step k after a prefix, when token c is read as
    the previous one: entry (type, prefix, c, token). base [types, K, V] base logits over T.
    anchors [types].
    """

    steps: tuple[Floats, ...]
    base: Floats
    anchors: Counts

    @property
    def types(self) -> int:
        """How many requests differ; row r is of type r mod types."""
        return len(self.anchors)

    @property
    def vocabulary(self) -> int:
        """V."""
        return int(self.base.shape[2])

    def previous(self, k: int, back: int = 1) -> Counts:
        """The token `back` places before step k, by type and prefix: [types, V^k]."""
        prefix = np.arange(self.vocabulary**k)
        if back > k:
            return np.repeat(self.anchors[:, None], len(prefix), 1)
        before = prefix // self.vocabulary ** (back - 1) % self.vocabulary
        return np.repeat(before[None], self.types, 0)

    def read_as(self, k: int, token: Counts) -> Floats:
        """The law of step k when `token` [types, V^k] is read as the previous one."""
        index = np.broadcast_to(token[:, :, None, None], (*token.shape, 1, self.vocabulary))
        return np.take_along_axis(self.steps[k], index, 2)[:, :, 0]

    def true(self, k: int) -> Floats:
        """The log law of step k after each prefix: [types, V^k, V]."""
        return self.read_as(k, self.previous(k))

    def prefixes(self, k: int) -> Floats:
        """The probability of each prefix of k tokens: [types, V^k]."""
        mass = np.ones((self.types, 1))
        for step in range(k):
            mass = (mass[:, :, None] * np.exp(self.true(step))).reshape(self.types, -1)
        return mass


def chain(setting: Setting, inputs: Tensors, types: int) -> Chain:
    """Enumerate the laws of the first `types` rows of an input, for any head."""
    drafts, vocabulary = setting["drafts"], setting["vocabulary"]
    rows = logits.draft_rows(inputs["hidden"][:types], drafts)
    base = logits.base_logits(rows, setting["head"], vocabulary, setting.get("mup", 1.0))
    heat = choice.clamped(inputs["temperature"][:types])
    dtype = getattr(torch, setting["step_dtype"])
    every = torch.arange(vocabulary)
    found: list[list[Floats]] = [[] for _ in range(drafts)]
    for one in range(types):
        head = bound_head(setting, rows[one : one + 1].to(setting["head"].dtype))
        own = inputs["anchor"][one : one + 1]
        state = head.started(own)
        for k in range(drafts):
            many = every.repeat(len(own))
            wide = state.repeat_interleave(vocabulary, 0)
            table, _ = law.step_law(base[one, k], head, k, many, float(heat[one]), dtype, wide)
            found[k].append(table.log().reshape(len(own), vocabulary, vocabulary).numpy())
            _, state = law.step_law(base[one, k], head, k, own, float(heat[one]), dtype, state)
            state = state.repeat_interleave(vocabulary, 0)
            own = every.repeat(len(own))
    scaled = (base / heat[:, None, None]).numpy()
    steps = tuple(np.stack(tables) for tables in found)
    return Chain(steps, scaled, inputs["anchor"][:types].numpy())


def flat(tables: list[Floats]) -> Floats:
    """Tables [..., V] of all steps as one: [contexts, V]."""
    return np.concatenate([table.reshape(-1, table.shape[-1]) for table in tables])


def of_every_step(laws: Chain, fault: Callable[[int], Floats]) -> Floats:
    """What `fault` makes of each step, as one table [contexts, V]."""
    return flat([fault(k) for k in range(len(laws.steps))])


def own_faults(laws: Chain) -> tuple[Member, ...]:
    """Faults that show in a request's own tokens: contexts (type, prefix) of every step."""
    vocabulary = laws.vocabulary
    truth = of_every_step(laws, laws.true)

    def two_back(k: int) -> Floats:
        return laws.read_as(k, laws.previous(k, 2))

    def off_by(move: int) -> Callable[[int], Floats]:
        return lambda k: laws.read_as(k, (laws.previous(k) + move) % vocabulary)

    def scaled(scale: float) -> Callable[[int], Floats]:
        return lambda k: normalised(scale * laws.true(k) + (1 - scale) * laws.base[:, k, None])

    def copying(k: int) -> Floats:
        if k == 0:
            return laws.true(k)
        return mixed(laws.true(k), np.log(np.eye(vocabulary)[laws.previous(k)] + 1e-300), COPIES)

    named: dict[str, Callable[[int], Floats]] = {
        "previous token of step k - 2": two_back,
        "bias row one too high": off_by(1),
        "bias row one too low": off_by(-1),
        "one noise vector for all steps": copying,
    }
    named |= {f"bias x {scale:g}": scaled(scale) for scale in BIAS_SCALES}
    found = tuple(member(name, of_every_step(laws, one), truth) for name, one in named.items())
    return (*found, late_tilt(laws, TILT_LAST), late_tilt(laws, -TILT_LAST))


def late_tilt(laws: Chain, tilt: float) -> Member:
    """The last step alone at a temperature that is `tilt` too high, relative to the true one."""
    last = len(laws.steps) - 1

    def fault(k: int) -> Floats:
        return tilted(laws.true(k), tilt) if k == last else laws.true(k)

    name = f"T {100 * tilt:+g} % at the last step"
    return member(name, of_every_step(laws, fault), of_every_step(laws, laws.true))


def mixed(truth: Floats, other: Floats, share: float) -> Floats:
    """The log law of a step when a share of the blocks follows another law."""
    return np.logaddexp(truth + math.log1p(-share), other + math.log(share))


def foreign_token(laws: Chain, turn: int, share: float) -> Member:
    """A share of the blocks reads the previous token of the row `turn` places on.

    Contexts (type, prefix, prefix of that row) of every step. Step 0 has no draft before it.
    """

    def fault(k: int) -> Floats:
        if k == 0:
            return laws.true(k)[:, :, None]
        theirs = laws.steps[k][:, :, np.arange(laws.vocabulary**k) % laws.vocabulary]
        return mixed(laws.true(k)[:, :, None], theirs, share)

    name = f"previous token of row {turn:+d} in {100 * share:g} % of blocks"
    return member(name, of_every_step(laws, fault), of_every_step(laws, lambda k: wide(laws, k)))


def foreign_base(laws: Chain, turn: int, share: float) -> Member:
    """A share of the blocks has the base logits of the row `turn` places on.

    Contexts (type, prefix) of every step.
    """

    def fault(k: int) -> Floats:
        base = laws.base[:, k, None]
        theirs = normalised(laws.true(k) - base + np.roll(base, -turn, 0))
        return mixed(laws.true(k), theirs, share)

    name = f"base logits of row {turn:+d} in {100 * share:g} % of blocks"
    return member(name, of_every_step(laws, fault), of_every_step(laws, laws.true))


def wide(laws: Chain, k: int) -> Floats:
    """The true log law of step k, repeated for each prefix of a neighbour."""
    truth = laws.true(k)
    shape = (laws.types, truth.shape[1], truth.shape[1], laws.vocabulary)
    return np.broadcast_to(truth[:, :, None], shape)


def joint(laws: Chain, turn: int = 0) -> Floats:
    """The probability of each (context, token), adding up to K: [contexts, V].

    turn 0: contexts (type, prefix); else with the prefix of the row `turn` places on.
    """

    def one(k: int) -> Floats:
        mass, truth = laws.prefixes(k) / laws.types, np.exp(laws.true(k))
        if turn == 0:
            return mass[:, :, None] * truth
        theirs = np.roll(laws.prefixes(k), -turn, 0)
        return (mass[:, :, None] * theirs[:, None, :])[..., None] * truth[:, :, None]

    return of_every_step(laws, one)


def counted(laws: Chain, tokens: Counts, turn: int = 0) -> Counts:
    """How often each (context, token) came: tokens [replays, rows, K], contexts as in `joint`."""
    vocabulary, types = laws.vocabulary, laws.types
    kind = np.broadcast_to(np.arange(tokens.shape[1]) % types, tokens.shape[:2])
    prefix = np.zeros(tokens.shape[:2], dtype=np.int64)
    found = []
    for k in range(tokens.shape[2]):
        context, size = kind * vocabulary**k + prefix, types * vocabulary**k
        if turn:
            context = context * vocabulary**k + np.roll(prefix, -turn, 1)
            size *= vocabulary**k
        cells = (context * vocabulary + tokens[:, :, k]).ravel()
        found.append(np.bincount(cells, minlength=size * vocabulary).reshape(-1, vocabulary))
        prefix = prefix * vocabulary + tokens[:, :, k]
    return np.concatenate(found)


def blocks_for(one: Member, law: Floats, how_many: int, alarm: float, linked: int) -> int:
    """Blocks at which one member's fault is found, when how_many members are averaged.

    law [contexts, V] adds up to K. A fault that hits a block hits several of its steps, whose log
    ratios then rise together: the variance of `linked` of them is taken as if they were one.
    """
    faulty = law * np.exp(one.log_ratio)
    drift = float((faulty * one.log_ratio).sum())
    noise = QUANTILE * math.sqrt(linked * float((faulty * one.log_ratio**2).sum()))
    goal = math.log(how_many / alarm)
    return math.ceil(((noise + math.sqrt(noise**2 + 4 * drift * goal)) / (2 * drift)) ** 2)


def smallest(needed: Callable[[float], int], blocks: int) -> float:
    """The smallest fault, up to 1, that is found in so many blocks; infinite when none is."""
    low, high = 1e-4, 1.0
    if needed(0.999) > blocks:
        return math.inf
    while high / low > 1.05:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if needed(middle) <= blocks else (middle, high)
    return high
