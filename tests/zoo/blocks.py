"""Steps that read another row or tile, draws that share noise, a coin or a seed."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from oracle.subjects.reference import Reference
from oracle.subjects.torch_ops import Multinomial

from .noise import ShowsNoNoise, refuse_unreachable
from .specimen import Specimen

Setting = Mapping[str, Any]
COUNTER = ("dspark", "counter")
OFTEN, RARELY = 0.1, 0.01
LAUNCH = 256

# Where the tile begins that a fault of this name scales, and what it adds to its logits.
TILES = {"tile": (8, 0.2), "far tile": (512, 0.5)}


class Errs(Multinomial):
    """Shows nothing but its draws; some sampled rows are drawn from another law."""

    def __init__(self, setting: Setting, share: float, what: str) -> None:
        """Err in a share of the rows; what: 'token' or 'hidden' of the next row, or a tile."""
        super().__init__(setting)
        self.share, self.what = share, what
        self.luck = torch.Generator(setting["device"]).manual_seed(setting["seed"] + 5)

    def replay(self) -> None:
        """Draw each step at the row's own law, but for the rows that err."""
        setting, inputs = self.setting, self.inputs
        base = inputs["hidden"][:, -setting["drafts"] :].float() @ self.head.T
        greedy = (inputs["top_k"] <= 1) | (inputs["temperature"] < 1e-6)
        luck = torch.rand(len(greedy), generator=self.luck, device=greedy.device)
        wrong = (luck < self.share) & ~greedy
        if self.what == "hidden":
            wrong[:LAUNCH] = False
        heat = inputs["temperature"].clamp(min=1e-5).unsqueeze(1)
        previous, drawn = inputs["anchor"], []
        for k in range(setting["drafts"]):
            read = previous
            if self.what == "token" and k > 0:
                read = torch.where(wrong, previous.roll(-1), previous)
            logits = base[:, k].to(setting["head"].dtype).float()
            if self.what == "hidden":
                logits = torch.where(wrong[:, None], logits.roll(-1, 0), logits)
            logits = logits + self.bias(read)
            logits = logits.to(getattr(torch, setting["step_dtype"])).float()
            if self.what in TILES:
                start, lift = TILES[self.what]
                logits[:, start:] += torch.where(wrong, lift, 0.0)[:, None]
            drawable = logits.amax(-1).isfinite()
            law = torch.softmax(torch.where(drawable[:, None], logits, 0.0) / heat, dim=-1)
            e = torch.empty_like(law).exponential_(generator=self.generator)
            picked = (law / e).argmax(-1)
            previous = torch.where(greedy | ~drawable, logits.argmax(-1), picked)
            drawn.append(previous)
        self.tokens = torch.stack(drawn, 1)

    def bias(self, previous: Tensor) -> Tensor:
        """The bias after a token, as the sampler without the fault forms it."""
        w1, w2 = self.setting["w1"], self.setting["w2"]
        return (w1[previous].float() @ w2.float().T).to(w2.dtype).float()


def erring(setting: Setting, share: float, what: str) -> Any:
    """Build a sampler that errs, where torch's own sampler can be built."""
    if setting["family"] != "dspark" or setting["forward"] != "given":
        raise NotImplementedError("it draws dspark blocks from given hidden states")
    return Errs(setting, share, what)


def foreign_hidden(setting: Setting) -> Any:
    """Past row 256, a tenth of the sampled rows have the hidden state of the next row."""
    return erring(setting, OFTEN, "hidden")


def foreign_token(setting: Setting) -> Any:
    """A tenth of the sampled rows read the previous token of the next row."""
    return erring(setting, OFTEN, "token")


def rare_foreign_token(setting: Setting) -> Any:
    """One in a hundred sampled rows reads the previous token of the next row."""
    return erring(setting, RARELY, "token")


def heavy_tile(setting: Setting) -> Any:
    """Ids from 8 on have logits 0.2 too high in sampled rows."""
    return erring(setting, 1.0, "tile")


def heavy_far_tile(setting: Setting) -> Any:
    """Ids from 512 on have logits 0.5 too high in sampled rows."""
    return erring(setting, 1.0, "far tile")


class SharesNow(ShowsNoNoise):
    """In each block, one in a hundred rows, other ones each time, reads the noise of the last."""

    def block_noise(self, rows: int) -> Tensor:
        """Draw, then overwrite."""
        e = super().block_noise(rows)
        luck = torch.rand(rows, generator=torch.Generator().manual_seed(self.blocks))
        sharing = (luck < RARELY).nonzero().flatten()
        sharing = sharing[sharing > 0]
        e[sharing] = e[sharing - 1]
        return e


def rarely_shared_noise(setting: Setting) -> Any:
    """One in a hundred neighbouring rows shares its noise, never twice the same."""
    refuse_unreachable(setting)
    return SharesNow(setting)


class OneCoin(Reference):
    """Flips one coin a row and shows it to every draft of the block."""

    def coins(self, rows: int) -> Tensor:
        """Copy the first coin over the others, but the final draw."""
        coins = super().coins(rows)
        coins[:, :-1] = coins[:, :1]
        return coins


def one_coin(setting: Setting) -> Any:
    """All drafts of a block are accepted by one coin."""
    refuse_unreachable(setting)
    return OneCoin(setting)


class SharesWithCoins(ShowsNoNoise):
    """The coin of draft 0 is the uniform behind the noise of id 0."""

    def block_noise(self, rows: int) -> Tensor:
        """Remember the noise."""
        self.e = super().block_noise(rows)
        return self.e

    def coins(self, rows: int) -> Tensor:
        """Bring the noise of id 0 at step 0 back to a uniform."""
        coins = super().coins(rows)
        coins[:, 0] = -torch.expm1(-self.e[:, 0, 0])
        return coins


def coin_from_noise(setting: Setting) -> Any:
    """A coin takes the random bits that a draft was drawn with."""
    refuse_unreachable(setting)
    return SharesWithCoins(setting)


class DeafToSeeds(Reference):
    """Keeps the seed it was built with, whatever it is told."""

    def reseed(self, seed: int) -> None:
        """Restart the noise, but from the seed of the setting."""
        del seed
        super().reseed(self.setting["seed"])


def deaf_to_seeds(setting: Setting) -> Any:
    """A new seed restarts the noise and does not change it."""
    refuse_unreachable(setting)
    return DeafToSeeds(setting)


HERE = "tests.zoo.blocks"
SPECIMENS = (
    Specimen(
        "foreign_hidden",
        HERE,
        "Rows are gathered through an index that another stream still writes when a batch is too "
        "large for one launch, and now and then a sampled row drafts from the hidden state of the "
        "next. Tests of few rows, or of one request many times, cannot tell.",
        "vllm-project/vllm#56080",
        COUNTER,
        "block_law",
        "draft_law",
        "257 rows of requests that differ",
    ),
    Specimen(
        "foreign_token",
        HERE,
        "The Markov head gathers the previous token of a row through an index buffer that is "
        "prepared too late, so that some rows read the token of their neighbour.",
        "vllm-project/vllm#56080",
        COUNTER,
        "block_law",
        "independence",
        "5,000 blocks",
    ),
    Specimen(
        "heavy_tile",
        HERE,
        "The first tile of a vocabulary and the others are scaled by two code paths, which differ "
        "by a factor. Whatever is tested with a vocabulary of one tile is right.",
        "vllm-project/vllm-ascend#15118",
        COUNTER,
        "draft_law",
        "block_law",
        "100,000 draws at V = 16",
    ),
    Specimen(
        "heavy_far_tile",
        HERE,
        "As heavy_tile, with tiles of 512 ids. Laws that are counted id by id, over a vocabulary "
        "small enough for that, never leave the first tile.",
        "vllm-project/vllm-ascend#15118",
        COUNTER,
        "block_law",
        "draft_law",
        "3,000 draws at V = 1,024",
    ),
    Specimen(
        "rarely_shared_noise",
        HERE,
        "The random stream of a request that is resumed in another slot is set back to one that "
        "was used before, here that of the row it lands next to, for that one block. One pair of "
        "rows in a hundred is hit, never twice the same.",
        "lightseekorg/tokenspeed#1299",
        COUNTER,
        "independence",
        "draft_law",
        "12,000 pairs of rows",
    ),
    Specimen(
        "one_coin",
        HERE,
        "A sampler made for one token a step keys the coin of a request by one position, that "
        "before the block, and so every draft of the block is accepted or rejected by the same "
        "number.",
        "vllm-project/vllm#43340",
        COUNTER,
        "independence",
        "draft_law",
        "one block",
    ),
    Specimen(
        "coin_from_noise",
        HERE,
        "Draft noise and acceptance coin are keyed by the same seed and position. A token that "
        "won by its noise is then accepted by the same bits, and the output leans to the draft.",
        "vllm-project/vllm#47386",
        COUNTER,
        "independence",
        "draft_law",
        "2,000 blocks at V = 8",
    ),
    Specimen(
        "deaf_to_seeds",
        HERE,
        "A recorded graph remembers the seed of its capture. Seeding again resets the offset and "
        "nothing else, so that every run draws the tokens of the first.",
        "pytorch/pytorch#84967",
        COUNTER,
        "independence",
        "draft_law",
        "two seeds",
    ),
)
# Too rare for the sizes of the suite: judged at the profile ci.
RARE = (
    Specimen(
        "rare_foreign_token",
        HERE,
        "As foreign_token, in one block of a hundred. Every marginal over a step stays right to "
        "within what its test can see; the token next door explains what this row drew.",
        "vllm-project/vllm#56080",
        COUNTER,
        "block_law",
        "independence",
        "100,000 blocks",
    ),
)
