"""One run of mutmut over one module, in a copy of the checkout, and what became of each mutant."""

import ast
import difflib
import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.house.tree import ROOT, project_files, run_python

from .guards import GUARDS, source_of

# Names that the tool gives: x_law__mutmut_3 of a function, xǁHeadǁstarted__mutmut_1 of a method.
GENERATED = re.compile(r"x(?:_|ǁ(?P<owner>\w+?)ǁ)(?P<name>\w+?)__mutmut_(?P<number>orig|\d+)")
# Exit codes of a run of the guards that are no kill: all passed, none collected, none reach it.
ALIVE = {0: "survived", 5: "unreached", 33: "unreached"}
# The limit on a mutant that does not end is a CPU time or a time by the clock.
LIMITS = (-24, 24, 36, 152, 255)
LIMIT_S = 3600

# The seeds of drawn examples are fixed, so that who survives does not change from run to run. One
# thread each: a mutant is a fork, and a fork has no threads.
FIXED = {
    "HYPOTHESIS_PROFILE": "mutation",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class Mutant(NamedTuple):
    """A changed line of a function; `line` and `mutant` are its source before and after."""

    function: str
    line: str
    mutant: str


class Outcome(NamedTuple):
    """What a run of the guards did to all mutants of a module."""

    killed: int
    timeouts: int
    survivors: list[Mutant]

    @property
    def total(self) -> int:
        """How many mutants there are."""
        return self.killed + self.timeouts + len(self.survivors)


def settings(module: str) -> str:
    """The table of the tool for one module, to stand in the pyproject.toml of a copy."""
    chosen = {
        "source_paths": ["oracle"],
        "only_mutate": [source_of(module)],
        "also_copy": ["impl", "fixtures", "conftest.py", "README.md"],
        "pytest_add_cli_args": ["-p", "no:cacheprovider"],
        "pytest_add_cli_args_test_selection": [f"tests/{name}" for name in GUARDS[module]],
        "timeout_multiplier": 4.0,
        "timeout_constant": 2.0,
    }
    rows = [f"{key} = {json.dumps(value)}" for key, value in chosen.items()]
    return "\n".join(["", "[tool.mutmut]", *rows, ""])


def copied(module: str, folder: Path) -> None:
    """Copy the checkout to a folder, with the settings of one module."""
    for name in project_files(ROOT):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    project = folder / "pyproject.toml"
    project.write_text(project.read_text("utf-8") + settings(module), "utf-8")


def run(module: str, folder: Path, processes: int = 1) -> Outcome:
    """Let the guards of a module run against each of its mutants, in an empty folder."""
    copied(module, folder)
    command = ("-m", "mutmut", "run", "--max-children", str(processes))
    done = run_python(*command, cwd=folder, limit_s=LIMIT_S, **FIXED)
    if done.returncode != 0:
        raise RuntimeError(f"the tool ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return outcome(module, folder / "mutants")


def outcome(module: str, mutants: Path) -> Outcome:
    """Read what the tool left behind: its exit codes, and the source with all mutants in it."""
    path = mutants / source_of(module)
    record = json.loads((path.parent / f"{path.name}.meta").read_text("utf-8"))
    codes: dict[str, int | None] = record["exit_code_by_key"]
    unchecked = [key for key, code in codes.items() if code is None]
    if not codes or unchecked:
        raise RuntimeError(f"{len(codes)} mutants of {module}, {len(unchecked)} were not checked")
    generated = sources(path.read_text("utf-8"))
    alive = [key.rpartition(".")[2] for key, code in codes.items() if code in ALIVE]
    timeouts = sum(code in LIMITS for code in codes.values())
    survivors = [changed(generated, name) for name in alive]
    return Outcome(len(codes) - len(alive) - timeouts, timeouts, survivors)


def sources(text: str) -> dict[str, list[str]]:
    """The lines of every generated function, by its name, under the name it has in the module."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and (name := GENERATED.fullmatch(node.name)):
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            found[node.name] = [line.replace(node.name, name["name"]) for line in lines]
    return found


def changed(generated: dict[str, list[str]], name: str) -> Mutant:
    """The lines in which a mutant differs from the original."""
    parts = GENERATED.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} is no name of a mutant")
    before = generated[name.replace(f"__mutmut_{parts['number']}", "__mutmut_orig")]
    after = generated[name]
    blocks = [
        block
        for block in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if block[0] != "equal"
    ]
    first, last = blocks[0], blocks[-1]
    owner = f"{parts['owner']}." if parts["owner"] else ""
    return Mutant(
        owner + parts["name"],
        flat(before[first[1] : last[2]]),
        flat(after[first[3] : last[4]]),
    )


def flat(lines: Iterable[str]) -> str:
    """Source lines on one line, with single spaces."""
    return " ".join(" ".join(lines).split())
