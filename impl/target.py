"""Target: what a verify step hands to an accept, and what is refused before a commit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .acceptance import RULES

THRESHOLDS = ("threshold", "threshold_single", "threshold_acc")
ADJUSTERS = ("penalties", "processors", "logit_bias")
NEEDED = ("target_logits", "top_p", "verify_len", "prefix_len", "rule")
FACTS = ("logit_adjustment", "live_grammar")


class Refused(NotImplementedError, ValueError):  # noqa: N818  (an answer, not a fault)
    """An accept that cannot be honoured; `name` says what, in a few fixed words.

    An ability that is missing and a value that is wrong, so that a caller may catch either.
    """

    def __init__(self, name: str, found: str) -> None:
        super().__init__(f"{name}: {found}")
        self.name = name


@dataclass(frozen=True)
class Target:
    """What the target says of a drafted block.

    logits     [B, K + 1, V] float32: row t is the law after candidate t
    top_p      [B] float32 in (0, 1]
    verify_len [B] int64: rows that may be used, in [0, K + 1]; 0 commits nothing
    prefix_len [B] int64: committed length before the block
    rule       'chain' or 'block': how sampled rows are accepted
    logit_adjustment  the logits were changed after the verify graph made them
    live_grammar      a grammar constrains some row
    """

    logits: Tensor
    top_p: Tensor
    verify_len: Tensor
    prefix_len: Tensor
    rule: str
    logit_adjustment: bool = False
    live_grammar: bool = False

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Target":
        """Take the fields by name; `logits` is called `target_logits`.

        Refused: a sampling parameter that no accept here applies. KeyError: a field is missing.
        """
        for name, value in given.items():
            if name == "min_p":
                if bool((torch.as_tensor(value) != 0).any()):
                    raise Refused("min_p", f"is {value}; it should be 0")
            elif name in THRESHOLDS:
                if bool((torch.as_tensor(value) != 1).any()):
                    raise Refused("lossy threshold", f"{name} is {value}; it should be 1")
            elif name in ADJUSTERS:
                if value is not None and len(value) > 0:
                    raise Refused(name, "change the target logits; apply them before the accept")
            elif name not in (*NEEDED, *FACTS):
                raise Refused(name, "no accept here knows this parameter")
        values = [given[name] for name in NEEDED]
        return cls(*values, *(bool(given.get(name, False)) for name in FACTS))

    def check(self, rows: int, drafts: int, vocabulary: int) -> None:
        """Compare with the block that was drafted; waits for the device.

        rows, drafts, vocabulary  B, K and V of the block

        Refused: another vocabulary, an unknown rule, top_p outside (0, 1]. ValueError: shapes that
        do not belong to the block, a verify length outside [0, K + 1].
        """
        if self.rule not in RULES:
            raise Refused("unknown rule", f"{self.rule!r}; it should be one of {list(RULES)}")
        if self.logits.shape[-1] != vocabulary:
            raise Refused(
                "draft vocabulary differs",
                f"the target has {self.logits.shape[-1]} ids, the draft {vocabulary}",
            )
        inner = {"logits": (drafts + 1, vocabulary)}
        for name in ("logits", "top_p", "verify_len", "prefix_len"):
            shape = (rows, *inner.get(name, ()))
            found = tuple(getattr(self, name).shape)
            if found != shape:
                raise ValueError(f"{name} has shape {found}; the block needs {shape}")
        for row, share in enumerate(self.top_p.tolist()):
            if not 0 < share <= 1:
                raise Refused("top_p", f"row {row} has {share}; it should be in (0, 1]")
        for row, length in enumerate(self.verify_len.tolist()):
            if not 0 <= length <= drafts + 1:
                raise ValueError(
                    f"row {row} has verify length {length}; it should be in [0, {drafts + 1}]"
                )
