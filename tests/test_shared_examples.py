"""Failing examples of a team: what a job elsewhere found is tried first here, and stays there."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from unittest import SkipTest
from zipfile import ZipFile

import pytest
from hypothesis import Phase, given, settings
from hypothesis.database import (
    DirectoryBasedExampleDatabase,
    ExampleDatabase,
    GitHubArtifactDatabase,
    MultiplexedDatabase,
    ReadOnlyDatabase,
)

from oracle.strategies import SEEDS, combinations

from .house.test_readme import marked_blocks, readme

# Seeds from here on fail.
FIRST_BAD = 1000


def property_test(
    database: ExampleDatabase, *phases: Phase
) -> tuple[Callable[[], None], list[int]]:
    """A test that fails for nearly all seeds, and the seeds that it has seen."""
    seen: list[int] = []

    @settings(database=database, phases=phases, max_examples=500, deadline=None, derandomize=False)
    @given(combinations(), SEEDS)
    def check(combination: tuple[str, str], seed: int) -> None:
        assert len(combination) == 2
        seen.append(seed)
        assert seed < FIRST_BAD

    return check, seen


def uploaded(examples: Path, folder: Path) -> None:
    """What upload-artifact makes of a folder, where the database keeps what it has downloaded."""
    folder.mkdir()
    stem = datetime.now(UTC).isoformat().replace(":", "_")
    with ZipFile(folder / f"{stem}.zip", "w") as file:
        for path in sorted(examples.rglob("*")):
            file.write(path, path.relative_to(examples))


def content(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def test_an_example_found_elsewhere_is_replayed_here(tmp_path: Path) -> None:
    """Without a single new example, and without a change to what is shared."""
    elsewhere = DirectoryBasedExampleDatabase(tmp_path / "elsewhere")
    found, _ = property_test(elsewhere, Phase.generate, Phase.shrink)
    with pytest.raises(AssertionError):
        found()
    uploaded(tmp_path / "elsewhere", tmp_path / "artefact")
    before = content(tmp_path / "artefact")

    own = DirectoryBasedExampleDatabase(tmp_path / "own")
    shared = ReadOnlyDatabase(
        GitHubArtifactDatabase("owner", "sampler", path=tmp_path / "artefact")
    )
    alone, seen = property_test(own, Phase.reuse)
    # Hypothesis skips a test that is left without an example.
    with pytest.raises(SkipTest):
        alone()
    assert seen == []
    together, seen = property_test(MultiplexedDatabase(own, shared), Phase.reuse)
    with pytest.raises(AssertionError):
        together()
    assert FIRST_BAD in seen
    assert content(tmp_path / "artefact") == before

    # What failed here is now known here, whether the shared one can be reached or not.
    alone, seen = property_test(own, Phase.reuse)
    with pytest.raises(AssertionError):
        alone()
    assert FIRST_BAD in seen


def test_the_readme_shows_the_databases_that_are_tested() -> None:
    """Own first, the shared one read only."""
    text = marked_blocks(readme(), "example")["shared-examples"][1]
    for words in ("MultiplexedDatabase(own, shared)", "ReadOnlyDatabase(GitHubArtifactDatabase("):
        assert words in text
