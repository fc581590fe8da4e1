"""Who imports whom: read from the syntax trees, and observed in a fresh interpreter."""

import ast
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .tree import parse, python_files, run_python

DYNAMIC = "<dynamic>"
DYNAMIC_CALLS = {"import_module", "__import__"}

# Runs in a fresh interpreter. Refusing the forbidden names would not be enough, since a caught
# ImportError hides it; so each attempt is noted with the file that made it. Attempts by libraries
# (torch looks for triton by itself) are refused and not noted.
PROBE = """
import importlib, json, sys
root, modules, forbidden = json.loads(sys.argv[1])
notes, current = [], ""
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in forbidden:
            return None
        frame = sys._getframe(1)
        while frame.f_code.co_filename.startswith("<frozen") or "importlib" in frame.f_globals.get(
            "__name__", ""
        ):
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(root):
            notes.append(f"{current} loads {name}, asked for by {frame.f_code.co_filename}")
        raise ModuleNotFoundError(f"{name} is refused by the probe", name=name)
sys.meta_path.insert(0, Watch())
for current in modules:
    try:
        importlib.import_module(current)
    except Exception as error:
        notes.append(f"{current} cannot be imported: {error!r}")
notes += [f"{name} is loaded" for name in forbidden if name in sys.modules]
print(json.dumps(notes))
"""


@dataclass(frozen=True)
class Import:
    """One import: the file and line it stands in, the module it names, relative or not."""

    path: str
    line: int
    module: str
    relative: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.line} imports {self.module}"


def module_name(path: str) -> str:
    """Return the dotted name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def named_modules(node: ast.AST, package: list[str]) -> Iterator[tuple[str, bool]]:
    """Yield (dotted name, relative) for what one node of a syntax tree imports."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, False) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = package[: len(package) - node.level + 1] if node.level else []
        base = ".".join([*above, *([node.module] if node.module else [])])
        yield from ((f"{base}.{alias.name}", node.level > 0) for alias in node.names)
    elif isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.distributed":
        yield "torch.distributed", False
    elif isinstance(node, ast.Call):
        called = ast.unparse(node.func).rsplit(".", 1)[-1]
        if called in DYNAMIC_CALLS:
            first = node.args[0] if node.args else None
            text = first.value if isinstance(first, ast.Constant) else None
            if isinstance(text, str) and text.startswith("."):
                level = len(text) - len(text.lstrip("."))
                above = package[: len(package) - level + 1]
                yield ".".join([*above, text.lstrip(".")]), True
            else:
                yield (text if isinstance(text, str) else DYNAMIC), False


def imports_of(root: Path, *folders: str) -> list[Import]:
    """List every import of the Python files in the folders, lazy and typing-only ones included."""
    known = {module_name(path) for path in python_files(root)}
    found = []
    for path in python_files(root, *folders):
        package = module_name(path).split(".")
        if not path.endswith("/__init__.py"):
            package = package[:-1]
        for node in ast.walk(parse(root / path)):
            for name, relative in named_modules(node, package):
                # "from .judge import script" names a module, "from .script import Load" an object.
                parent = name.rpartition(".")[0]
                module = parent if name not in known and parent in known else name
                found.append(Import(path, getattr(node, "lineno", 1), module, relative))
    return found


def allows(entry: str, module: str) -> bool:
    """Tell whether a table entry covers a module; torch does not cover torch.distributed."""
    if "*" in entry:
        return fnmatchcase(module, entry)
    if module.startswith("torch.distributed") and not entry.startswith("torch.distributed"):
        return False
    return module == entry or module.startswith(f"{entry}.")


def closure(start: str, imports: Iterable[Import]) -> set[str]:
    """Return every module that a module reaches through project imports, itself left out."""
    edges: dict[str, set[str]] = {}
    for found in imports:
        edges.setdefault(module_name(found.path), set()).add(found.module)
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        fresh = edges.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += sorted(fresh)
    return reached - {start}


def probe(root: Path, modules: Iterable[str], forbidden: Iterable[str]) -> list[str]:
    """Import modules in a fresh interpreter and report each forbidden module that one asks for."""
    question = json.dumps([str(root), list(modules), list(forbidden)])
    done = run_python("-c", PROBE, question, cwd=root, path=root)
    if done.returncode != 0:
        return [f"the probe itself ended with status {done.returncode}: {done.stderr}"]
    notes: list[str] = json.loads(done.stdout.splitlines()[-1])
    return notes
