"""The recipes for other people's CI are run as far as a machine without their runners can."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from .house.test_readme import OWN_SAMPLER, marked_blocks, readme
from .house.tree import ROOT, plant
from .sglang_ci import ci_module, needs_wheel

pytestmark = pytest.mark.slow
FOLDER = ROOT / ".github"
ACTIONS = ("workflows/ci.yml", "workflows/gpu.yml", "recipes/shards.yml")
BUILDKITE = FOLDER / "recipes" / "vllm_buildkite.yaml"
REGISTERED = FOLDER / "recipes" / "sglang_registered.py"
# What a shell step may take from the runner; the rest of an expression is not for a shell.
EXPRESSION = "${{"


@cache
def parsed(path: Path) -> dict[Any, Any]:
    """A YAML file."""
    import yaml

    found: dict[Any, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def jobs(name: str) -> dict[str, dict[str, Any]]:
    """The jobs of a workflow."""
    found: dict[str, dict[str, Any]] = parsed(FOLDER / name)["jobs"]
    return found


def steps(name: str) -> Iterator[dict[str, Any]]:
    """All steps of a workflow."""
    for job in jobs(name).values():
        yield from job["steps"]


def script(name: str, title: str) -> str:
    """The shell of the step of that name."""
    (found,) = {step["run"] for step in steps(name) if step.get("name") == title}
    return str(found)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A checkout of somebody's sampler, with our command where a recipe installs it."""
    own = marked_blocks(readme(), "example")[OWN_SAMPLER][1]
    start = f'#!/bin/sh\nexec "{sys.executable}" -m'
    files = {
        "own_sampler.py": own,
        ".venv/bin/draftproof": f'{start} oracle "$@"\n',
        ".venv/bin/python": f'#!/bin/sh\nexec "{sys.executable}" "$@"\n',
    }
    plant(tmp_path, files)
    for name in ("draftproof", "python"):
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    return tmp_path


def shell(text: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a step as a runner does, which stops at the first failure."""
    inherited = dict(os.environ)  # noqa: TID251  (handed on, not read)
    changes = {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        ["bash", "-eo", "pipefail", "-c", text],  # noqa: S607  (the shell of the runner)
        cwd=folder,
        env=inherited | changes,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", ACTIONS)
def test_workflows_are_complete(name: str) -> None:
    """Triggers, least permissions, runners; every step either runs or uses, pinned to a version."""
    found = parsed(FOLDER / name)
    # A bare "on" is true in YAML 1.1.
    assert found.get("on", found.get(True))
    assert found["permissions"] == {"contents": "read"}
    for job in jobs(name).values():
        assert job["runs-on"]
        for needed in [job.get("needs", [])] if isinstance(job.get("needs"), str) else []:
            assert needed in jobs(name)
    for step in steps(name):
        assert ("run" in step) != ("uses" in step), step
        assert "@v" in step.get("uses", "@v")
        if "run" in step:
            assert EXPRESSION not in step["run"], "a shell takes what a runner knows by variables"
            checked = shell(f"bash -n <<'STEP'\n{step['run']}\nSTEP", ROOT)
            assert checked.returncode == 0, checked.stderr


def test_a_gpu_job_is_gated_and_keeps_what_it_saw() -> None:
    """Only by label, one at a time, artefacts whatever happened."""
    found = parsed(FOLDER / "workflows" / "gpu.yml")
    assert found.get("on", found.get(True))["pull_request"] == {"types": ["labeled"]}
    (job,) = jobs("workflows/gpu.yml").values()
    assert "github.event.label.name == 'gpu'" in job["if"]
    assert "self-hosted" in job["runs-on"]
    assert found["concurrency"]["group"] == "gpu"
    kept, shared = (s for s in job["steps"] if "upload-artifact" in s.get("uses", ""))
    assert kept["if"] == shared["if"] == "always()"
    # The one folder alone, so that its files lie at the root of the artefact.
    assert shared["with"]["path"] == ".hypothesis/examples"
    assert shared["with"]["name"] in marked_blocks(readme(), "example")["shared-examples"][1]


def test_a_gpu_job_without_a_gpu_fails(place: Path) -> None:
    """In its first step without a driver, and in its last without a device."""
    name = "workflows/gpu.yml"
    assert shell(script(name, "A GPU must be here"), place, PATH="/usr/bin:/bin").returncode != 0
    hidden = {"CUDA_VISIBLE_DEVICES": "", "SUBJECT": "reference", "PROFILE": "smoke"}
    text = script(name, "Judge").replace("-m pytest", "-m pytest -p oracle.plugin")
    done = shell(text, place, **hidden)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "torch sees no CUDA device" in done.stdout + done.stderr
    assert not (place / "out" / "report.json").exists()


def test_shards_decide_together(place: Path) -> None:
    """Four jobs draw, one adds up; the summary says that it holds. A lost shard is an error."""
    name, draw = "recipes/shards.yml", script("recipes/shards.yml", "Draw")
    assert jobs(name)["shard"]["strategy"]["matrix"]["shard"] == [1, 2, 3, 4]
    subject = {"SUBJECT": parsed(FOLDER / name)["env"]["SUBJECT"]}
    for shard in range(1, 5):
        done = shell(draw, place, SHARD=str(shard), **subject)
        assert done.returncode == 0, done.stdout + done.stderr
    done = shell(script(name, "Decide"), place, **subject)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = place / "summary.md"
    report = shell(script(name, "Report"), place, GITHUB_STEP_SUMMARY=str(summary), **subject)
    assert report.returncode == 0, report.stdout + report.stderr
    assert "### draftproof: 🟢 holds" in summary.read_text()
    assert {path.suffix for path in place.glob("report.*")} == {".json", ".html", ".xml"}
    (place / "shard-3.json").unlink()
    assert shell(script(name, "Decide"), place, **subject).returncode == 2


def test_a_shard_that_errs_fails_its_job(place: Path) -> None:
    """Exit code 3 is what a shard ends with; every other one is no success."""
    plant(place, {"gone.py": "def factory(setting): raise OSError('gone')\n"})
    done = shell(script("recipes/shards.yml", "Draw"), place, SHARD="1", SUBJECT="gone:factory")
    assert done.returncode != 0


def test_a_buildkite_step_requires_its_gpu() -> None:
    """Keys that the pipeline knows, a slice of a GPU, and our options as they are."""
    from oracle.plugin import OPTIONS

    found = parsed(BUILDKITE)
    known = {"label", "key", "timeout_in_minutes", "device", "source_file_dependencies", "commands"}
    for step in found["steps"]:
        assert set(step) == known
        (command,) = (line for line in step["commands"] if line.startswith("pytest"))
        assert "--draftproof-require-gpu" in command
        given = {
            word.removeprefix("--draftproof-") for word in command.split() if "--draft" in word
        }
        assert given <= {name for name, _ in OPTIONS}


@needs_wheel
def test_sglang_accepts_the_registered_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own parser reads suite and time, and finds that the file runs something."""
    (found,) = ci_module(monkeypatch, "ci_register").collect_tests([str(REGISTERED)])
    assert found.effective_suite == "base-b-test-1-gpu-small"
    assert found.backend.name == "CUDA"
    assert found.disabled is None


def test_the_registered_file_fails_without_a_gpu(tmp_path: Path) -> None:
    """Run as their runner runs it, beside a stand-in for the module that it registers with."""
    stand_in = "def register_cuda_ci(*words, **given): pass\n"
    names = ("sglang/__init__.py", "sglang/test/__init__.py", "sglang/test/ci/__init__.py")
    plant(tmp_path, dict.fromkeys(names, "") | {"sglang/test/ci/ci_register.py": stand_in})
    command = f'"{sys.executable}" "{REGISTERED}" -f'
    done = shell(command, tmp_path, CUDA_VISIBLE_DEVICES="", PYTEST_PLUGINS="oracle.plugin")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "RuntimeError: --draftproof-require-gpu" in done.stdout + done.stderr
