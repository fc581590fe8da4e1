"""The files of a checkout and what their syntax trees say, for the house rules."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"__pycache__", "build", "dist"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def project_files(root: Path) -> list[str]:
    """List what git tracks or would add, as posix paths; without git, all that is not generated."""
    if (root / ".git").exists():
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        names = sorted(set(done.stdout.split("\0")) - {""})
        return [name for name in names if (root / name).is_file()]
    found = (path.relative_to(root) for path in sorted(root.rglob("*")) if path.is_file())
    return [path.as_posix() for path in found if not GENERATED & set(path.parts)]


def python_files(root: Path, *folders: str) -> list[str]:
    """List the Python files, of the named top-level folders only when some are named."""
    names = [name for name in project_files(root) if name.endswith(".py")]
    return [name for name in names if not folders or name.split("/")[0] in folders]


@cache
def parse(path: Path) -> ast.Module:
    """Return the syntax tree of one file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions(tree: ast.AST) -> Iterator[Function]:
    """Yield every function and method, nested ones included."""
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def statements(node: Function) -> list[ast.stmt]:
    """Return the body of a function without its docstring."""
    return node.body[1:] if ast.get_docstring(node) is not None else node.body


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield the string constants that are no docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and ast.get_docstring(node) is not None
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or id(node) in docstrings:
            continue
        if isinstance(node.value, str):
            yield node


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write files below a root and return the root: how a test plants a violation."""
    for name, text in files.items():
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return root


def run_python(
    *arguments: str, cwd: Path, path: Path | str | None = None, limit_s: float = 300, **changes: str
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter in a folder, with one search path and some variables changed."""
    inherited = dict(os.environ)  # noqa: TID251  (handed on, not read)
    inherited.pop("PYTHONPATH", None)
    environment = inherited | ({"PYTHONPATH": str(path)} if path else {}) | changes
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )
