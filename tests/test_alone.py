"""Modules of a shipped package without the rest of it: genuine files, stand-ins, reasons."""

import importlib
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from oracle.judge.loading import NAMED, CannotServeError, build, load_factory
from oracle.subjects import alone
from oracle.subjects.alone import Shipped

SAMPLER = """
import missing_library
from acme.engine import Server, is_turbo, kernels
from acme.layers import genuine

class Worker(Server):
    mode = kernels.Mode.FAST

    def answer(self):
        return genuine.double(21), bool(is_turbo()), missing_library.flag
"""


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package acme 1.0 below a folder that its variable names; it is forgotten afterwards."""
    package = tmp_path / "acme"
    (package / "layers").mkdir(parents=True)
    (tmp_path / "acme-1.0.dist-info").mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('the server starts')")
    (package / "sampler.py").write_text(SAMPLER)
    (package / "layers" / "genuine.py").write_text("def double(x):\n    return 2 * x\n")
    known = Shipped("acme", "acme", "1.0", "DRAFTPROOF_SGLANG")
    monkeypatch.setitem(alone.SHIPPED, "acme", known)
    monkeypatch.setenv("DRAFTPROOF_SGLANG", str(tmp_path))
    finders = list(sys.meta_path)
    yield tmp_path
    sys.meta_path[:] = finders
    for name in [n for n in sys.modules if n.split(".")[0] in ("acme", "missing_library")]:
        del sys.modules[name]


def loaded(*genuine: str) -> Any:
    """The sampler of acme."""
    given = {"missing_library": {"flag": 7}}
    found = alone.load("acme", ["acme.sampler"], genuine, given, ["missing_library", "json"])
    return found["acme.sampler"]


@pytest.mark.usefixtures("shipped")
def test_genuine_modules_run_and_all_others_are_empty() -> None:
    """Neither the package's own init nor its server runs, and no stand-in is left to others."""
    module = loaded("acme.sampler", "acme.layers.genuine")
    assert module.Worker(1, name=2).answer() == (42, False, 7)
    assert isinstance(module.Worker.mode, type)
    assert "missing_library" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("missing_library")


@pytest.mark.usefixtures("shipped")
def test_a_module_that_is_not_named_is_a_stand_in() -> None:
    """Without its row, what doubles is an empty class."""
    module = loaded("acme.sampler")
    assert isinstance(module.genuine, type)


def test_a_package_that_is_here_already_is_used_as_it_is(shipped: Path) -> None:
    """Inside a running engine nothing is replaced."""
    (shipped / "acme" / "__init__.py").write_text("")
    (shipped / "acme" / "engine.py").write_text("answer = 'real'\n")
    sys.path.insert(0, str(shipped))
    try:
        real = importlib.import_module("acme.engine")
        found = alone.load("acme", ["acme.engine"], (), {})
    finally:
        sys.path.remove(str(shipped))
    assert found["acme.engine"] is real


@pytest.mark.parametrize(
    ("version", "package", "says"),
    [("1.1", "acme", "required: a folder with acme and acme-1.1"), ("1.0", "acne", "acne")],
)
def test_another_version_or_folder_is_refused(
    shipped: Path, monkeypatch: pytest.MonkeyPatch, version: str, package: str, says: str
) -> None:
    """The reason names what was found and what is required."""
    other = Shipped(package, "acme", version, "DRAFTPROOF_SGLANG")
    monkeypatch.setitem(alone.SHIPPED, "acme", other)
    with pytest.raises(NotImplementedError, match=says) as caught:
        alone.folder_of("acme")
    assert str(shipped) in str(caught.value)


def test_a_package_that_is_nowhere_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither installed nor named."""
    monkeypatch.delenv("DRAFTPROOF_SGLANG", raising=False)
    monkeypatch.setitem(
        alone.SHIPPED, "acme", Shipped("acme", "no-such-acme", "1.0", "DRAFTPROOF_SGLANG")
    )
    with pytest.raises(NotImplementedError, match="acme is not installed, and DRAFTPROOF_SGLANG"):
        alone.folder_of("acme")


def test_an_installed_package_must_have_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of an installation, or the version that was found instead."""
    monkeypatch.delenv("DRAFTPROOF_SGLANG", raising=False)
    version = metadata.version("pytest")
    right = Shipped("pytest", "pytest", version, "DRAFTPROOF_SGLANG")
    monkeypatch.setitem(alone.SHIPPED, "acme", right)
    assert (alone.folder_of("acme") / "pytest").is_dir()
    monkeypatch.setitem(
        alone.SHIPPED, "acme", Shipped("pytest", "pytest", "0.1", "DRAFTPROOF_SGLANG")
    )
    with pytest.raises(NotImplementedError, match=rf"{version} is installed, required: 0\.1"):
        alone.folder_of("acme")


@pytest.mark.parametrize("name", sorted(n for n in NAMED if n.split(":")[0] in alone.SHIPPED))
@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_subjects_that_are_not_here_say_why(
    name: str, family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A folder without the package: no subject of it is built, and none raises."""
    package = name.split(":", maxsplit=1)[0]
    for module in [m for m in sys.modules if m.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setenv(alone.SHIPPED[package].variable, str(tmp_path))
    setting = {
        "family": family,
        "dialect": "counter",
        "forward": "given",
        "device": "cpu",
        "step_dtype": "float32",
        "head": nothing(),
        "w1": nothing(),
        "buckets": (4,),
        "drafts": 2,
        "vocabulary": 4,
        "sample_from_anchor": True,
        "seed": 0,
        "engine": "eager",
    }
    with pytest.raises(CannotServeError) as caught:
        build(load_factory(name), setting)
    assert len(str(caught.value)) > 10


def nothing() -> object:
    """Weights of nothing."""
    import torch

    return torch.zeros(4, 3)
