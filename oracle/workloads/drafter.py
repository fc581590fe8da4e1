"""A small draft of SmolLM2, fitted on the spot to the model's own answers.

A draft at an anchor a sees the state h that predicted a, and a. With x = [norm(h) ; norm(E[a])],

    h_k = gain * norm(project_k x + lift_k silu(widen x)),   base logits = h_k @ lm_head^T,

and a Markov head adds its bias from the token before. project_k is a ridge regression of the
model's own states k + 1 tokens later, gain the scale of its last norm. Then all weights descend for
a few epochs on the cross entropy of the tokens that came, over the ids that occur in the answers:
three Markov heads (vanilla, gated, rnn) at once on one trunk. Ids that do not occur get no bias.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .corpus import ANSWER, END, Answers

DRAFTS, RANK, INNER = 4, 32, 256
RIDGE = 0.03  # times the mean diagonal of the regression's normal matrix
EPOCHS, ROWS, RATE = 6, 256, 1e-3
EPSILON = 1e-6

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted draft.

    trunk   project [K D, 2 D], lift [K D, M], widen [M, 2 D], gain [D]
    markov  by kind: w1 [V, R], w2 [V, R], and for two of them w3, b3
    agreed  [kinds, K]: on held-out greedy answers, the share of blocks whose first k + 1 drafts are
            the model's own tokens; blocks: how many
    """

    trunk: dict[str, Tensor]
    markov: dict[str, dict[str, Tensor]]
    agreed: Tensor
    blocks: int


@dataclass(frozen=True)
class Examples:
    """Blocks to learn: feature [N, D], anchor [N], following [N, K], states [N, K, D]."""

    feature: Tensor
    anchor: Tensor
    following: Tensor
    states: Tensor

    def of(self, rows: Tensor) -> "Examples":
        """Some of them, by index or mask."""
        return Examples(*(part[rows] for part in vars(self).values()))


def level(states: Tensor) -> Tensor:
    """Divide by the root mean square of the last axis."""
    return states / (states.square().mean(-1, keepdim=True) + EPSILON).sqrt()


def examples(answers: Answers) -> tuple[Examples, Tensor]:
    """Every block within an answer, and [N] int64 the answer it is from; what ended is left out."""
    found: list[tuple[int, int]] = []
    for row, begun in enumerate(answers.begun.tolist()):
        text = answers.tokens[row, begun : begun + ANSWER]
        stops = torch.isin(text, torch.tensor(END)).nonzero()
        last = begun + (int(stops[0, 0]) if len(stops) else ANSWER - 1)
        found += [(row, place) for place in range(begun - 1, last - DRAFTS + 1)]
    row, place = torch.tensor(found).T
    ahead = place[:, None] + torch.arange(DRAFTS)
    parts = (
        answers.states[row, place - 1],
        answers.tokens[row, place],
        answers.tokens[row[:, None], ahead + 1],
        answers.states[row[:, None], ahead],
    )
    return Examples(*parts), row


def trunk_of(seen: Examples, head: Tensor, gain: Tensor, seed: int) -> dict[str, Tensor]:
    """The ridge regression, beside a hidden layer that adds nothing yet."""
    joined = torch.cat([level(seen.feature), level(head[seen.anchor])], -1).double()
    goal = level(seen.states / gain).double().flatten(1)
    products = joined.T @ joined
    products.diagonal().add_(RIDGE * products.diagonal().mean())
    project = torch.linalg.solve(products, joined.T @ goal).T.float().contiguous()
    source = torch.Generator().manual_seed(seed)
    wide = joined.shape[1]
    return {
        "project": project,
        "lift": torch.zeros(len(project), INNER),
        "widen": torch.randn(INNER, wide, generator=source) / wide**0.5,
        "gain": gain.clone(),
    }


def heads_of(vocabulary: int, wide: int, seed: int) -> dict[str, dict[str, Tensor]]:
    """Markov heads that add nothing yet: w2 is zero."""
    source = torch.Generator().manual_seed(seed)
    rows = {"vanilla": 0, "gated": RANK, "rnn": 3 * RANK}
    found = {}
    for kind, count in rows.items():
        head = {
            "w1": torch.randn(vocabulary, RANK, generator=source) / RANK**0.5,
            "w2": torch.zeros(vocabulary, RANK),
        }
        if count:
            columns = wide + RANK * (2 if kind == "rnn" else 1)
            head["w3"] = torch.randn(count, columns, generator=source) / columns**0.5
            head["b3"] = torch.zeros(count)
        found[kind] = head
    return found


def drafted_states(trunk: dict[str, Tensor], feature: Tensor, embedded: Tensor) -> Tensor:
    """h of every position, [N, K, D]."""
    joined = torch.cat([level(feature), level(embedded)], -1)
    states = joined @ trunk["project"].T
    states = states + functional.silu(joined @ trunk["widen"].T) @ trunk["lift"].T
    return level(states.unflatten(-1, (DRAFTS, -1))) * trunk["gain"]


def corrections(
    kind: str, head: dict[str, Tensor], previous: Tensor, states: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """What w2 multiplies, and the state after: previous [N] int64, states [N, D], state [N, R]."""
    token = head["w1"][previous]
    if kind == "gated":
        gate = torch.sigmoid(torch.cat([states, token], -1) @ head["w3"].T + head["b3"])
        return gate * token, state
    if kind == "rnn":
        mixed = torch.cat([state, token, states], -1) @ head["w3"].T + head["b3"]
        keep, new, out = mixed.split(RANK, -1)
        share = torch.sigmoid(keep)
        return torch.tanh(out), share * state + (1 - share) * torch.tanh(new)
    return token, state


def loss_of(
    trunk: dict[str, Tensor],
    heads: dict[str, dict[str, Tensor]],
    seen: Examples,
    head: Tensor,
    ids: Tensor,
    place: Tensor,
) -> Tensor:
    """Mean cross entropy over kinds and positions, over the ids that occur.

    ids [S] the ids that occur, place [V] their places among them.
    """
    states = drafted_states(trunk, seen.feature, head[seen.anchor])
    base = states @ head[ids].T
    before = torch.cat([seen.anchor[:, None], seen.following[:, :-1]], 1)
    goal = place[seen.following]
    losses = []
    for kind, weights in heads.items():
        state = states.new_zeros(len(states), RANK)
        for step in range(DRAFTS):
            factor, state = corrections(kind, weights, before[:, step], states[:, step], state)
            logits = base[:, step] + factor @ weights["w2"][ids].T
            losses.append(functional.cross_entropy(logits, goal[:, step]))
    return torch.stack(losses).mean()


def descended(
    trunk: dict[str, Tensor],
    heads: dict[str, dict[str, Tensor]],
    seen: Examples,
    head: Tensor,
    seed: int,
    progress: Progress,
) -> None:
    """Let every weight descend, in place; the rate falls to zero."""
    ids = torch.unique(torch.cat([seen.following.flatten(), seen.anchor]))
    place = torch.zeros(len(head), dtype=torch.int64)
    place[ids] = torch.arange(len(ids))
    weights = [*trunk.values(), *(part for own in heads.values() for part in own.values())]
    for weight in weights:
        weight.requires_grad_()
    optimiser = torch.optim.Adam(weights, lr=RATE)
    source = torch.Generator().manual_seed(seed)
    steps = EPOCHS * (len(seen.anchor) // ROWS)
    order = torch.cat(
        [torch.randperm(len(seen.anchor), generator=source) for _ in range(EPOCHS + 1)]
    )
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        optimiser.zero_grad()
        rows = seen.of(order[step * ROWS : (step + 1) * ROWS])
        loss = loss_of(trunk, heads, rows, head, ids, place)
        loss.backward()
        optimiser.step()
        progress("fitting the draft", step + 1, steps)
    for weight in weights:
        weight.requires_grad = False


@torch.no_grad()
def agreement(
    trunk: dict[str, Tensor], heads: dict[str, dict[str, Tensor]], seen: Examples, head: Tensor
) -> Tensor:
    """Shares as in Fitted, [kinds, K], of greedy blocks in which each draft follows the last."""
    states = drafted_states(trunk, seen.feature, head[seen.anchor])
    found = []
    for kind, weights in heads.items():
        previous, state = seen.anchor, states.new_zeros(len(states), RANK)
        agrees = torch.ones(len(states), dtype=torch.bool)
        for step in range(DRAFTS):
            factor, state = corrections(kind, weights, previous, states[:, step], state)
            previous = (states[:, step] @ head.T + factor @ weights["w2"].T).argmax(-1)
            agrees = agrees & (previous == seen.following[:, step])
            found.append(agrees.double().mean())
    return torch.stack(found).view(len(heads), DRAFTS)
