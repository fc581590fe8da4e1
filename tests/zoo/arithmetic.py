"""Wrong numbers in one stage."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from impl.stages import Stages
from impl.subject import factory
from oracle.subjects.torch_ops import Multinomial

from .specimen import Specimen, Wrapped

Setting = Mapping[str, Any]
Choice = Callable[..., None]
DEAD_ID = 700
COUNTER = ("dspark", "counter")


def kept_before_bias(setting: Setting) -> Any:
    """The kept logits are the base logits; tokens are drawn from the corrected ones."""
    corrected: list[Tensor] = []

    def broken(stages: Stages) -> Stages:
        def step(base: Tensor, bias: Tensor, out: Tensor) -> None:
            corrected[:] = [(base.float() + bias.float()).to(out.dtype)]
            out.copy_(base)

        def choice(_: Tensor, *rest: Any) -> None:
            stages.choice(corrected[0], *rest)

        return stages._replace(step=step, choice=choice)

    return factory(setting, stages=broken)


def hotter(setting: Setting) -> Any:
    """Tokens are drawn at a temperature 0.12 % above the staged one."""

    def broken(stages: Stages) -> Stages:
        def choice(logits: Tensor, temperature: Tensor, *rest: Any) -> None:
            stages.choice(logits, temperature * 1.0012, *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=broken)


def rounded_before_draw(setting: Setting) -> Any:
    """Tokens are drawn from logits in bfloat16; what is kept is whole."""

    def broken(stages: Stages) -> Stages:
        def choice(logits: Tensor, *rest: Any) -> None:
            stages.choice(logits.bfloat16().to(logits.dtype), *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=broken)


def dead_id(setting: Setting) -> Any:
    """One id, 700, is never drawn."""

    def broken(stages: Stages) -> Stages:
        def choice(logits: Tensor, *rest: Any) -> None:
            alive = logits.clone()
            if alive.shape[-1] > DEAD_ID:
                alive[..., DEAD_ID] = -torch.inf
            stages.choice(alive, *rest)

        return stages._replace(choice=choice)

    return factory(setting, stages=broken)


def nan_leaves_vocabulary(setting: Setting) -> Any:
    """A row of NaN logits yields the id V."""

    def broken(stages: Stages) -> Stages:
        def choice(logits: Tensor, *rest: Any) -> None:
            tokens = rest[3]
            stages.choice(logits, *rest)
            lost = logits.isnan().any(-1)
            tokens.copy_(torch.where(lost, logits.shape[-1], tokens))

        return stages._replace(choice=choice)

    return factory(setting, stages=broken)


class Requested(Wrapped):
    """Exports the temperature that was asked for, not the clamped one that drew the token."""

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Remember what was asked for."""
        self.asked = inputs["temperature"].clone()
        self.inside.load(inputs)

    def read(self) -> dict[str, Tensor]:
        """Answer with the remembered temperature."""
        return {**self.inside.read(), "temperature": self.asked}


def unclamped_claim(setting: Setting) -> Any:
    """The exported temperature is not the one that drew the token."""
    return Requested(factory(setting))


class Tilted(Multinomial):
    """torch.multinomial at 1.2 times the temperature; shows nothing of its noise."""

    def load(self, inputs: Mapping[str, Tensor]) -> None:
        """Load the inputs hotter than they are."""
        super().load({**inputs, "temperature": inputs["temperature"] * 1.2})


def foreign_tilt(setting: Setting) -> Any:
    """A sampler that shows no noise draws at 1.2 times the temperature."""
    if setting["family"] != "dspark" or setting["forward"] != "given":
        raise NotImplementedError("it draws dspark blocks from given hidden states")
    return Tilted(setting)


class KeepsAllButOne(Multinomial):
    """torch.multinomial over the V - 1 most likely ids."""

    def law(self, logits: Tensor) -> Tensor:
        """Leave the least likely id out; multinomial normalises what is left."""
        law = super().law(logits)
        return law.scatter(-1, law.argmin(-1, keepdim=True), 0.0)


def rarest_id(setting: Setting) -> Any:
    """Each context's least likely id is never drawn."""
    if setting["family"] != "dspark" or setting["forward"] != "given":
        raise NotImplementedError("it draws dspark blocks from given hidden states")
    return KeepsAllButOne(setting)


HERE = "tests.zoo.arithmetic"
SPECIMENS = (
    Specimen(
        "kept_before_bias",
        HERE,
        "The buffer that the accept reads as the draft's logits is filled before the Markov "
        "correction is added, so q is not the law that the tokens came from.",
        "huggingface/transformers#47932",
        COUNTER,
        "equality",
        "draft_law",
        "one sampled row",
    ),
    Specimen(
        "hotter",
        HERE,
        "The step kernel divides by a temperature that is rounded on its way into the recording; "
        "tokens are drawn 0.12 % too hot, and no marginal test of a sane size sees it.",
        "deepseek-ai/DeepSpec#31",
        COUNTER,
        "coupled",
        "draft_law",
        "7,000 draws with known noise",
    ),
    Specimen(
        "rounded_before_draw",
        HERE,
        "The sampling kernel takes the logits in the dtype of the model, and the exported law is "
        "made from the float32 ones. A token in five hundred is another than the law would draw.",
        "deepseek-ai/DeepSpec#31",
        COUNTER,
        "coupled",
        "spike",
        "2,600 draws at V = 128",
    ),
    Specimen(
        "dead_id",
        HERE,
        "A write of a tile reaches one entry too far and masks its neighbour, so one id of the "
        "vocabulary can never be drawn. Its share of the mass is far below what counts can notice.",
        "vllm-project/vllm-ascend#11419",
        COUNTER,
        "spike",
        "draft_law",
        "V > 700",
    ),
    Specimen(
        "nan_leaves_vocabulary",
        HERE,
        "A reduction that skips NaN finds no winner in a row of NaN logits and stores its initial "
        "value, an id past the vocabulary.",
        "vllm-project/vllm#53029",
        ("dflash", "none"),
        "bounds",
        "equality",
        "one NaN logit",
    ),
    Specimen(
        "unclamped_claim",
        HERE,
        "Draft and accept clamp the temperature separately; between 1e-6 and 1e-5 the exported "
        "law is not the one that drew the token.",
        "NVIDIA/TensorRT-LLM#15716",
        COUNTER,
        "equality",
        "coupled",
        "one row at T = 3e-6",
    ),
    Specimen(
        "foreign_tilt",
        HERE,
        "A draft sampler draws at a temperature of its own instead of the request's. It shows no "
        "noise, so only its draws can tell.",
        "z-lab/dflash#74",
        COUNTER,
        "draft_law",
        "equality",
        "100,000 draws at V = 16",
    ),
    Specimen(
        "rarest_id",
        HERE,
        "Without a top-k the sampler still draws from a list of candidates, one shorter than the "
        "vocabulary: the least likely id of each context never comes. Its mass is so small that "
        "chi-square merges it with other cells, and lets it pass.",
        "signalnine/q27#16",
        COUNTER,
        "draft_law",
        "equality",
        "100,000 draws at V = 16",
    ),
)
