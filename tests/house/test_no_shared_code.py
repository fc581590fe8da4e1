"""Copying is sharing too: no function of oracle has the shape of a function of impl."""

import ast
import copy
from pathlib import Path

import pytest

from .tree import ROOT, Function, functions, parse, plant, python_files, statements

SMALLEST = 3  # statements, nested ones included


class Eraser(ast.NodeTransformer):
    """Blanks whatever a copyist would change first: names, attributes, constants, annotations."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Erase every identifier that a node holds as a plain string, then go down."""
        for field, value in ast.iter_fields(node):
            if isinstance(value, str):
                setattr(node, field, "_")
            elif field in {"names", "kwd_attrs"} and all(isinstance(v, str) for v in value):
                setattr(node, field, ["_"] * len(value))
            elif field in {"annotation", "returns"}:
                setattr(node, field, None)
        return super().generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Erase the value of a constant, and so its type."""
        return ast.copy_location(ast.Constant(value=None), node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Turn an annotated assignment into a plain one."""
        if node.value is None:
            return self.generic_visit(node)
        plain = ast.Assign(targets=[node.target], value=node.value)
        return self.generic_visit(ast.copy_location(plain, node))


def shape_of(node: Function) -> str | None:
    """Return the name-erased tree of a function, or None for one that is too short to count."""
    bare = copy.deepcopy(node)
    bare.body = statements(bare)
    for inner in functions(bare):
        inner.body = statements(inner) or [ast.Pass()]
        inner.decorator_list = []
    size = sum(isinstance(part, ast.stmt) for part in ast.walk(bare)) - 1
    return ast.dump(Eraser().visit(bare)) if size >= SMALLEST else None


def shapes(root: Path, side: str) -> dict[str, list[str]]:
    """Map each shape of one side to the places where it stands."""
    found: dict[str, list[str]] = {}
    for path in python_files(root, side):
        for node in functions(parse(root / path)):
            shape = shape_of(node)
            if shape is not None:
                found.setdefault(shape, []).append(f"{path}:{node.lineno} {node.name}")
    return found


def copies(root: Path) -> list[str]:
    """Report every function of oracle that has the shape of one of impl."""
    ours, theirs = shapes(root, "oracle"), shapes(root, "impl")
    return [f"{ours[shape]} and {theirs[shape]}" for shape in ours if shape in theirs]


ORIGINAL = '''
def accepted(drafts, target, coins):
    """Count the accepted drafts."""
    count = 0
    for draft, law, coin in zip(drafts, target, coins):
        if coin * draft.mass > law.mass[draft.token]:
            return count
        count += 1
    return count
'''
RENAMED = """
@cached
def prefix(xs: list, ys: list, zs: list) -> int:
    n: int = 7
    for x, y, z in other(xs, ys, zs):
        if z * x.p > y.weight[x.index]:
            return n
        n += "one"
    return n
"""
CHANGED = RENAMED.replace("z * x.p >", "z * x.p >=")
SHORT = "def f(x):\n    y = x + 1\n    return y\n"


def test_repository_has_no_copies() -> None:
    """No function of three or more statements stands on both sides."""
    assert copies(ROOT) == []


def test_both_sides_are_read() -> None:
    """The comparison has something to compare."""
    assert shapes(ROOT, "oracle")
    assert shapes(ROOT, "impl")


@pytest.mark.parametrize("copied", [ORIGINAL, RENAMED], ids=["pasted", "renamed"])
def test_copy_is_noticed(copied: str, tmp_path: Path) -> None:
    """A pasted function is reported, also with every name, number and annotation changed."""
    plant(tmp_path, {"oracle/reference/acceptance.py": ORIGINAL, "impl/acceptance.py": copied})
    (complaint,) = copies(tmp_path)
    assert "oracle/reference/acceptance.py:2 accepted" in complaint
    assert "impl/acceptance.py" in complaint


def test_copied_method_is_noticed(tmp_path: Path) -> None:
    """A function hidden as a method or inside another one is still compared."""
    inner = "class Commit:\n" + RENAMED.replace("\n", "\n    ")
    plant(tmp_path, {"oracle/reference/acceptance.py": ORIGINAL, "impl/acceptance.py": inner})
    assert len(copies(tmp_path)) == 1


@pytest.mark.parametrize("other", [CHANGED, SHORT], ids=["other operator", "other shape"])
def test_other_code_is_spared(other: str, tmp_path: Path) -> None:
    """A function that computes something else is not reported."""
    plant(tmp_path, {"oracle/reference/acceptance.py": ORIGINAL, "impl/acceptance.py": other})
    assert copies(tmp_path) == []


def test_short_functions_may_agree(tmp_path: Path) -> None:
    """Two statements are too few to call a copy."""
    plant(tmp_path, {"oracle/law.py": SHORT, "impl/draft.py": SHORT})
    assert copies(tmp_path) == []
