"""What SGLang's sampler borrows of a draft model: genuine heads with the weights of a setting."""

from types import SimpleNamespace
from typing import Any

import torch

from ...judge.protocol import Setting
from .shipped import HEADS, modules

KINDS = {"vanilla": "VanillaMarkov", "gated": "GatedMarkovHead", "rnn": "RNNHead"}
JOINTS = {"gated": "gate_proj", "rnn": "joint_proj"}


def markov_head(setting: Setting) -> Any:
    """A genuine Markov head with the weights of a setting."""
    kind, (vocabulary, rank) = setting.get("markov", "vanilla"), setting["w1"].shape
    shape = {"vocab_size": vocabulary, "markov_rank": rank}
    wide = {} if kind == "vanilla" else {"hidden_size": setting["head"].shape[1]}
    made = getattr(modules()[HEADS], KINDS[kind])(**shape, **wide)
    made.markov_w1.weight = parameter(setting["w1"])
    made.markov_w2.weight = parameter(setting["w2"])
    if kind in JOINTS:
        joint = getattr(made, JOINTS[kind])
        joint.weight, joint.bias = parameter(setting["w3"]), parameter(setting["b3"])
    return made


def confidence_head(setting: Setting) -> Any:
    """A genuine confidence head with the weights of a setting, or None."""
    if "confidence_weight" not in setting:
        return None
    weight, width = setting["confidence_weight"], setting["head"].shape[1]
    with_markov = weight.shape[1] > width
    made = modules()[HEADS].DSparkConfidenceHead(
        hidden_size=width, markov_rank=setting["w1"].shape[1], with_markov=with_markov
    )
    made.proj.weight, made.proj.bias = parameter(weight), parameter(setting["confidence_bias"])
    made.sts_temperatures = setting["confidence_sts"]
    return made


def parameter(values: torch.Tensor) -> torch.nn.Parameter:
    """Values as a weight, in their own memory."""
    return torch.nn.Parameter(values, requires_grad=False)


def draft_model(setting: Setting) -> Any:
    """What the sampler asks of a draft model: head, base logits, Markov and confidence heads."""
    mixin = modules()[HEADS].DSparkDraftMixin
    model = SimpleNamespace(
        markov_head=markov_head(setting),
        confidence_head=confidence_head(setting),
        sample_from_anchor=setting["sample_from_anchor"],
        lm_head=SimpleNamespace(
            weight=setting["head"], org_vocab_size=setting["vocabulary"], quant_method=None
        ),
        logits_mup_width_multiplier=setting.get("mup", 1.0),
        _base_logits_gatherer=None,
    )
    for name in ("compute_base_logits", "compute_confidence"):
        setattr(model, name, getattr(mixin, name).__get__(model))
    return model
