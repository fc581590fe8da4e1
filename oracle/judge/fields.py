"""Whether a mapping of tensors has the fields, shapes and dtypes that the protocol demands."""

from collections.abc import Iterable, Mapping

from .protocol import OUTPUTS, Field, Setting, Tensors
from .walk import name_of


class MalformedError(Exception):
    """A mapping of the subject breaks the protocol; the text says which field and how."""


def dimensions(setting: Setting, rows: int) -> dict[str, int]:
    """The value of every dimension letter for one step."""
    drafts = setting["drafts"]
    return {
        "B": rows,
        "K": drafts,
        "K+1": drafts + 1,
        "Q": drafts if setting["sample_from_anchor"] else drafts + 1,
        "V": setting["vocabulary"],
        "D": setting["head"].shape[1],
    }


def validate(outputs: Tensors, setting: Setting, rows: int, abilities: Iterable[str]) -> None:
    """Check the outputs of one block: presence, shape and dtype of every field."""
    required = {"tokens"}
    if "FLAGS" in abilities:
        required |= {"flags"}
    if "CLAIMS" in abilities:
        required |= {"step_logits", "temperature", "greedy"}
    if setting["forward"] == "backbone":
        required |= {"hidden"}
    if "CONFIDENCE" in abilities and "confidence_weight" in setting:
        required |= {"confidence", "confidence_raw", "confidence_flags"}
    check_fields("read()", outputs, OUTPUTS, required, setting, rows)


def check_fields(
    verb: str,
    given: Tensors,
    fields: Mapping[str, Field],
    required: set[str],
    setting: Setting,
    rows: int,
) -> None:
    """Check a mapping of tensors: what is required is there, and everything has its form."""
    missing = sorted(required - set(given))
    if missing:
        raise MalformedError(f"{verb} lacks {missing}, required by the claimed abilities")
    letters = dimensions(setting, rows)
    names = {"head": name_of(setting["head"].dtype), "step": setting["step_dtype"]}
    for name, tensor in given.items():
        if name not in fields:
            raise MalformedError(f"{verb} holds {name!r}, required: one of {sorted(fields)}")
        field = fields[name]
        shape = tuple(letters[letter] for letter in field.shape.split())
        dtype = names.get(field.dtype, field.dtype)
        seen = name_of(tensor.dtype)
        if tuple(tensor.shape) != shape or seen != dtype:
            raise MalformedError(
                f"{name} is {seen} {tuple(tensor.shape)}, required: {dtype} {shape}"
            )
