"""Two ranks in one process: half of the vocabulary each, and one sampler together."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from impl.shards import even_ranges
from impl.subject import factory

from ...local_group import LocalGroup

Setting = Mapping[str, Any]
RANKS = 2
UNCLAIMED = ("RANKS", "GATES")


class Ranks:
    """Every rank runs each verb on a thread of its own; the first one answers."""

    def __init__(self, setting: Setting) -> None:
        """Build all ranks over the same weights, whole."""
        ranges = even_ranges(setting["vocabulary"], RANKS)

        def built(group: LocalGroup) -> tuple[LocalGroup, Any]:
            # A recording cannot hold a gather between threads.
            own = {**setting, "engine": "eager", "shard_ranges": ranges, "group": group}
            return group, factory(own)

        self.ranks = LocalGroup.together(RANKS, built)

    def everywhere(self, verb: Callable[[Any], Any]) -> Any:
        """Call a verb on all ranks at once, and return the answer of the first."""

        def body(call: LocalGroup) -> Any:
            group, subject = self.ranks[call.rank]
            try:
                return verb(subject)
            except BaseException:
                # The other ranks wait in the group that they were built with.
                group.meeting.barrier.abort()
                raise

        return LocalGroup.together(RANKS, body)[0]

    def describe(self) -> dict[str, Any]:
        """As one rank, but for RANKS: who asks is one process, and asks a gate about one."""
        told = self.ranks[0][1].describe()
        abilities = tuple(name for name in told["abilities"] if name not in UNCLAIMED)
        return {**told, "name": f"{told['name']}, {RANKS} ranks", "abilities": abilities}

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Load every rank."""
        self.everywhere(lambda subject: subject.load(inputs))

    def replay(self) -> None:
        """Run the block on every rank."""
        self.everywhere(lambda subject: subject.replay())

    def read(self) -> dict[str, Tensor]:
        """What the first rank reads."""
        return self.everywhere(lambda subject: subject.read())

    def eager(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The block outside what was loaded, on every rank."""
        found: dict[str, Tensor] = self.everywhere(lambda subject: subject.eager(inputs))
        return found

    def accept(self, target: Mapping[str, Any]) -> dict[str, Tensor]:
        """Accept on every rank."""
        found: dict[str, Tensor] = self.everywhere(lambda subject: subject.accept(target))
        return found

    def noise_state(self) -> dict[str, Any]:
        """The state of the first rank, which is that of all."""
        found: dict[str, Any] = self.ranks[0][1].noise_state()
        return found

    def reseed(self, seed: int) -> None:
        """Seed every rank."""
        self.everywhere(lambda subject: subject.reseed(seed))

    def reweight(self, weights: Mapping[str, Tensor]) -> None:
        """Write once into the weights, which all ranks share."""
        self.ranks[0][1].reweight(weights)


def two_ranks(setting: Setting) -> Any:
    """Two ranks on two threads share the vocabulary, and agree on every token."""
    return Ranks(setting)
