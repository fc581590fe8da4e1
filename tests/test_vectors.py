"""Every recorded vector is run, recording is clean and repeatable, and a changed bit is noticed."""

import copy
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
import torch
from typer.testing import CliRunner

import impl.acceptance
import impl.choice
import impl.coins
import impl.draft
import impl.filters
import impl.gate
import impl.noise
from oracle.commands import app
from oracle.judge.vectors import store
from oracle.judge.vectors.form import unpacked

from .vectors import compiled, drafting, executing

FIXTURES = Path(__file__).parents[1] / "fixtures"
VECTORS, ANSWERS = FIXTURES / "vectors", FIXTURES / "kat" / "philox4x32_10.txt"
DOCUMENTS = store.read(VECTORS)
every_file = pytest.mark.parametrize("name", DOCUMENTS)


def last_of_ties(keys: torch.Tensor) -> torch.Tensor:
    """The highest id among the largest."""
    return keys.shape[-1] - 1 - torch.argmax(keys.flip(-1), -1)


def neighbours(shapes: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The first K query rows, the anchor's among them."""
    block = hidden.view(-1, shapes.query_rows, shapes.hidden)
    return block[:, : shapes.drafts]


# What a bug does to impl, and a group that notices it.
MUTANTS: list[tuple[ModuleType, str, Any, str]] = [
    (impl.choice, "largest", last_of_ties, "ties"),
    (impl.noise, "UNIFORM_MAX", 1.0, "uniform-ends"),
    (impl.noise, "ROUNDS", 7, "published"),
    (impl.noise, "WORD", 2**31 - 1, "carries"),
    (impl.coins, "DOMAIN", (0, 0), "coins"),
    (impl.acceptance, "residual", lambda target, *_: target, "chain-residual"),
    (impl.acceptance, "residual", lambda p, q, *_: (p - q).clamp(min=0), "block-ratio"),
    (impl.filters, "_renormalised", lambda mass, *_: mass, "filters"),
    (impl.draft, "queries", neighbours, "anchor-dropped"),
    (impl.gate, "SPARE_BYTES", 0, "build-dspark"),
]


@pytest.mark.parametrize(("module", "name", "value", "noticed"), MUTANTS)
def test_a_bug_in_impl_is_noticed_by_the_group_that_hunts_it(
    module: ModuleType, name: str, value: Any, noticed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some vector of the group complains."""
    monkeypatch.setattr(module, name, value)
    (of,) = (of for one in DOCUMENTS.values() for of in one["groups"] if of["id"] == noticed)
    assert any(receipt.complaints for receipt in executing.run({"groups": [of]}))


def places(document: Any) -> list[tuple[str, str]]:
    """Group and id of every vector."""
    return [(of["id"], one["id"]) for of in document["groups"] for one in of["cases"]]


@every_file
def test_every_vector_is_run_and_right(name: str) -> None:
    """A receipt for each vector that the file counts, and none with a complaint."""
    document = DOCUMENTS[name]
    receipts = executing.run(document)
    assert [receipt.place for receipt in receipts] == places(document)
    assert len(receipts) == document["count"]
    assert [receipt for receipt in receipts if receipt.complaints] == []


def test_blocks_are_right_in_a_replay_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group of blocks, each a replay of the recording."""
    monkeypatch.setattr(drafting, "ENGINE", "emulator")
    (plain,) = (of for of in DOCUMENTS["block.json"]["groups"] if of["id"] == "plain")
    receipts = executing.run({"groups": [plain]})
    assert [receipt.complaints for receipt in receipts] == [[]] * len(plain["cases"])


def test_a_vector_without_an_executor_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that nobody answers stops the run."""
    monkeypatch.delitem(executing.EXECUTORS, "choose")
    with pytest.raises(KeyError, match="choose"):
        executing.run(DOCUMENTS["choice.json"])


def flipped(entry: Any, place: int) -> Any:
    """An expected value with one element changed by one bit, one that a margin does not cover."""
    if isinstance(entry, str):
        return entry + "x"
    changed = copy.deepcopy(entry)
    if "values" in entry:
        changed["values"][place] ^= 1
        return changed
    bits = entry["bits"].split()
    mask = 1
    if "margin" in entry:
        # A sixteenth of the value, or from 0 to 2.
        mask = 1 << (62 if int(bits[place], 16) == 0 else 48)
    bits[place] = f"{int(bits[place], 16) ^ mask:0{len(bits[place])}x}"
    return {**changed, "bits": " ".join(bits)}


@every_file
def test_a_changed_bit_of_any_expected_value_is_noticed(name: str) -> None:
    """The last element of every expected array of one case in each group."""
    changed = 0
    for of in DOCUMENTS[name]["groups"]:
        one = of["cases"][-1]
        for key, entry in one["expected"].items():
            wrong = {**one, "expected": {**one["expected"], key: flipped(entry, -1)}}
            (receipt,) = executing.run({"groups": [{**of, "cases": [wrong]}]})
            assert [text.partition(":")[0] for text in receipt.complaints] == [key]
            changed += 1
    assert changed >= len(DOCUMENTS[name]["groups"])


def test_a_recipe_is_compared_with_its_checksum() -> None:
    """A changed key gives other values, and other values are refused."""
    (wide,) = (of for of in DOCUMENTS["choice.json"]["groups"] if of["id"] == "wide")
    entry = wide["cases"][0]["inputs"]["logits"]
    assert unpacked(entry).shape == (4, 768)
    spoilt = {**entry, "recipe": {**entry["recipe"], "key": "0" * 16}}
    with pytest.raises(ValueError, match="the recipe gives checksum"):
        unpacked(spoilt)


def call(folder: Path, *options: str) -> Any:
    """The command on a folder."""
    arguments = ["record", "--out", str(folder), "--kat", str(ANSWERS), *options]
    return CliRunner().invoke(app, arguments)


def test_recording_compares_refuses_and_replaces(tmp_path: Path) -> None:
    """Clean on what is committed; a changed bit is named, kept without --overwrite, then gone."""
    done = call(VECTORS, "--check")
    assert (done.exit_code, done.output) == (0, f"{len(DOCUMENTS)} files equal\n")
    assert call(tmp_path).exit_code == 0
    path = tmp_path / "words.json"
    text = path.read_text()
    assert "6627e8d5 e169c58d" in text
    spoilt = text.replace("6627e8d5 e169c58d", "6627e8d5 e169c58c")
    path.write_text(spoilt)
    done = call(tmp_path, "--check")
    assert done.exit_code == 1
    assert "groups published cases published-0 expected words bits 1" in done.output
    assert "'e169c58c', made now 'e169c58d'" in done.output
    assert call(tmp_path).exit_code == 1
    assert path.read_text() == spoilt
    assert call(tmp_path, "--overwrite").exit_code == 0
    assert path.read_text() == text
    (tmp_path / "other.json").write_text("{}")
    assert "other.json: recorded, but nothing makes it" in call(tmp_path, "--check").output


def test_published_answers_are_compared_before_they_are_recorded(tmp_path: Path) -> None:
    """A known answer that the reference does not give stops the recording."""
    wrong = tmp_path / "kat.txt"
    wrong.write_text(ANSWERS.read_text().replace("6627e8d5", "6627e8d4"))
    done = CliRunner().invoke(app, ["record", "--out", str(tmp_path), "--kat", str(wrong)])
    assert "the reference gives" in str(done.exception)
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"surplus": 1}, jsonschema.ValidationError),
        ({"format": "draftproof-vectors-0"}, jsonschema.ValidationError),
        ({"count": 1}, ValueError),
        ({"operations": {"other": "text"}}, ValueError),
    ],
)
def test_a_document_out_of_form_is_refused(change: dict[str, Any], error: type[Exception]) -> None:
    """By the schema, or by what a schema cannot say."""
    with pytest.raises(error):
        store.validate({**DOCUMENTS["words.json"], **change})


def test_files_are_small_and_none_is_missing() -> None:
    """Under 100 kB each; published vectors are among them with their licence."""
    assert all(len((VECTORS / name).read_bytes()) < store.BYTES_MAX for name in DOCUMENTS)
    (published,) = (of for of in DOCUMENTS["words.json"]["groups"] if of["id"] == "published")
    assert published["licence"].startswith("BSD-3-Clause")
    assert len(published["cases"]) == len(ANSWERS.read_text().splitlines()) - 3
    assert json.loads(store.laid_out(DOCUMENTS["words.json"])) == DOCUMENTS["words.json"]


@pytest.mark.skipif(compiled.COMPILER is None, reason="no C compiler is on the path")
def test_a_program_in_c_passes_the_vectors_it_knows_and_notices_a_changed_bit(
    tmp_path: Path,
) -> None:
    """One receipt a vector, each of them right; then three wrong values, each named."""
    program = compiled.built(tmp_path)
    text, expected = compiled.text_of(DOCUMENTS)
    assert compiled.answers(program, text) == [f"ok {place}" for place in expected]
    assert len(expected) >= 200
    for operation, field in (("philox", "words"), ("choose", "tokens"), ("accept", "bonus")):
        (document, of) = next(
            (document, of)
            for document in DOCUMENTS.values()
            for of in document["groups"]
            if of["operation"] == operation
        )
        one = of["cases"][0]
        wrong = {**one["expected"], field: flipped(one["expected"][field], 0)}
        spoilt = {**document, "groups": [{**of, "cases": [{**one, "expected": wrong}]}]}
        text, (place,) = compiled.text_of({"f": spoilt})
        assert compiled.answers(program, text) == [f"bad {place} {field}"]
