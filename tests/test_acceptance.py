"""Greedy acceptance: both sides equal, and the commit is the target's own continuation."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from impl.acceptance import Commit as FoldedCommit
from impl.acceptance import accept_greedy as folded
from oracle.reference.acceptance import Commit, accept_greedy

from .strategies import source

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(2, 5), st.integers(0, 2**32))
NAMES = ("correct_len", "bonus", "trim", "commit", "new_seq_lens", "out_tokens", "flags")


def case(rows: int, drafts: int, vocabulary: int, seed: int) -> tuple[torch.Tensor, ...]:
    """Candidates, target logits, verify lengths and prefixes; few ids, so that drafts agree."""
    draw = source(seed)
    candidates = torch.randint(0, vocabulary, (rows, drafts + 1), generator=draw)
    target = torch.randint(0, 3, (rows, drafts + 1, vocabulary), generator=draw).float()
    target[torch.rand(target.shape, generator=draw) < 0.02] = torch.nan
    verify_len = torch.randint(0, drafts + 2, (rows,), generator=draw)
    return candidates, target, verify_len, torch.randint(0, 99, (rows,), generator=draw)


def run_folded(parts: tuple[torch.Tensor, ...]) -> FoldedCommit:
    """The fold, writing into tensors that hold junk."""
    candidates, target, verify_len, prefix = parts
    rows = len(candidates)
    shapes = dict.fromkeys(NAMES, (rows,)) | {"out_tokens": tuple(candidates.shape)}
    out = FoldedCommit(**{name: torch.full(shapes[name], -55) for name in NAMES})
    folded(candidates, target.flatten(0, 1), verify_len, prefix, out)
    return out


@given(SIZES)
def test_both_sides_commit_alike(sizes: tuple[int, int, int, int]) -> None:
    """Every field, pad rows (verify length 0) and NaN targets included."""
    parts = case(*sizes)
    expected, out = accept_greedy(*parts), run_folded(parts)
    for name, wanted in zip(NAMES, expected, strict=True):
        assert torch.equal(getattr(out, name), wanted.to(torch.int64)), name


@given(SIZES)
def test_greedy_acceptance_is_lossless(sizes: tuple[int, int, int, int]) -> None:
    """Committed tokens are the argmax of the rows before them, whatever was drafted."""
    parts = case(*sizes)
    target = parts[1].nan_to_num(0.0)
    commit = accept_greedy(parts[0], target, *parts[2:])
    predicted = target.argmax(-1)
    for row in range(len(predicted)):
        length = int(commit.commit_len[row])
        drafts = parts[0][row, 1:length]
        assert torch.equal(drafts, predicted[row, : length - 1] if length else drafts)
        assert commit.out_tokens[row, :length].tolist() == predicted[row, :length].tolist()
        assert (commit.out_tokens[row, length:] == -1).all()


def test_a_cut_moves_the_bonus_to_the_cut() -> None:
    """Accepted but cut drafts are counted as trim."""
    target = torch.eye(4)[torch.tensor([[1, 2, 3, 0]])]
    candidates = torch.tensor([[0, 1, 2, 3]])
    commit = accept_greedy(candidates, target, torch.tensor([2]), torch.tensor([10]))
    assert isinstance(commit, Commit)
    assert (int(commit.correct_len), int(commit.trim), int(commit.bonus)) == (1, 2, 2)
    assert int(commit.new_seq_len) == 12
    assert commit.out_tokens.tolist() == [[1, 2, -1, -1]]
