"""The table of imports, the rules that no table row may break, and the proof at run time."""

import ast
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest

from .imports import DYNAMIC, Import, allows, closure, imports_of, module_name, probe
from .table import ENVIRONMENT_READERS, EXCLUSIVE, TABLE
from .tree import ROOT, parse, plant, python_files, strings

IGNORANT_OF_TORCH = ("margin", "significance", "budget", "verdict")
SUBJECT_CALLS = {"replay", "eager", "noise_state", "reseed"}
ENVIRONMENT = {"os.environ", "os.getenv", "os.environb"}
KERNEL_FILES = "impl.kernels.*"


@cache
def project_imports() -> tuple[Import, ...]:
    """Every import of the repository."""
    return tuple(imports_of(ROOT))


def row_of(path: str) -> list[str] | None:
    """Return the full names that the table allows a file, or None without a row."""
    side = path.partition("/")[0]
    for glob, entries in TABLE.items():
        if fnmatchcase(path, glob):
            return [side + name if name.startswith(".") else name for name in entries.split()]
    return None


def against_table(root: Path) -> list[str]:
    """Report files without a row, and imports that the row of their file does not allow."""
    complaints = [
        f"{path} has no row in the table"
        for path in python_files(root, "oracle", "impl")
        if row_of(path) is None
    ]
    for found in imports_of(root, "oracle", "impl"):
        if found.module.split(".")[0] not in sys.stdlib_module_names:
            row = row_of(found.path) or []
            if not any(allows(entry, found.module) for entry in row):
                complaints.append(f"{found}, which its row does not allow: {row}")
    return list(dict.fromkeys(complaints))


def across_sides(root: Path) -> list[str]:
    """Report imports of the other side, of a third project module, and absolute own imports."""
    project = {module_name(path).split(".")[0] for path in python_files(root)}
    complaints = []
    for found in imports_of(root, "oracle", "impl"):
        side, top = found.path.split("/")[0], found.module.split(".")[0]
        if top in (project | {"oracle", "impl", "tests", "fixtures"}) - {side}:
            complaints.append(f"{found}, a project module outside {side}")
        elif top == side and not found.relative:
            complaints.append(f"{found} by its absolute name, it should be relative")
    return complaints


def pure_rooms(root: Path) -> list[str]:
    """Report what the reference and the torch-free files of the judge reach but may not."""
    imports = imports_of(root, "oracle")
    forbidden: dict[str, tuple[str, ...]] = {
        f"oracle.judge.{name}": ("torch", "oracle.reference") for name in IGNORANT_OF_TORCH
    }
    for path in python_files(root, "oracle"):
        if path.startswith("oracle/reference/"):
            forbidden[module_name(path)] = ("oracle.judge", "oracle.subjects", "oracle.workloads")
        if path.startswith("oracle/judge/checks/"):
            caller = ("oracle.judge.drive", "oracle.judge.loading", "oracle.judge.trial")
            forbidden[module_name(path)] = ("oracle.subjects", *caller)
    return [
        f"{module} reaches {reached}"
        for module, names in forbidden.items()
        for reached in sorted(closure(module, imports))
        if any(reached == name or reached.startswith(f"{name}.") for name in names)
    ]


def subject_callers(root: Path) -> list[str]:
    """Report files of the judge, other than drive, that call a verb of a subject."""
    return [
        f"{path}:{node.lineno} calls .{node.func.attr}(), which only drive.py does"
        for path in python_files(root, "oracle")
        if path.startswith("oracle/judge/") and path != "oracle/judge/drive.py"
        for node in ast.walk(parse(root / path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        if node.func.attr in SUBJECT_CALLS
    ]


def blind_rooms(root: Path) -> list[str]:
    """Report a graph that knows sampling, and a kernel that knows graphs, buffers or gates."""
    rooms = {"impl/graph/": "impl.graph", "impl/kernels/": "impl.kernels"}
    return [
        f"{found}, outside {own}"
        for found in imports_of(root, "impl")
        for room, own in rooms.items()
        if found.path.startswith(room) and found.module.split(".")[0] == "impl"
        if found.module != own and not found.module.startswith(f"{own}.")
    ]


def exclusive_names(root: Path) -> list[str]:
    """Report a third party or room named by a file that may not name it."""
    return [
        f"{found}, allowed only in {', '.join(owners)}"
        for found in imports_of(root)
        for name, owners in EXCLUSIVE.items()
        if found.module == name or found.module.startswith(f"{name}.")
        if not any(fnmatchcase(found.path, owner) for owner in owners)
        if not (name == "oracle.subjects" and found.path.startswith("oracle/subjects/"))
    ]


def environment_read(node: ast.AST) -> bool:
    """Tell whether a node of a syntax tree reaches for the process environment."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(
            f"os.{alias.name}" in ENVIRONMENT for alias in node.names
        )
    return isinstance(node, ast.Attribute) and ast.unparse(node) in ENVIRONMENT


def outside_readers(root: Path) -> list[str]:
    """Report environment reads outside their owners, and a mention of fixtures in impl."""
    complaints = []
    for path in python_files(root, "oracle", "impl"):
        tree, owned = parse(root / path), ENVIRONMENT_READERS.get(path, "")
        for node in strings(tree):
            text = str(node.value)
            if text.startswith("DRAFTPROOF_") and not fnmatchcase(text, owned):
                complaints.append(f"{path}:{node.lineno} names {text}, which it does not own")
            if path.startswith("impl/") and "fixtures" in text.split("/"):
                complaints.append(f"{path}:{node.lineno} names {text}; impl reads no fixtures")
        complaints += [
            f"{path}:{getattr(node, 'lineno', 1)} reads {ast.unparse(node)}"
            for node in ast.walk(tree)
            if not owned and environment_read(node)
        ]
    return complaints


RULES = (
    against_table,
    across_sides,
    pure_rooms,
    subject_callers,
    blind_rooms,
    exclusive_names,
    outside_readers,
)

# rule, planted files, part of the complaint that must come back
PLANTED: list[tuple[Callable[[Path], list[str]], dict[str, str], str]] = [
    (against_table, {"oracle/unheard.py": ""}, "has no row"),
    (against_table, {"oracle/judge/margin.py": "def f():\n    import rich\n"}, "imports rich"),
    (against_table, {"oracle/judge/drive.py": "from . import report\n"}, "judge.report"),
    (against_table, {"impl/draft.py": "from .gate import fold\n"}, "impl.gate"),
    (against_table, {"impl/logits.py": "import torch.distributed as d\n"}, "torch.distributed"),
    (against_table, {"impl/logits.py": "import torch\ntorch.distributed.f()\n"}, "distributed"),
    (against_table, {"impl/gate.py": "import importlib as i\ni.import_module(x)\n"}, DYNAMIC),
    (against_table, {"impl/gate.py": "__import__('triton')\n"}, "imports triton"),
    (across_sides, {"impl/gate.py": "from oracle.reference import gate\n"}, "outside impl"),
    (across_sides, {"oracle/plugin.py": "import impl.subject\n"}, "outside oracle"),
    (across_sides, {"oracle/plugin.py": "import shared\n", "shared.py": ""}, "imports shared"),
    (across_sides, {"impl/draft.py": "import impl.stages\n"}, "should be relative"),
    (pure_rooms, {"oracle/reference/law.py": "from ..judge import margin\n"}, "reaches oracle"),
    (
        pure_rooms,
        {
            "oracle/judge/budget.py": "from .verdict import x\n",
            "oracle/judge/verdict.py": "import torch\n",
        },
        "oracle.judge.budget reaches torch",
    ),
    (
        pure_rooms,
        {"oracle/judge/checks/path.py": "from ..drive import play\n", "oracle/judge/drive.py": ""},
        "checks.path reaches oracle.judge.drive",
    ),
    (subject_callers, {"oracle/judge/trial.py": "subject.replay()\n"}, "calls .replay()"),
    (blind_rooms, {"impl/graph/cuda.py": "from ..buffers import Buffers\n"}, "outside impl.graph"),
    (blind_rooms, {"impl/kernels/step.py": "from ..gate import fold\n"}, "outside impl.kernels"),
    (exclusive_names, {"oracle/planner.py": "import hypothesis\n"}, "imports hypothesis"),
    (exclusive_names, {"impl/stages.py": "import triton.language as tl\n"}, "imports triton"),
    (exclusive_names, {"oracle/judge/report.py": "from matplotlib import pyplot\n"}, "matplotlib"),
    (
        exclusive_names,
        {"oracle/judge/trial.py": "from ..subjects import vllm\n"},
        "oracle.subjects",
    ),
    (exclusive_names, {"impl/draft.py": "from tests.zoo import noise\n"}, "imports tests"),
    (outside_readers, {"impl/stages.py": "import os\nos.environ['X']\n"}, "reads os.environ"),
    (outside_readers, {"impl/stages.py": "name = 'DRAFTPROOF_STAGES'\n"}, "DRAFTPROOF_STAGES"),
    (outside_readers, {"oracle/plugin.py": "name = 'DRAFTPROOF_NOISE'\n"}, "does not own"),
    (outside_readers, {"impl/stages.py": "from os import getenv\n"}, "reads from os import getenv"),
    (outside_readers, {"impl/noise.py": "open('fixtures/kat/x.txt')\n"}, "reads no fixtures"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_repository_keeps(rule: Callable[[Path], list[str]]) -> None:
    """The repository breaks no import rule."""
    assert rule(ROOT) == []


@pytest.mark.parametrize(("rule", "files", "expected"), PLANTED)
def test_rule_notices(
    rule: Callable[[Path], list[str]], files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Each rule reports what was planted against it."""
    complaints = rule(plant(tmp_path, files))
    assert any(expected in complaint for complaint in complaints), complaints


def test_planting_covers_every_rule() -> None:
    """No rule goes without a planted violation."""
    assert {rule for rule, _, _ in PLANTED} == set(RULES)


def modules_of(side: str) -> list[str]:
    """Every module of one side that needs no extra: all but the kernels."""
    names = [module_name(path) for path in python_files(ROOT, side)]
    return [name for name in names if not fnmatchcase(name, KERNEL_FILES)]


@pytest.mark.parametrize(("side", "other"), [("oracle", "impl"), ("impl", "oracle")])
def test_sides_are_apart_at_run_time(side: str, other: str) -> None:
    """Importing all of one side loads neither the other side nor triton."""
    names = modules_of(side)
    assert side in names
    assert probe(ROOT, names, [other, "triton", "tests"]) == []


def test_oracle_is_light() -> None:
    """Importing oracle alone does not load torch."""
    assert probe(ROOT, ["oracle"], ["torch"]) == []


@pytest.mark.parametrize(
    "text",
    ["import right\n", "try:\n    import right.room\nexcept ImportError:\n    pass\n"],
    ids=["plain", "hidden by an except clause"],
)
def test_probe_notices(text: str, tmp_path: Path) -> None:
    """The probe reports a side that loads the other one, even when the error is swallowed."""
    files = {"left/__init__.py": "", "left/room.py": text, "right/__init__.py": ""}
    notes = probe(plant(tmp_path, files), ["left", "left.room"], ["right"])
    assert "left.room loads right" in " ".join(notes)


def test_probe_is_silent_about_the_innocent(tmp_path: Path) -> None:
    """The probe reports nothing about a side that keeps to itself."""
    files = {"left/__init__.py": "", "left/room.py": "import json\n", "right/__init__.py": ""}
    assert probe(plant(tmp_path, files), ["left", "left.room"], ["right"]) == []
