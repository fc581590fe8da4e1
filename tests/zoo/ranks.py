"""Ranks that are not one sampler; each fault shows only where the vocabulary is shared."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from impl import gate
from impl.setting import group_of
from impl.shards import Group
from impl.subject import factory

from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")


class SeedsByRank(Wrapped):
    """Draws the noise of its own seed on every rank."""

    def __init__(self, inside: Any, rank: int) -> None:
        """Start the noise of this rank's seed."""
        super().__init__(inside)
        self.rank = rank
        if rank:
            self.reseed(inside.setting["seed"])

    def reseed(self, seed: int) -> None:
        """Restart from the seed and the number of the rank."""
        self.inside.reseed(seed + self.rank)


def rank_local_seed(setting: Setting) -> Any:
    """Every rank seeds its noise by its number."""
    group = group_of(setting)
    rank = 0 if group is None or setting["family"] == "dflash" else group.rank
    return SeedsByRank(factory(setting), rank)


def wrong_shard_offset(setting: Setting) -> Any:
    """Every rank but the first takes rows of the head that begin four ids late."""
    group = group_of(setting)
    if group is None or group.rank == 0:
        return factory(setting)
    return factory({**setting, "head": setting["head"].roll(-4, 0)})


@dataclass(frozen=True)
class Deaf:
    """A group in which every rank hears only itself."""

    inside: Group

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.inside.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.inside.size

    def gather(self, mine: Tensor, everyone: Tensor) -> None:
        """Write what this rank has in the place of all."""
        everyone.view(self.size, -1).copy_(mine.view(1, -1).expand(self.size, -1))

    def exchange(self, fact: Any) -> list[Any]:
        """Facts still travel."""
        return self.inside.exchange(fact)


def local_winner(setting: Setting) -> Any:
    """Each rank takes the winner of its own shard, where every rank has one."""
    group = group_of(setting)
    if group is None or any(start == end for start, end in setting["shard_ranges"]):
        return factory(setting)
    return factory({**setting, "group": Deaf(group)})


class DecidesAlone(Wrapped):
    """Asks the gate about the free memory of its own device."""

    def gate(self, facts: Mapping[str, Any]) -> Mapping[str, str]:
        """Answer a build without asking the other ranks."""
        values = {name: value for name, value in facts.items() if name != "table"}
        if facts["table"] != "build" or "shard_ranges" not in self.inside.setting:
            answer: Mapping[str, str] = self.inside.gate(facts)
            return answer
        decision = gate.build(gate.BuildFacts(**values))
        return {"fold": decision.fold, "reason": decision.reason}


def decides_alone(setting: Setting) -> Any:
    """Every rank folds by its own free memory."""
    return DecidesAlone(factory(setting))


HERE = "tests.zoo.ranks"
# Judged under torchrun: one process sees none of them.
SHARED = (
    Specimen(
        "rank_local_seed",
        HERE,
        "The seed is unset by default, so every rank draws from a stream of its own, and the keys "
        "that meet in the gather belong to different races.",
        "vllm-project/vllm#17929",
        COUNTER,
        "ranks",
        "equality",
        "two ranks, one sampled row",
    ),
    Specimen(
        "wrong_shard_offset",
        HERE,
        "A rank slices the output head at a wrong offset: its logits belong to other ids than the "
        "ones it announces, and all ranks agree on the wrong token.",
        "sgl-project/sglang#4328",
        COUNTER,
        "ranks",
        "equality",
        "two ranks, one row",
    ),
    Specimen(
        "local_winner",
        HERE,
        "The argmax is taken before the reduction over ranks, so that each rank announces the "
        "winner of its own shard and goes on with another previous token.",
        "NVIDIA/TensorRT-LLM#16440",
        COUNTER,
        "ranks",
        "equality",
        "two ranks, one row",
    ),
    Specimen(
        "decides_alone",
        HERE,
        "Whether the tail is folded depends on the free memory of each rank's own device. Ranks "
        "that answer differently wait for each other's collectives for ever.",
        "vllm-project/vllm#49027",
        COUNTER,
        "ranks",
        "gates",
        "two ranks with unequal free memory",
    ),
)
