"""The greedy accept of the kernels: every tensor of a commit as torch writes it."""

from dataclasses import fields

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.acceptance import RULES, Commit, accept_greedy
from impl.fused import SampledAccept, Site, SplitAccept
from impl.stages import Accepts, accepts_for

from .chains import DEVICE, INF, NAN

ROWS, DRAFTS, VOCABULARY = 8, 4, 21


def asked() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Requests that accept nothing, some and all; cut, padded, with NaN where it counts or not."""
    drawn = torch.Generator().manual_seed(6)
    target = torch.randint(-9, 9, (ROWS, DRAFTS + 1, VOCABULARY), generator=drawn).float()
    target[2, 1, 4] = target[3, 4, 7] = target[4, 0, 0] = NAN
    target[6, 0] = -INF
    candidates = torch.zeros(ROWS, DRAFTS + 1, dtype=torch.int64)
    candidates[:, 1:] = target.argmax(-1)[:, :-1]
    candidates[0, 1] += 1
    candidates[5, 3] += 1
    candidates[3, 2] += 1
    lengths = torch.tensor([5, 5, 5, 5, 5, 4, 0, 2])
    prefix = torch.arange(ROWS) + 100
    found = (candidates, target.flatten(0, 1), lengths, prefix)
    return tuple(part.to(DEVICE) for part in found)  # type: ignore[return-value]


def test_a_commit_is_that_of_torch() -> None:
    """Lengths, bonus, trim, tokens and flags; twice from the same slots."""
    parts, arrow = asked(), SplitAccept()
    wanted = Commit.empty(ROWS, DRAFTS, DEVICE)
    accept_greedy(*parts, wanted)
    assert set(wanted.flags.tolist()) == {0, 1}
    assert len(set(wanted.correct_len.tolist())) > 2
    assert int(wanted.trim.max()) > 0
    for _ in range(2):
        found = Commit.empty(ROWS, DRAFTS, DEVICE)
        found.out_tokens.fill_(77)
        arrow(*parts, found)
        for field in fields(Commit):
            assert torch.equal(getattr(wanted, field.name), getattr(found, field.name)), field.name


def test_it_is_taken_where_kernels_run() -> None:
    """Torch elsewhere, and when it is asked for; the set says which it is, and why."""
    found = accepts_for("triton", Site(DEVICE))
    assert isinstance(found.greedy, SplitAccept)
    assert all(isinstance(rule, SampledAccept) for rule in found.rules.values())
    assert found.chosen.startswith("triton")
    assert accepts_for("torch", Site(DEVICE)) == Accepts(accept_greedy, RULES, "torch")
    auto = accepts_for("auto", Site(torch.device("cpu")))
    assert (auto.greedy, auto.rules) == (accept_greedy, RULES)
    assert auto.chosen == "torch: the device is cpu"
