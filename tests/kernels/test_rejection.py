"""The accept of sampled rows by kernels: the bodies of the torch tests, and torch's own commits."""

from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.acceptance import RULES, Asked, Commit
from impl.fused import SampledAccept
from impl.kernels import rejection

from .. import accepting, test_accept_paths
from ..accepting import NAMES, Requests, fold, fold_laws, requests
from ..strategies import source
from .chains import DEVICE

WIDE = 24
# Parts of 16 ids: two of them, the last one ragged.
NARROW = 16
# Bodies that hold of every accept, and a rule for those that take one.
BODIES = (
    test_accept_paths.test_a_coin_equal_to_the_ratio_rejects,
    test_accept_paths.test_a_flag_ends_the_block_and_its_bonus_follows_p,
    test_accept_paths.test_a_cut_commits_the_accepted_draft_as_bonus,
)


def on_device(rule: str) -> Callable[..., None]:
    """The accept of a rule by kernels, for tensors that lie elsewhere."""
    accept = SampledAccept(rule)

    def run(
        asked: Asked,
        target: torch.Tensor,
        claimed: torch.Tensor,
        coins: torch.Tensor,
        out: Commit,
    ) -> None:
        there = Commit(*(getattr(out, field.name).to(DEVICE) for field in fields(out)))
        parts = (asked.candidates, asked.verify_len, asked.prefix)
        moved = Asked(*(tensor.to(DEVICE) for tensor in parts))
        with np.errstate(all="ignore"):
            accept(moved, target.to(DEVICE), claimed.to(DEVICE), coins.to(DEVICE), there)
        for field in fields(out):
            getattr(out, field.name).copy_(getattr(there, field.name))

    return run


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put kernels in the place of the torch rules, and cut rows into many parts."""
    monkeypatch.setattr(accepting, "RULES", {rule: on_device(rule) for rule in RULES})
    monkeypatch.setattr(rejection, "PART", NARROW)


def by_torch(monkeypatch: pytest.MonkeyPatch, run: Callable[[], Commit]) -> Commit:
    """What the torch rules make of the same call."""
    with monkeypatch.context() as patch:
        patch.setattr(accepting, "RULES", RULES)
        return run()


def agreeing(rows: int, drafts: int, seed: int) -> Requests:
    """Requests whose q is near p, so that some drafts pass and some do not."""
    made = requests(rows, drafts, WIDE, seed)
    near = made.target[:, :-1].nan_to_num(0.0, neginf=-torch.inf)
    made.step_logits = near + 0.7 * torch.randn(near.shape, generator=source(seed + 1))
    law = (made.step_logits / made.temperature[:, None, None]).softmax(-1)
    made.candidates[:, 1:] = test_accept_paths.drawn_from(law, source(seed))
    made.top_k.fill_(accepting.ALL)
    made.top_p.fill_(1.0)
    made.coins[: rows // 2, :-1] /= 2
    return made


@pytest.mark.parametrize("rule", list(RULES))
def test_a_commit_is_that_of_torch(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Every field: several parts, NaN rows, flags, one-hot rows, cuts and pad rows among them."""
    asked = agreeing(10, 2, 1)
    found, wanted = fold(rule, asked), by_torch(monkeypatch, lambda: fold(rule, asked))
    for name in NAMES:
        assert torch.equal(getattr(found, name), getattr(wanted, name)), name
    assert set(found.correct_len.tolist()) == {0, 1, 2}
    assert set(found.flags.tolist()) == {0, 1}
    assert int(found.trim.max()) > 0
    assert int(found.bonus.max()) >= NARROW


@pytest.mark.parametrize("rule", list(RULES))
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_bodies_of_the_torch_tests_hold(body: Callable[[str], None], rule: str) -> None:
    """They fold by whatever rules are there."""
    body(rule)


def test_without_residual_mass_the_bonus_follows_p() -> None:
    """The body of the torch test, and a row in several parts of which the first are empty."""
    test_accept_paths.test_without_residual_mass_the_bonus_follows_p()
    asked = requests(1, 1, WIDE, 3)
    asked.candidates, asked.coins = torch.tensor([[0, 22]]), torch.tensor([[0.9, 0.5]])
    asked.verify_len = torch.tensor([2])
    law, claim = torch.zeros(1, 2, WIDE), torch.zeros(1, 1, WIDE)
    law[:, :, [20, 22]] = 0.5
    claim[0, 0, [20, 22]] = torch.tensor([0.5, 1.0])
    assert fold_laws("chain", asked, law, claim).bonus.tolist() == [22]


@pytest.mark.parametrize(("uniform", "token"), [(0.0, 15), (0.25, 16), (0.5, 20), (1.0, 20)])
def test_the_final_draw_at_the_edges_of_parts(uniform: float, token: int) -> None:
    """Strictly above u times the sum; parts without mass are stepped over, ids without too."""
    asked = requests(1, 1, WIDE, 3)
    asked.candidates, asked.coins = torch.tensor([[0, 3]]), torch.tensor([[0.5, uniform]])
    asked.verify_len = torch.tensor([2])
    law, claim = torch.zeros(1, 2, WIDE), torch.zeros(1, 1, WIDE)
    law[:, :, [15, 16, 20]] = torch.tensor([0.25, 0.25, 0.5])
    claim[0, 0, 3] = 1.0
    assert fold_laws("chain", asked, law, claim).bonus.tolist() == [token]


@pytest.mark.slow
def test_a_row_of_a_batch_does_not_depend_on_its_mates() -> None:
    """Half the batch, in other memory, commits the same."""
    asked = agreeing(4, 1, 21)
    whole = fold("block", asked)
    half = replace(asked, **{name: value[2:].clone() for name, value in vars(asked).items()})
    part = fold("block", half)
    assert all(torch.equal(getattr(whole, name)[2:], getattr(part, name)) for name in NAMES)


@pytest.mark.slow
@pytest.mark.parametrize("rule", list(RULES))
def test_thousands_of_requests_end_as_with_torch(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """Every length, cut, flag and empty commit."""
    asked = requests(1500, 3, 4, 5)
    found, wanted = fold(rule, asked), by_torch(monkeypatch, lambda: fold(rule, asked))
    assert all(torch.equal(getattr(found, name), getattr(wanted, name)) for name in NAMES)
    assert set(found.commit.tolist()) == {0, 1, 2, 3, 4}
