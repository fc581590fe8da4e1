"""Vectors as the simple text that the program in C reads, and what it prints about them."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from oracle.judge.vectors.form import cooked, spelled, words_of

SOURCE = Path(__file__).with_name("runner.c")
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
OPERATIONS = (
    "philox",
    "noise_words",
    "coin_words",
    "uniform",
    "choose",
    "accept",
    "accept_greedy",
)


def built(folder: Path) -> Path:
    """Compile the program."""
    program = folder / "runner"
    flags = ["-std=c99", "-O1", "-ffp-contract=off", "-Wall", "-Wextra"]
    command = [str(COMPILER), *flags, str(SOURCE), "-o", str(program), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return program


def elements(entry: Any) -> str:
    """The count and the elements of a value; a text has count -1."""
    if isinstance(entry, str):
        return f"-1 {entry}"
    if not isinstance(entry, dict):
        return f"1 {int(entry):x}"
    if "recipe" in entry:
        bits = spelled(words_of(cooked(entry), entry["dtype"]))
    else:
        bits = entry.get("bits") or " ".join(f"{value % 2**64:x}" for value in entry["values"])
    return f"{len(bits.split())} {bits}"


def text_of(documents: Any) -> tuple[str, list[str]]:
    """Every vector of an operation that the program knows, and their places."""
    lines, places = [], []
    for name, document in documents.items():
        for of in document["groups"]:
            if of["operation"] not in OPERATIONS:
                continue
            for one in of["cases"]:
                places.append(f"{name}/{of['id']}/{one['id']}")
                lines.append(f"case {of['operation']} {places[-1]}")
                for side, key in (("in", "inputs"), ("out", "expected")):
                    parts = one[key].items()
                    lines += [f"{side} {part} {elements(entry)}" for part, entry in parts]
                lines.append("end")
    return "\n".join(lines) + "\n", places


def answers(program: Path, text: str) -> list[str]:
    """One line a vector."""
    done = subprocess.run(
        [str(program)], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
