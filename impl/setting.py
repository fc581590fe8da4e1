"""A judge's setting to the parts it asks for: configuration, plan, output head, Markov head.

The names of a setting are said where the judge defines them. What cannot be served is a
NotImplementedError with the reason.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .bias import KINDS, MarkovHead
from .buffers import STEP_DTYPES
from .confidence import ConfidenceHead
from .config import Config
from .logits import DENSE, BorrowedHead
from .plan import Plan
from .shards import Group, ProcessGroup

Setting = Mapping[str, Any]
DIALECTS = {"dflash": ("none",), "dspark": ("race", "counter")}


def refuse_unserved(setting: Setting) -> None:
    """Raise NotImplementedError, with the reason, for a setting that cannot be served."""
    family, dialect = setting["family"], setting["dialect"]
    if dialect not in DIALECTS.get(family, ()):
        raise NotImplementedError(
            f"family {family!r} with dialect {dialect!r}; there are {DIALECTS}"
        )
    if setting.get("markov", "vanilla") not in KINDS:
        raise NotImplementedError(f"Markov head {setting['markov']!r}; there are {list(KINDS)}")
    if setting["forward"] not in ("given", "backbone"):
        raise NotImplementedError(f"forward {setting['forward']!r}; there are given and backbone")
    if setting["engine"] not in ("emulator", "cuda", "eager"):
        raise NotImplementedError(f"engine {setting['engine']!r}; there are emulator, cuda, eager")
    if setting["head"].dtype not in DENSE:
        raise NotImplementedError(f"an output head of dtype {setting['head'].dtype}")
    if getattr(torch, setting["step_dtype"], None) not in STEP_DTYPES:
        raise NotImplementedError(f"step logits of dtype {setting['step_dtype']}")
    cuda = setting["device"].startswith("cuda")
    if cuda and not torch.cuda.is_available():
        raise NotImplementedError("device cuda, and none is visible")
    if setting["engine"] != "eager" and cuda != (setting["engine"] == "cuda"):
        raise NotImplementedError(f"engine {setting['engine']} on device {setting['device']}")
    if "shard_ranges" in setting and dialect == "race":
        raise NotImplementedError(
            "race noise over shards: its keys need the softmax over all ids; use 'counter'"
        )


def config_of(setting: Setting) -> Config:
    """The environment's configuration, where the setting has no word of its own."""
    found = Config.from_environment()
    greedy_draft = setting.get("greedy_draft", found.greedy_draft)
    noise, engine = setting["dialect"], setting["engine"]
    return replace(found, noise=noise, engine=engine, greedy_draft=greedy_draft)


def plan_of(setting: Setting) -> Plan:
    """What the setting asks a builder for; over ranks when it names shards."""
    group = group_of(setting)
    return Plan(
        drafts=setting["drafts"],
        vocabulary=setting["vocabulary"],
        buckets=tuple(setting["buckets"]),
        sample_from_anchor=setting["sample_from_anchor"],
        step_dtype=getattr(torch, setting["step_dtype"]),
        forward=setting["forward"],
        device=torch.device(setting["device"]),
        ranks=1 if group is None else group.size,
        mup=setting.get("mup", 1.0),
        confidence=confidence_of(setting),
        group=group,
    )


def group_of(setting: Setting) -> Group | None:
    """The processes that share the output head: `group`, or those of torchrun; None without."""
    if "shard_ranges" not in setting:
        return None
    group: Group = setting.get("group") or ProcessGroup()
    return group


def head_of(setting: Setting) -> BorrowedHead:
    """The head of the setting, or this rank's rows of it, where they lie.

    Stored rows past the vocabulary stay with the last rank.
    """
    weight: Tensor = setting["head"]
    group = group_of(setting)
    if group is None:
        return BorrowedHead(weight)
    ranges = tuple((int(start), int(end)) for start, end in setting["shard_ranges"])
    if len(ranges) != group.size:
        raise ValueError(f"shard_ranges names {len(ranges)} ranks; the group has {group.size}")
    start, end = ranges[group.rank]
    own = weight[start:] if group.rank == group.size - 1 else weight[start:end]
    return BorrowedHead(own, shard_ranges=ranges)


def markov_of(setting: Setting) -> MarkovHead | None:
    """The Markov head of a DSPARK setting, None for DFLASH."""
    if setting["family"] != "dspark":
        return None
    kind = setting.get("markov", "vanilla")
    return MarkovHead(setting["w1"], setting["w2"], kind, setting.get("w3"), setting.get("b3"))


def confidence_of(setting: Setting) -> ConfidenceHead | None:
    """The confidence head, None where the setting wants none."""
    weight = setting.get("confidence_weight")
    if weight is None:
        return None
    return ConfidenceHead(weight, setting["confidence_bias"], setting["confidence_sts"])
