"""The layout rules: each is a function of a root that returns its complaints, one a violation."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from .tree import functions, parse, project_files, python_files, statements

TOP_LEVEL = (
    ".ci",
    ".github",
    ".gitignore",
    "LICENSE",
    "README.md",
    "conftest.py",
    "constraints.txt",
    "fixtures",
    "impl",
    "oracle",
    "pyproject.toml",
    "tests",
)
# Allowed to be absent, with the reason.
OPTIONAL: dict[str, str] = {}

FORBIDDEN_NAMES = {"utils", "util", "common", "base", "core", "types", "helpers", "misc"}
PROSE = {".md", ".toml", ".yml", ".yaml", ".txt", ""}

FILE_LINES, FUNCTION_LINES, COLUMNS = 300, 60, 100
# (rule, path) -> reason. A row that excuses nothing is itself a violation.
EXCEPTIONS: dict[tuple[str, str], str] = {
    ("function_lines", "impl/kernels/step.py"): "a kernel lists tensors and strides one a line",
}

# The nouns that both sides must have, under the same file name.
TWINS = ("logits", "bias", "noise", "choice", "draft", "acceptance", "gate")
# Nouns of the reference that have no fast version, with the reason.
NO_TWIN = {
    "law": "enumerates whole laws, which only a judge needs",
    "committed": "as law, for the tokens that a verification commits",
}

TICKET = re.compile(r"(?P<repository>[\w./-]*)#\d+\b|\b[Ii]ssues?\s+#?\d+\b")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
MACHINE_PATH = re.compile(r"(?<![\w.$}~-])/(?:work|tmp|root|home|opt|mnt)/")

Rule = Callable[[Path], list[str]]


def top_level(root: Path) -> list[str]:
    """The top level holds exactly the agreed names."""
    present = {name.partition("/")[0] for name in project_files(root)}
    extra = [f"{name} is no agreed top-level name" for name in sorted(present - set(TOP_LEVEL))]
    missing = [name for name in TOP_LEVEL if name not in present and name not in OPTIONAL]
    return extra + [f"{name} is missing from the top level" for name in missing]


def names(root: Path) -> list[str]:
    """No file or folder is a drawer for leftovers, or shadows the standard library."""
    complaints = []
    for path in python_files(root, "oracle", "impl", "tests"):
        for part in PurePosixPath(path).with_suffix("").parts:
            if part in FORBIDDEN_NAMES:
                complaints.append(f"{path}: {part} says nothing, name the noun")
            if part in sys.stdlib_module_names:
                complaints.append(f"{path}: {part} shadows the standard library")
    return complaints


def file_lines(root: Path) -> list[str]:
    """A Python file has at most 300 lines."""
    counts = {
        path: len((root / path).read_text("utf-8").splitlines()) for path in python_files(root)
    }
    return [
        f"{path} has {count} lines, at most {FILE_LINES} are allowed"
        for path, count in counts.items()
        if count > FILE_LINES
    ]


def function_lines(root: Path) -> list[str]:
    """A function has at most 60 lines."""
    return [
        f"{path}:{node.lineno} {node.name} has {count} lines, at most {FUNCTION_LINES} are allowed"
        for path in python_files(root)
        for node in functions(parse(root / path))
        if (count := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]


def columns(root: Path) -> list[str]:
    """A line of code has at most 100 columns."""
    sources = [*python_files(root), ".ci/run", "pyproject.toml"]
    return [
        f"{path}:{number} has {len(line)} columns, at most {COLUMNS} are allowed"
        for path in sources
        if (root / path).is_file()
        for number, line in enumerate((root / path).read_text("utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]


def module_docstrings(root: Path) -> list[str]:
    """Every module says what it is."""
    return [
        f"{path} has no module docstring"
        for path in python_files(root)
        if ast.get_docstring(parse(root / path)) is None
    ]


def public_definitions(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Yield public functions, classes and methods with their dotted names."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            if not node.name.startswith("_"):
                yield prefix + node.name, node
                if isinstance(node, ast.ClassDef):
                    yield from public_definitions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try):
            yield from public_definitions(node.body, prefix)
            yield from public_definitions(node.orelse, prefix)


def is_declaration(node: ast.stmt) -> bool:
    """Tell whether a function only declares a signature: its body is an ellipsis."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    body = statements(node)
    return len(body) == 1 and ast.unparse(body[0]) == "..."


def public_docstrings(root: Path) -> list[str]:
    """Every public function, class and method of oracle and impl says what it is."""
    return [
        f"{path}:{node.lineno} {name} has no docstring"
        for path in python_files(root, "oracle", "impl")
        for name, node in public_definitions(parse(root / path).body)
        if not is_declaration(node)
        if ast.get_docstring(node) is None  # type: ignore[arg-type]
    ]


def prose(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield (path, line, text) of comments and docstrings, and of every line outside Python."""
    for path in project_files(root):
        text = (root / path).read_text("utf-8", errors="replace")
        if path.endswith(".py"):
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    yield path, token.start[0], token.string
            for node in ast.walk(parse(root / path)):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield path, getattr(node, "lineno", 1), ast.get_docstring(node) or ""
        elif Path(path).suffix in PROSE and not path.startswith("fixtures/"):
            yield from ((path, number, line) for number, line in enumerate(text.splitlines(), 1))


def tickets(root: Path) -> list[str]:
    """No prose points at a ticket by number, except as owner/repository#number."""
    return [
        f"{path}:{line} names {match[0]!r}; say what it is, or write owner/repository#number"
        for path, line, text in prose(root)
        for match in TICKET.finditer(text)
        if not REPOSITORY.fullmatch(match["repository"] or "")
    ]


def machine_paths(root: Path) -> list[str]:
    """No tracked text holds the path of somebody's machine."""
    return [
        f"{path}:{number} holds the machine path {match[0]}"
        for path in project_files(root)
        if path.endswith(".py") or Path(path).suffix in PROSE
        for number, line in enumerate((root / path).read_text("utf-8").splitlines(), 1)
        for match in MACHINE_PATH.finditer(line)
    ]


def twins(root: Path) -> list[str]:
    """The slow and the fast version of a noun share its file name, and both exist."""
    slow = {Path(p).stem for p in python_files(root, "oracle") if p.count("/reference/") == 1}
    fast = {Path(p).stem for p in python_files(root, "impl") if p.count("/") == 1}
    nouns = (slow - {"__init__"} - set(NO_TWIN)) | set(TWINS)
    places = (("oracle/reference", slow), ("impl", fast))
    return [
        f"{place}/{noun}.py is missing, its twin or the list of twins asks for it"
        for noun in sorted(nouns)
        for place, there in places
        if noun not in there
    ]


RULES: tuple[Rule, ...] = (
    top_level,
    names,
    file_lines,
    function_lines,
    columns,
    module_docstrings,
    public_docstrings,
    tickets,
    machine_paths,
    twins,
)


def excused(rule: Rule, complaints: list[str]) -> list[str]:
    """Take away what EXCEPTIONS excuses, and report each of its rows that excuses nothing."""
    remaining = list(complaints)
    for (name, path), reason in EXCEPTIONS.items():
        if name == rule.__name__:
            covered = [text for text in remaining if re.match(rf"{re.escape(path)}\b", text)]
            if not covered:
                remaining.append(f"{path}: the exception ({reason}) excuses nothing")
            remaining = [text for text in remaining if text not in covered]
    return remaining
