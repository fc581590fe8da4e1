"""Two processes that share a vocabulary read the tokens of one that holds it whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from .launch import RANKS, torchrun

PATIENCE = 120
SOUND = 2 * 3 * 3


def ranks_of(folder: Path, device: str) -> list[dict[str, Any]]:
    """What every rank saw, from one run of torchrun."""
    run = torchrun("-m", "tests.distributed.worker", str(folder), device, patience=PATIENCE)
    assert run.returncode == 0, run.stderr[-4000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both ranks saw on CPUs."""
    return ranks_of(tmp_path_factory.mktemp("ranks"), "cpu")


@pytest.mark.multi_gpu
def test_graphs_over_nccl_have_the_bits_of_one_gpu(tmp_path: Path) -> None:
    """Collectives inside CUDA graphs: uneven and empty shards, replays and eager blocks in turn."""
    for rank in ranks_of(tmp_path, "cuda"):
        found = {key: value for key, value in rank.items() if key.startswith("assembled")}
        assert len(found) == 6
        assert {key: value for key, value in found.items() if value} == {}


def test_every_rank_has_the_bits_of_the_unsharded_run(seen: list[dict[str, Any]]) -> None:
    """Uneven and empty shards, ties over the edge, NaN and masks, eager and replayed."""
    for rank in seen:
        sound = {key: rank[key] for key in rank if key.startswith(("eager d", "recorded d"))}
        assert len(sound) == SOUND
        assert {key: value for key, value in sound.items() if value} == {}


@pytest.mark.parametrize("split", ["uneven", "last empty", "first empty"])
@pytest.mark.parametrize("family", ["dspark", "dflash"])
def test_an_assembled_proposer_folds_over_ranks(
    seen: list[dict[str, Any]], family: str, split: str
) -> None:
    """Replays and eager blocks in turn, over two buckets, equal those of a whole head."""
    assert [rank[f"assembled {family} {split}"] for rank in seen] == [[]] * RANKS


def test_the_old_rule_keeps_dflash_over_ranks_eager(seen: list[dict[str, Any]]) -> None:
    """One rank alone folds under it; two draft the same tokens outside a recording."""
    reasons = ["folded", "sharded dflash kept eager"]
    expected = {"folded": [True, False], "reasons": reasons, "differences": []}
    assert [rank["kept eager"] for rank in seen] == [expected] * RANKS


@pytest.mark.parametrize("how", ["eager", "recorded"])
@pytest.mark.parametrize("planted", ["local_seed", "wrong_offset"])
def test_a_planted_fault_is_noticed_on_every_rank(
    seen: list[dict[str, Any]], how: str, planted: str
) -> None:
    """Noise seeded by the rank, and ids counted from the wrong place, change tokens."""
    for rank in seen:
        assert any(name.endswith("tokens") for name in rank[f"{how} {planted}"])


def test_unequal_free_memory_is_one_decision(seen: list[dict[str, Any]]) -> None:
    """Both ranks obey the one that has the least."""
    expected = {
        "fold": "greedy",
        "reason": "memory short",
        "need_bytes": 5,
        "free_bytes": 2**30 - 1,
    }
    assert [rank["gate"] for rank in seen] == [expected] * RANKS


def test_ranks_that_disagree_raise_everywhere(seen: list[dict[str, Any]]) -> None:
    """The fact, the ranks and both values are named."""
    words = "drafts is 3 on rank 0 and 4 on rank 1; every rank should have the same"
    assert [rank["disagreement"] for rank in seen] == [words] * RANKS
    words = "noise seed is 21 on rank 0 and 22 on rank 1; every rank should have the same"
    assert [rank["seed"] for rank in seen] == [words] * RANKS
