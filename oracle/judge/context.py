"""What a check knows when it plans: abilities, profile, and where inputs come from."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from .protocol import Setting, Tensors


@dataclass(frozen=True)
class Profile:
    """How much is done: sizes and draws, fixed before anything is drawn.

    Sizes follow from the smallest faults that a profile has to see:
    tilt    relative error of T that draft_law finds (97.5 %)
    target_tilt  relative error of the target's T that lossless finds (97.5 %)
    wrong   share of wrong draws that the coupled oracle finds (99 %)
    share   of pairs or of blocks with a fault that independence and block_law find
    and from what a machine affords:
    blocks  of the checks that count no draws
    rows_max  widest batch
    spike_vocabulary  ids swept
    wide_draws  coupled draws at the large vocabulary, 0 where it takes too long
    noise_values  of each source that shows noise
    cliff_vocabulary, cliff_draws  of the case with equal rare ids
    counted  tokens that a subject counts itself, on a CPU and on a GPU; 0: no such case
    """

    name: str
    blocks: int
    wrong: float
    tilt: float
    target_tilt: float
    rows_max: int
    spike_vocabulary: int
    dtypes: tuple[str, ...]
    share: float
    wide_draws: int
    noise_values: int
    cliff_vocabulary: int
    cliff_draws: int
    counted: tuple[int, int] = (0, 0)

    @property
    def coupled_draws(self) -> int:
        """Draws that hide a share `wrong` of wrong ones with probability 1 %."""
        return math.ceil(-math.log(0.01) / self.wrong)


ALL_DTYPES = ("float32", "bfloat16", "float16")
PROFILES = {
    "smoke": Profile(
        name="smoke",
        blocks=5,
        wrong=2.5e-4,
        tilt=0.02,
        target_tilt=0.06,
        rows_max=16_384,
        spike_vocabulary=1000,
        dtypes=("float32", "bfloat16"),
        share=0.05,
        wide_draws=0,
        noise_values=2**20,
        cliff_vocabulary=1024,
        cliff_draws=2**13,
        counted=(0, 2**28),
    ),
    "ci": Profile(
        name="ci",
        blocks=12,
        wrong=5e-5,
        tilt=0.005,
        target_tilt=0.01,
        rows_max=65_536,
        spike_vocabulary=4096,
        dtypes=ALL_DTYPES,
        share=0.01,
        wide_draws=2304,
        noise_values=10 * 2**20,
        cliff_vocabulary=4096,
        cliff_draws=2**14,
        counted=(0, 2**31),
    ),
    "deep": Profile(
        name="deep",
        blocks=40,
        wrong=5e-6,
        tilt=0.001,
        target_tilt=0.004,
        rows_max=2**18,
        spike_vocabulary=32_768,
        dtypes=ALL_DTYPES,
        share=0.001,
        wide_draws=20_000,
        noise_values=48 * 2**20,
        cliff_vocabulary=129_280,
        cliff_draws=25_600,
        counted=(2**24, 10**10),
    ),
}


@dataclass(frozen=True)
class Material:
    """What a sampler borrows: head [W, D], Markov factors w1 [V, R] and w2 [V, R], and V."""

    head: torch.Tensor
    w1: torch.Tensor
    w2: torch.Tensor
    vocabulary: int


class Workload(Protocol):
    """Where weights and hidden states come from; see oracle/workloads."""

    @property
    def name(self) -> str: ...

    @property
    def real(self) -> bool: ...

    def material(
        self, seed: int, vocabulary: int, dtype: torch.dtype, padding: int = 0
    ) -> Material: ...

    def rows(
        self,
        seed: int,
        material: Material,
        rows: int,
        query_rows: int,
        *,
        sharpen: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


@dataclass(frozen=True)
class Size:
    """Sizes of one case: B or Bmax, K, V, padding rows of the head (W - V), dtype of the head."""

    rows: int
    drafts: int
    vocabulary: int
    padding: int = 0
    dtype: torch.dtype = torch.float32


@dataclass(frozen=True)
class Context:
    """One combination of abilities under test.

    buffers: name -> role, of a subject of this combination, empty without BUFFERS.
    blind: what the subject says that its engine cannot show.
    rank, ranks: of the processes that judge together.
    shard, shards: which of several runs that are added up later; shard 0 of 1 is a whole run.
    """

    family: str
    dialect: str
    device: str
    engine: str
    seed: int
    profile: Profile
    workload: Workload
    abilities: tuple[str, ...] = ()
    buffers: Mapping[str, str] = field(default_factory=dict)
    rank: int = 0
    ranks: int = 1
    shard: int = 0
    shards: int = 1
    blind: tuple[str, ...] = ()

    def part(self, draws: int) -> int:
        """This shard's part of what the whole run draws; no part is smaller than it must be."""
        return -(-draws // self.shards)

    @property
    def label(self) -> str:
        """Family and dialect, as printed."""
        return self.family if self.dialect == "none" else f"{self.family}/{self.dialect}"

    @property
    def forward(self) -> str:
        """The subject's own draft model where it has one."""
        return "backbone" if "FORWARD" in self.abilities else "given"

    def setting(
        self,
        material: Material,
        *,
        drafts: int,
        buckets: tuple[int, ...],
        forward: str = "given",
        sample_from_anchor: bool = True,
        step_dtype: str = "",
    ) -> dict[str, Any]:
        """A complete setting; DFLASH always drops the anchor row."""
        setting = {
            "family": self.family,
            "dialect": self.dialect,
            "forward": forward,
            "buckets": buckets,
            "drafts": drafts,
            "vocabulary": material.vocabulary,
            "sample_from_anchor": sample_from_anchor and self.family != "dflash",
            "step_dtype": step_dtype or str(material.head.dtype).removeprefix("torch."),
            "head": material.head,
            "device": self.device,
            "engine": self.engine,
            "seed": self.seed,
        }
        if self.family == "dspark":
            setting |= {"w1": material.w1, "w2": material.w2}
        return setting


def batches(draws: int, rows_max: int, replays_min: int = 64) -> tuple[int, int]:
    """Rows and replays that make at least `draws`: a fault of a replay shows over many of them."""
    replays = max(replays_min, -(-draws // rows_max))
    return -(-draws // replays), replays


def query_rows(setting: Setting) -> int:
    """Q of a setting."""
    drafts: int = setting["drafts"]
    return drafts if setting["sample_from_anchor"] else drafts + 1


def as_inputs(
    setting: Setting,
    hidden: torch.Tensor,
    anchor: torch.Tensor,
    temperature: torch.Tensor,
    top_k: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """The inputs of one load; a backbone gets the first hidden row as its context."""
    given = setting["forward"] == "given"
    source = {"hidden": hidden} if given else {"context": hidden[:, 0].clone()}
    return {**source, "anchor": anchor, "temperature": temperature, "top_k": top_k}


def constant(rows: int, temperature: float, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same sampling parameters for every row."""
    heat = torch.full((rows,), temperature, dtype=torch.float32)
    return heat, torch.full((rows,), top_k, dtype=torch.int64)


def without(inputs: Tensors, **changed: torch.Tensor) -> dict[str, torch.Tensor]:
    """The same inputs with some fields replaced."""
    return {**inputs, **changed}
