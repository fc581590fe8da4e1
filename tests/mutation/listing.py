"""The list of survivors with the reason why no test can, or need, kill each of them."""

import ast
import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.house.tree import ROOT, Function

from .guards import source_of
from .mutants import Mutant, flat

FILE = Path(__file__).with_name("survivors.toml")
REASON_LEAST = 15  # characters


class Survivor(NamedTuple):
    """A mutant that survives, and why that is no gap in the tests."""

    mutant: Mutant
    reason: str


def read(file: Path = FILE) -> dict[str, list[Survivor]]:
    """The survivors of each module.

    The file holds a table a module; in it a reason stands over the mutants that share it, each
    [function, line, changed line].
    """
    document = tomllib.loads(file.read_text("utf-8"))
    return {
        module: [
            Survivor(Mutant(*parts), group["reason"])
            for group in groups
            for parts in group["mutants"]
        ]
        for module, groups in document.items()
    }


def complaints(listed: dict[str, list[Survivor]], known: set[str], root: Path = ROOT) -> list[str]:
    """What is wrong with the list, as far as reading can tell."""
    found = []
    for module, survivors in listed.items():
        if module not in known:
            found.append(f"{module} is not mutated")
            continue
        bodies = functions_of((root / source_of(module)).read_text("utf-8"))
        mutants = [survivor.mutant for survivor in survivors]
        for mutant, reason in survivors:
            place = f"{module}.{mutant.function}"
            if mutants.count(mutant) > 1:
                found.append(f"{place}: {mutant.mutant!r} is listed twice")
            if mutant.line not in bodies.get(mutant.function, ""):
                found.append(f"{place} has no line {mutant.line!r}")
            if mutant.line == mutant.mutant:
                found.append(f"{place}: {mutant.line!r} is no change")
            if len(reason.strip()) < REASON_LEAST:
                found.append(f"{place}: {mutant.mutant!r} has no reason")
    return found


def functions_of(source: str) -> dict[str, str]:
    """The text of every function and method of a module, on one line each, by dotted name."""
    tree = ast.parse(source)
    owners = [(node.body, f"{node.name}.") for node in tree.body if isinstance(node, ast.ClassDef)]
    return {
        prefix + node.name: flat(source.splitlines()[node.lineno - 1 : node.end_lineno])
        for body, prefix in [(tree.body, ""), *owners]
        for node in body
        if isinstance(node, Function)
    }


def differences(survivors: list[Mutant], listed: list[Survivor]) -> list[str]:
    """A survivor without an entry, and an entry whose mutant is gone or killed."""
    explained = {survivor.mutant for survivor in listed}
    alive = set(survivors)
    new = [f"survives, is not listed: {told(mutant)}" for mutant in sorted(alive - explained)]
    gone = [f"is listed, survives no more: {told(mutant)}" for mutant in sorted(explained - alive)]
    return new + gone


def told(mutant: Mutant) -> str:
    """A mutant in words."""
    return f"{mutant.function}: {mutant.line}  ->  {mutant.mutant or 'nothing'}"
