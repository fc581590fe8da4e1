"""The command `decode`: what it prints and stores over a tiny model, and what it refuses."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from oracle import decoder
from oracle.commands import app
from oracle.judge.reading import Model
from oracle.workloads.smollm2 import MissingError

from .decoding_rig import Tiny, setting, states_of


class Tools:
    """A tiny model in the place of the real one; a word is the number of its letters."""

    def __init__(self) -> None:
        self.network = Tiny()
        self.model = SimpleNamespace(tokenizer=SimpleNamespace(decode=lambda ids: f" {ids[0]}"))
        self.reader = Model(lambda text: states_of(self.network, text), self.network.head)

    def request(self, question: str, **parameters: Any) -> dict[str, Any]:
        """Lengths of words."""
        prompt = torch.tensor([len(word) for word in question.split()])
        return {"prompt": prompt, "stop": (), **parameters}

    def setting(self, *given: Any) -> dict[str, Any]:
        """The tiny setting, with what the command chose."""
        _, kind, seed, engine, device = given
        return {**setting(self.network, kind, seed=seed, engine=engine), "device": device}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """No real model."""
    monkeypatch.setattr(decoder, "opened", lambda _console: Tools())


def call(*words: str) -> tuple[int, str]:
    """Exit code and output, unwrapped."""
    done = CliRunner().invoke(app, ["decode", *words], env={"COLUMNS": "400"})
    return done.exit_code, done.output


@pytest.mark.usefixtures("tiny")
def test_greedy_run_is_compared_judged_and_stored(tmp_path: Path) -> None:
    """The text, its steps, 'identical', a line a check; what is stored is judged again."""
    words = ("--prompt", "one two three", "--prompt", "a bb", "--length", "20", "--compare")
    code, output = call(*words, "--engine", "emulator", "--save", str(tmp_path / "kept"))
    assert code == 0, output
    assert "prompt 1: identical, 20 tokens" in output
    assert "prompt 2: identical, 20 tokens" in output
    assert "blocks folded: 100%" in output
    assert "holds: decode_identity: 2 of 2 texts identical to plain decoding" in output
    assert "exit code 0" in output
    done = CliRunner().invoke(app, ["judge", str(tmp_path / "kept")])
    assert done.exit_code == 0
    assert "3 histories judged, 3 as stored" in done.output


@pytest.mark.usefixtures("tiny")
def test_sampled_run_is_judged_and_drawn(tmp_path: Path) -> None:
    """Eager accepts say why; the picture is written."""
    words = ("--temperature", "0.9", "--top-p", "0.9", "--prompt", "one two", "--length", "40")
    path = tmp_path / "figure.svg"
    code, output = call(*words, "--engine", "emulator", "--kind", "rnn", "--figure", str(path))
    assert code == 0, output
    assert "accepts folded: 0%; eager: sampled rows" in output
    assert "holds: decode_law" in output
    assert path.read_text().startswith("<svg")


def test_difference_is_told_by_its_first_token() -> None:
    """The texts part at a token, or where one of them ends."""
    run: Any = SimpleNamespace(texts=[[1, 2, 3], [4], [5]])
    model: Any = Tools().model
    assert decoder.difference(model, run, [[1, 9, 3], [4, 4], [5]]) == [
        "prompt 1: first difference at token 1: ' 2', plain ' 9'",
        "prompt 2: first difference at token 1: its end, plain ' 4'",
        "prompt 3: identical, 1 tokens",
    ]


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("--compare", "--temperature", "1"), "required with --compare: temperature 0"),
        (("--kind", "wide"), "kind is 'wide', required: one of vanilla, gated, rnn"),
        (("--top-p", "0"), "top-p is 0.0, required: in (0, 1]"),
        (("--subject", "nowhere"), "subject 'nowhere' is not known"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(words: tuple[str, ...], wanted: str) -> None:
    """Exit code 2 and a sentence."""
    code, output = call(*words)
    assert code == 2
    assert wanted in " ".join(output.replace("│", " ").split())


def test_missing_model_is_not_applicable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3 and the line that says how to install it."""

    def missing(_console: Any) -> None:
        raise MissingError("install this")

    monkeypatch.setattr(decoder, "opened", missing)
    code, output = call("--prompt", "one two")
    assert (code, output.strip()) == (3, "not applicable: install this")
