"""Exact laws of a drafted block over a small vocabulary, by enumeration."""

from collections.abc import Callable

import torch

from .choice import law, step_logits
from .draft import Head

Prefix = tuple[int, ...]
# What follows a prefix of the block: its tokens, without the anchor, to a law [V] or logits [V].
Rows = Callable[[Prefix], torch.Tensor]


def transitions(
    base: torch.Tensor, head: Head, temperature: float, dtype: torch.dtype
) -> torch.Tensor:
    """The law of each step given every possible previous token.

    base [K, V] float64, one request; head without a state, its hidden states [1, K, D] if it reads
    any; temperature clamped. Returns [K, V, V] float64: step, previous token, token. A head with a
    state is a ValueError: its laws depend on the whole prefix, see `block_law`.
    """
    if head.start.numel() > 0:
        raise ValueError(f"the head has a state of {head.start.numel()} numbers, required: none")
    drafts, vocabulary = base.shape
    every = torch.arange(vocabulary)
    return torch.stack(
        [step_law(base[k], head, k, every, temperature, dtype)[0] for k in range(drafts)]
    )


def step_law(
    base: torch.Tensor,
    head: Head,
    k: int,
    previous: torch.Tensor,
    temperature: float,
    dtype: torch.dtype,
    state: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The law of step k of one request, for many previous tokens [N] and states [N, R].

    base [V] float64; state None at step 0. Returns laws [N, V] and the next states [N, R].
    """
    rows = previous.shape[0]
    one = head.at(k)
    hidden = None if one is None else one.expand(rows, -1)
    before = head.started(previous) if state is None else state
    bias, after = head.step(previous, hidden, before)
    logits = step_logits(base.expand(rows, -1), bias, dtype)
    heat = torch.full((rows,), temperature, dtype=torch.float64)
    return law(logits, heat), after


def block_law(
    base: torch.Tensor, head: Head, anchor: int, temperature: float, dtype: torch.dtype
) -> torch.Tensor:
    """The joint law of a drafted block, whatever the head remembers.

    base [K, V] float64, one request; head bound to its hidden states [1, K, D] if it reads any;
    temperature clamped. Returns [V, ..., V] float64, one axis a draft.
    """
    drafts, vocabulary = base.shape
    previous = torch.tensor([anchor])
    state = head.started(previous)
    joint = torch.ones(1, dtype=torch.float64)
    for k in range(drafts):
        rows = previous.shape[0]
        step, after = step_law(base[k], head, k, previous, temperature, dtype, state)
        joint = (joint.unsqueeze(1) * step).flatten()
        previous = torch.arange(vocabulary).repeat(rows)
        state = after.repeat_interleave(vocabulary, dim=0)
    return joint.reshape([vocabulary] * drafts)


def pair_laws(steps: torch.Tensor, anchor: int) -> list[torch.Tensor]:
    """The joint law of each token with the one before it.

    steps [K, V, V] from `transitions`; anchor the token before step 0. Returns K tables [V, V]:
    entry (a, b) is P(previous = a, token = b).
    """
    vocabulary = steps.shape[1]
    previous = torch.zeros(vocabulary, dtype=torch.float64)
    previous[anchor] = 1.0
    tables = []
    for step in steps:
        table = previous.unsqueeze(1) * step
        tables.append(table)
        previous = table.sum(dim=0)
    return tables


def pairs_of(joint: torch.Tensor, anchor: int) -> list[torch.Tensor]:
    """The tables of `pair_laws`, from the joint law [V, ..., V] of a block."""
    vocabulary, drafts = joint.shape[0], joint.dim()
    at_anchor = torch.nn.functional.one_hot(torch.tensor(anchor), vocabulary).to(torch.float64)
    with_anchor = at_anchor.reshape([vocabulary] + [1] * drafts) * joint
    fronted = [with_anchor.movedim((k, k + 1), (0, 1)) for k in range(drafts)]
    return [table.reshape(vocabulary, vocabulary, -1).sum(dim=2) for table in fronted]


def rows_of(joint: torch.Tensor) -> Rows:
    """The law of the next draft after each prefix, from the joint law [V, ..., V] of a block."""

    def row(prefix: Prefix) -> torch.Tensor:
        rest = joint[prefix]
        mass = rest.reshape(rest.shape[0], -1).sum(dim=1)
        return mass / mass.sum()

    return row
