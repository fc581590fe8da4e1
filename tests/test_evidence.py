"""Evidence adds exactly, in any order, and refuses what does not belong together."""

import json
import math
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from oracle.judge.bank import log_values
from oracle.judge.evidence import (
    LOG_BOUND,
    SCHEMA,
    Evidence,
    EvidenceError,
    Law,
    add,
    digest_of,
    document,
    on_grid,
    pieces_of,
    store,
    stored,
)
from oracle.judge.sequential import Rule, bank_of, decide
from oracle.judge.significance import Floats

LAW = np.array([[0.30, 0.20, 0.15, 0.12, 0.10, 0.07, 0.04, 0.02]])
RUN = {
    "seed": 0,
    "shard": 1,
    "shards": 1,
    "alpha": 1e-6,
    "effect": 0.01,
    "bound": 1e-3,
    "cases": ["a case"],
}


def piece(seed: int, law: Floats = LAW, run: int = 0, draws: int = 5000) -> Evidence:
    """Evidence of some draws of a law."""
    log_law = np.log(law)
    counts = np.random.default_rng(seed).multinomial(draws, law)
    bank = bank_of(log_law, 1.0, 0.01)
    return Evidence(
        "a case",
        "a subject",
        {"torch": "1"},
        tuple(member.name for member in bank),
        on_grid(log_values(counts, bank)),
        (Law(run, digest_of(log_law), counts),),
        frozenset({seed}),
    )


def test_one_law_adds_counts_exactly_in_any_order() -> None:
    """Four shards are the long run: counts, seeds and every log e-value bit for bit."""
    parts = [piece(seed) for seed in range(4)]
    sums = []
    for order in permutations(parts):
        total = order[0]
        for part in order[1:]:
            total = add(total, part)
        sums.append(document(RUN, [total]))
    assert all(each == sums[0] for each in sums)
    whole = pieces_of(sums[0])[0]
    assert whole.draws == 20_000
    assert np.array_equal(whole.laws[0].counts, sum(part.laws[0].counts for part in parts))
    exact = log_values(whole.laws[0].counts, bank_of(np.log(LAW), 1.0, 0.01))
    unbounded = exact > LOG_BOUND
    assert unbounded.sum() > len(exact) / 2
    assert np.allclose(whole.log_e[unbounded], exact[unbounded], atol=1e-8)


def test_different_laws_add_logs_member_by_member_before_the_mean() -> None:
    """The mean is taken last: averaging each law's e-values first would give another number."""
    one, other = piece(1), piece(2, LAW[:, ::-1].copy(), run=1, draws=9000)
    total = add(one, other)
    assert np.array_equal(total.log_e, one.log_e + other.log_e)
    assert [law.run for law in total.laws] == [0, 1]
    assert total.draws == 14_000
    backwards = add(other, one)
    assert document(RUN, [total]) == document(RUN, [backwards])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"case": "another"}, "cases differ: 'a case' and 'another'"),
        ({"subject": "foe"}, "subjects differ: 'a subject' and 'foe'"),
        ({"versions": {"torch": "2"}}, "versions differ: {'torch': '1'} and {'torch': '2'}"),
        ({"members": ("T +1 %",)}, "banks differ: .* and .'T \\+1 %',"),
        ({"seeds": frozenset({7, 1})}, "1 seeds of 'a case' are counted on both sides, 1 among"),
    ],
)
def test_what_does_not_belong_together_is_refused(change: dict, words: str) -> None:
    """Both sides are named, and nothing is added."""
    with pytest.raises(EvidenceError, match=words):
        add(piece(1), replace(piece(2), **change))


def test_a_foreign_law_within_one_run_is_refused() -> None:
    """One run has one law: a shard of another one was not drawn from the same inputs."""
    foreign = piece(2, LAW[:, ::-1].copy())
    with pytest.raises(EvidenceError, match=r"digests of the law of run 0 differ: '.{64}' and"):
        add(piece(1), foreign)


def test_a_digest_names_a_law_and_not_its_last_bits() -> None:
    """Shape and values count; what machines round differently does not."""
    log_law = np.log(LAW)
    assert digest_of(log_law) == digest_of(log_law + 1e-14)
    assert digest_of(log_law) != digest_of(log_law + 1e-6)
    assert digest_of(log_law) != digest_of(log_law.reshape(2, 4))


def test_impossible_and_tiny_values_are_bounded() -> None:
    """JSON has no infinity; an e-value is never rounded up, but to its bound."""
    values = np.array([-np.inf, -1e6, -0.3, 12.7])
    found = on_grid(values)
    assert math.isclose(found[0], math.log(1e-300), abs_tol=1e-8)
    assert found[0] == found[1]
    assert (found[2:] <= values[2:]).all()
    assert np.allclose(found[2:], values[2:], atol=1e-9)
    assert found[0] <= LOG_BOUND
    for bad in (np.inf, np.nan):
        with pytest.raises(EvidenceError, match="required: below infinity"):
            on_grid(np.array([0.0, bad]))


def test_a_document_survives_storage(tmp_path: Path) -> None:
    """Counts, values and seeds of 63 bits come back as they were, and nothing lies beside them."""
    one = replace(piece(1), seeds=frozenset({2**63 - 1, 5}))
    found = document(RUN, [one])
    store(tmp_path / "state.json", found)
    again = stored(tmp_path / "state.json")
    assert document(again["run"], pieces_of(again)) == found
    assert pieces_of(again)[0].seeds == one.seeds
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    """The new text replaces the old one whole, or not at all."""
    path = tmp_path / "state.json"
    found = document(RUN, [piece(1)])
    store(path, found)
    with pytest.raises(ValueError, match="JSON compliant"):
        store(path, {**found, "run": {"alpha": math.nan}})
    assert stored(path) == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "state.json cannot be read"),
        ("{}", "state.json is no evidence: 'format' is a required property"),
        ('{"format": "draftproof-history-1"}', "is no evidence"),
    ],
)
def test_a_file_that_is_no_evidence_is_named(text: str, words: str, tmp_path: Path) -> None:
    """Cut, foreign and empty files."""
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(EvidenceError, match=words):
        stored(tmp_path / "state.json")


def test_a_document_that_contradicts_itself_is_refused() -> None:
    """Draws that were edited no longer add up; a value that is no number breaks the schema."""
    found = document(RUN, [piece(1)])
    edited = json.loads(json.dumps(found))
    edited["evidence"][0]["draws"] += 1
    with pytest.raises(EvidenceError, match="stated and counted, differ: 5001 and 5000"):
        pieces_of(edited)
    moved = {**found, "run": {**RUN, "cases": ["another"]}}
    with pytest.raises(EvidenceError, match="evidence of 'a case', required: of one of"):
        pieces_of(moved)
    short = json.loads(json.dumps(found))
    short["evidence"][0]["log_e"].pop()
    with pytest.raises(EvidenceError, match="named and valued, differ"):
        pieces_of(short)
    short["evidence"][0]["log_e"].append("much")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(short, json.loads(SCHEMA.read_text()))


def test_the_merged_verdict_is_that_of_the_sum() -> None:
    """Shards that decide nothing alone decide together."""
    rule = Rule(1e-6, 0.01)
    parts = [piece(seed, draws=200_000) for seed in range(8)]
    assert all(decide(part, rule) is None for part in parts)
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    verdict = decide(total, rule)
    assert verdict is not None
    assert verdict.used == 1_600_000
