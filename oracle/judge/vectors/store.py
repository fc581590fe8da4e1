"""The files of vectors: made, written, compared, validated."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import jsonschema

from . import accepts, blocks, choices, gating, laws, targets, words
from .form import FORMAT, Entry

SCHEMA = Path(__file__).parents[2] / "schema" / "vectors.json"
BYTES_MAX = 100_000


class DiffersError(ValueError):
    """A recorded file is not what would be recorded now."""


@cache
def made(known_answers: str) -> Mapping[str, str]:
    """Every file by name, as text; known_answers the published answers of Philox, as text.

    ValueError: a file over BYTES_MAX, an id that occurs twice. jsonschema.ValidationError: a file
    that the schema refuses.
    """
    nouns = {
        "words": (words.OPERATIONS, words.groups(known_answers)),
        "choice": (choices.OPERATIONS, choices.groups()),
        "accept_chain": (accepts.OPERATIONS, accepts.groups("chain")),
        "accept_block": (accepts.OPERATIONS, accepts.groups("block")),
        "block": (blocks.OPERATIONS, blocks.groups()),
        "gate": (gating.OPERATIONS, gating.groups()),
        "law": (laws.OPERATIONS, laws.groups()),
        "target": (targets.OPERATIONS, targets.groups()),
    }
    texts = {}
    for noun, (operations, groups) in nouns.items():
        cases = [one["id"] for of in groups for one in of["cases"]]
        document: Entry = {
            "format": FORMAT,
            "noun": noun,
            "operations": operations,
            "count": len(cases),
            "groups": groups,
        }
        validate(document)
        texts[f"{noun}.json"] = laid_out(document)
    for name, text in texts.items():
        if len(text.encode()) >= BYTES_MAX:
            raise ValueError(f"{name} has {len(text)} bytes, required: below {BYTES_MAX}")
    return texts


def validate(document: Entry) -> None:
    """Compare a document with the schema, its count with its cases, and its ids with one another.

    jsonschema.ValidationError, or ValueError.
    """
    jsonschema.validate(document, json.loads(SCHEMA.read_text()))
    for of in document["groups"]:
        if of["operation"] not in document["operations"]:
            raise ValueError(f"group {of['id']}: operation {of['operation']!r} is not described")
        names = [one["id"] for one in of["cases"]]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"group {of['id']}: id {twice[0]!r} occurs twice, required: once")
    total = sum(len(of["cases"]) for of in document["groups"])
    if document["count"] != total:
        raise ValueError(f"count is {document['count']}, required {total}, the number of cases")


def laid_out(document: Entry) -> str:
    """A document as JSON with one case a line, so that a difference is short to read."""
    slots: list[str] = []

    def held(one: Entry) -> str:
        slots.append(json.dumps(one, separators=(",", ":"), allow_nan=False))
        return f"@case {len(slots) - 1}@"

    groups = [{**of, "cases": [held(one) for one in of["cases"]]} for of in document["groups"]]
    text = json.dumps({**document, "groups": groups}, indent=1, allow_nan=False)
    for number, slot in enumerate(slots):
        text = text.replace(f'"@case {number}@"', slot, 1)
    return text + "\n"


def read(folder: Path) -> dict[str, Entry]:
    """Every file of a folder by name, validated. ValueError when there is none."""
    documents = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    if not documents:
        raise ValueError(f"{folder} holds no vectors")
    for document in documents.values():
        validate(document)
    return documents


def difference(texts: Mapping[str, str], folder: Path) -> str | None:
    """The first difference between what would be recorded and what a folder holds, in words."""
    present = {path.name for path in folder.glob("*.json")} if folder.is_dir() else set()
    extra = sorted(present - set(texts))
    if extra:
        return f"{extra[0]}: recorded, but nothing makes it"
    for name, text in texts.items():
        if name not in present:
            return f"{name}: not recorded"
        found = (folder / name).read_text()
        if found != text:
            return f"{name}: {first_difference(json.loads(text), parsed(found))}"
    return None


def parsed(text: str) -> object:
    """A JSON text, or None where it is none."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def first_difference(made_now: object, found: object, place: str = "") -> str:
    """Where two documents first differ: the path of ids and names, and both values."""
    if isinstance(made_now, dict) and isinstance(found, dict):
        pairs = [(key, part, found.get(key)) for key, part in made_now.items()]
        pairs += [(key, None, part) for key, part in found.items() if key not in made_now]
    elif isinstance(made_now, list) and isinstance(found, list) and len(made_now) == len(found):
        pairs = [
            (one.get("id", number) if isinstance(one, dict) else number, one, found[number])
            for number, one in enumerate(made_now)
        ]
    elif " " in str(made_now) and len(str(made_now)) == len(str(found)):
        return first_difference(str(made_now).split(), str(found).split(), place)
    else:
        pairs = []
    for name, one, other in pairs:
        if one != other:
            return first_difference(one, other, f"{place} {name}")
    return f"{place.strip() or 'layout'}: recorded {found!r}, made now {made_now!r}"[:300]


def write(texts: Mapping[str, str], folder: Path, *, overwrite: bool) -> list[str]:
    """Write every file; returns the names of those that changed.

    DiffersError: a file is there and holds something else, and `overwrite` is False; nothing is
    written then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for name, text in texts.items():
        path = folder / name
        if path.is_file() and path.read_text() == text:
            continue
        if path.is_file() and not overwrite:
            found = first_difference(json.loads(text), parsed(path.read_text()))
            raise DiffersError(f"{name}: {found}")
        changed.append(name)
    for name in changed:
        (folder / name).write_text(texts[name])
    return changed
