"""deep on the exported law: valid draw by draw, and it finds what the other streams cannot."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from oracle.judge import exported
from oracle.judge.evidence import Evidence
from oracle.judge.history import History
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.stream import KINDS, Kind, Stream
from oracle.judge.trial import Trial
from oracle.judge.verdict import Verdict
from oracle.subjects.reference import Reference

from .judging import context, probed
from .nights import grown, night_of

DRAFT, _, CLAIM = KINDS
CASE = "claim, dspark/counter"
EFFECT = 0.05


class Overstated(Reference):
    """Exports a temperature 5 % above the one that drew the token."""

    def read(self) -> dict[str, torch.Tensor]:
        """Answer with a temperature of its own making."""
        found = dict(super().read())
        return {**found, "temperature": found["temperature"] * 1.05}


@cache
def stream(subject: Factory, kind: Kind = CLAIM) -> Stream:
    """One stream of a subject."""
    base = probed(context(), subject)
    return Stream(kind, Trial(subject, base), base, "here", EFFECT)


def verdict(subject: Factory, kind: Kind = CLAIM) -> Verdict:
    """What some chunks decide."""
    night = night_of(EFFECT)
    source = stream(subject, kind)
    night.run = {**night.run, "cases": [source.case]}
    return grown(source, night, 6).closed("six chunks")[source.case]


def test_a_wrong_exported_temperature_is_violated() -> None:
    """Tokens follow the temperature that was asked for, so the drafted law is blind to it."""
    found = verdict(Overstated)
    assert found.outcome.value == "violated", found.reason
    assert "strongest is" in found.reason
    chunk = stream(Overstated, DRAFT).chunk(0)
    assert isinstance(chunk, Evidence)
    assert chunk.log_e.max() < 10


def test_a_correct_sampler_holds() -> None:
    """The stated effect is refuted, on the draws that are counted."""
    found = verdict(load_factory("reference"))
    assert found.outcome.value == "holds", found.reason


def outputs(**changed: Any) -> Mapping[str, torch.Tensor]:
    """Two rows of two draws over three ids."""
    logits = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 0.0, 0.5]]] * 2)
    heat, tokens = torch.tensor([0.5, 2.0]), torch.tensor([[0, 1], [2, 2]])
    return {"step_logits": logits, "temperature": heat, "tokens": tokens, **changed}


def history(**changed: Any) -> History:
    """One read of such outputs."""
    event = {"verb": "read", "outputs": outputs(**changed)}
    return replace(History("claim", "a case", {"vocabulary": 3}, {}, {}, {}, {}), events=[event])


def test_values_are_likelihood_ratios_of_the_exported_laws() -> None:
    """Against softmax(l / (T (1 + tilt))) over softmax(l / T), draw by draw."""
    source = stream(load_factory("reference"))
    seen = history()
    found = dict(zip(source.members, source.along(seen), strict=True))
    given = outputs()
    for tilt in (0.1, -0.3):
        expected = 0.0
        for row, heat in enumerate(given["temperature"].double()):
            logits = given["step_logits"][row].double()
            both = [torch.log_softmax(logits / (heat * s), -1) for s in (1 + tilt, 1.0)]
            for k, token in enumerate(given["tokens"][row].tolist()):
                expected += float(both[0][k, token] - both[1][k, token])
        assert found[f"T {100 * tilt:+g} %"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, ""),
        ({"temperature": torch.tensor([0.5, float("nan")])}, "are no law: NaN"),
        ({"step_logits": torch.tensor([[[0.0, 1.0, -torch.inf]] * 2] * 2)}, "law excludes"),
    ],
)
def test_what_needs_no_chance_is_a_sentence(changed: dict[str, Any], words: str) -> None:
    """No law, or an impossible token."""
    assert words in exported.fault(history(**changed))
    assert bool(exported.fault(history(**changed))) == bool(words)


def test_counts_are_those_of_the_check() -> None:
    """Every draw lies in one bin."""
    chunk = stream(load_factory("reference")).chunk(0)
    assert isinstance(chunk, Evidence)
    assert chunk.draws == 512 * 3 * 16
    assert np.abs(chunk.laws[0].counts - chunk.draws / 64).max() < 6 * np.sqrt(chunk.draws / 64)
