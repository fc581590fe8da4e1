"""What was seen of a subject, stored so that it can be judged again without it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import torch
from safetensors.torch import load_file, save_file

from .budget import ALPHA
from .protocol import Setting, Tensors

FORMAT = "draftproof-history-1"
SIZE_LIMIT = 256 * 2**20
SCHEMA = Path(__file__).parents[1] / "schema" / "history.json"


@dataclass
class History:
    """One case of one check: setting, inputs, and every event in order.

    events: mappings with the key 'verb' (a command name in lower case) and what was observed.
    error: text of what the subject raised, empty when it raised nothing.
    sums: by stage, what a statistical check counted, as in the schema of a report.
    alpha: false-alarm probability of the run that judged it. verdict: its 'outcome' and 'reason'.
    """

    check: str
    case: str
    setting: Setting
    inputs: Mapping[str, Tensors]
    notes: Mapping[str, Any]
    description: Mapping[str, Any]
    environment: Mapping[str, Any]
    reproduce: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    stages: int = 1
    error: str = ""
    rank: int = 0
    sums: dict[str, Any] = field(default_factory=dict)
    alpha: float = ALPHA
    verdict: Mapping[str, str] = field(default_factory=dict)

    def of(self, *verbs: str) -> list[dict[str, Any]]:
        """The events of these verbs, in order."""
        return [event for event in self.events if event["verb"] in verbs]


def packed(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Replace every tensor in a nested value by a reference, and collect the tensors."""
    if isinstance(value, torch.Tensor):
        name = f"t{len(tensors)}"
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, Mapping):
        return {str(key): packed(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [packed(item, tensors) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"a history holds plain values and tensors, observed {type(value).__name__}")


def unpacked(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Put the tensors back."""
    if isinstance(value, dict):
        if set(value) == {"tensor"}:
            return tensors[value["tensor"]]
        return {key: unpacked(item, tensors) for key, item in value.items()}
    if isinstance(value, list):
        return [unpacked(item, tensors) for item in value]
    return value


def save(history: History, stem: Path) -> None:
    """Write `stem`.json and `stem`.safetensors; ValueError above SIZE_LIMIT bytes of tensors."""
    tensors: dict[str, torch.Tensor] = {}
    body = packed(vars(history), tensors)
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > SIZE_LIMIT:
        raise ValueError(f"the history holds {size} bytes, required: at most {SIZE_LIMIT}")
    if not history.verdict:
        del body["verdict"]
    document = {"format": FORMAT, **body}
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    stem.parent.mkdir(parents=True, exist_ok=True)
    # Keys stay in order: of two mismatches the first is told, here and when it is judged again.
    text = json.dumps(document, indent=1)
    stem.with_name(stem.name + ".json").write_text(text)
    save_file(tensors, stem.with_name(stem.name + ".safetensors"))


def load(path: Path) -> History:
    """Read a stored history from its .json file (the .safetensors file lies beside it)."""
    document = json.loads(path.read_text())
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    tensors = load_file(path.with_suffix(".safetensors"))
    body = unpacked({key: item for key, item in document.items() if key != "format"}, tensors)
    return History(**body)
