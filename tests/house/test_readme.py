"""What the README says is executed: its commands exist, its examples run, its names are real."""

import json
import os
import re
from pathlib import Path

import pytest

from .tree import ROOT, parse, plant, run_python, strings

README = ROOT / "README.md"
OWN_SAMPLER, OWN_SAMPLER_LINES = "own-sampler", 40
COMMANDS = ("verify", "test")
CELL_EDGE = re.compile(r"(?<!\\)\|")
VARIABLE = re.compile(r"\bDRAFTPROOF_[A-Z0-9_]*[A-Z0-9]")
# Variables that impl/config.py does not know, with their owner.
OTHER_VARIABLES: dict[str, str] = {}

MARK = re.compile(r"<!-- (?P<kind>command|example): (?P<name>[\w-]+) -->\s*")
FENCE = re.compile(r"```(?P<language>\w*)\s*")
LIST_CHECKS = """
import json
from oracle.judge.checks import ALL
print(json.dumps([check.NAME for check in ALL]))
"""


def readme() -> str:
    """Return the text of the README, which must exist."""
    assert README.is_file(), "README.md is missing"
    return README.read_text(encoding="utf-8")


def marked_blocks(text: str, kind: str) -> dict[str, tuple[str, str]]:
    """Map the name of each marked block to its (language, content).

    A mark is a comment alone on its line; the block is the fence right after it. Raises ValueError
    for a mark without a closed fence, and for a name that occurs twice.
    """
    lines = text.splitlines()
    blocks: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(lines):
        mark = MARK.fullmatch(line)
        if mark is None or mark["kind"] != kind:
            continue
        following = number + 1
        while following < len(lines) and not lines[following].strip():
            following += 1
        fence = FENCE.fullmatch(lines[following]) if following < len(lines) else None
        closing = [i for i in range(following + 1, len(lines)) if lines[i].rstrip() == "```"]
        if fence is None or not closing:
            raise ValueError(f"no closed fence right after {line.strip()!r}")
        if mark["name"] in blocks:
            raise ValueError(f"{line.strip()!r} occurs twice")
        content = "\n".join(lines[following + 1 : closing[0]]) + "\n"
        blocks[mark["name"]] = fence["language"], content
    return blocks


def table_names(text: str) -> set[str]:
    """Return the first cell of every table row, without back-quotes."""
    rows = re.finditer(r"^\|\s*`?(?P<cell>[^|`]+?)`?\s*\|", text, re.MULTILINE)
    return {row["cell"] for row in rows}


def unmarked_python(text: str) -> list[int]:
    """Return the lines of Python fences that have no example mark, so that nothing runs them."""
    lines = text.splitlines()
    bare = []
    for number, line in enumerate(lines):
        before = [above for above in lines[:number] if above.strip()][-1:]
        if line.startswith("```python") and not (before and MARK.fullmatch(before[0])):
            bare.append(number + 1)
    return bare


def ragged_rows(text: str) -> list[int]:
    """Return the lines of table rows that have more or fewer cells than the head of their table."""
    ragged, head = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        cells = len(CELL_EDGE.findall(line)) if line.startswith("|") else 0
        head = (head or cells) if cells else 0
        if cells != head:
            ragged.append(number)
    return ragged


def configured_variables(root: Path) -> set[str]:
    """Return the variables that impl/config.py spells out: its own and those it knows of."""
    texts = {str(node.value) for node in strings(parse(root / "impl" / "config.py"))}
    return {text for text in texts if VARIABLE.fullmatch(text)}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_there(name: str) -> None:
    """The README holds each command that .ci/run executes."""
    language, content = marked_blocks(readme(), "command")[name]
    assert language in {"bash", "sh", "shell", "console"}
    assert content.strip()
    assert not any(line.startswith("$ ") for line in content.splitlines())


def test_every_python_block_is_an_example() -> None:
    """No Python of the README goes without being run."""
    assert unmarked_python(readme()) == []


def test_examples_run(tmp_path: Path) -> None:
    """Every example but the sampler runs as it stands, in a folder of its own."""
    examples = marked_blocks(readme(), "example")
    assert {language for language, _ in examples.values()} <= {"python"}
    for name, (_, content) in examples.items():
        if name != OWN_SAMPLER:
            folder = plant(tmp_path / name, {"example.py": content})
            done = run_python("-W", "error", "example.py", cwd=folder, path=ROOT)
            assert done.returncode == 0, f"{name}: {done.stderr}"


def test_own_sampler_is_short() -> None:
    """The sampler that the README writes from nothing has under 40 lines."""
    _, content = marked_blocks(readme(), "example")[OWN_SAMPLER]
    assert len(content.splitlines()) < OWN_SAMPLER_LINES
    assert "factory" in content


def test_own_sampler_passes(tmp_path: Path) -> None:
    """The sampler of the README passes the judge by the command line."""
    _, content = marked_blocks(readme(), "example")[OWN_SAMPLER]
    plant(tmp_path, {"own_sampler.py": content})
    command = ["-m", "oracle", "verify", "--subject", "own_sampler:factory", "--profile", "smoke"]
    search = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run_python(*command, cwd=tmp_path, path=search)
    assert done.returncode == 0, done.stdout + done.stderr


def test_checks_are_in_the_table() -> None:
    """Every check has a row in a table of the README."""
    done = run_python("-c", LIST_CHECKS, cwd=ROOT, path=ROOT)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)
    assert checks
    assert set(checks) - table_names(readme()) == set()


def test_every_row_has_the_cells_of_its_table() -> None:
    """A row of another table would be cut off, or read under the wrong heads."""
    assert ragged_rows(readme()) == []


def test_variables_exist() -> None:
    """Every variable that the README mentions is one that the code reads."""
    mentioned = set(VARIABLE.findall(readme()))
    assert mentioned - configured_variables(ROOT) - set(OTHER_VARIABLES) == set()


SAMPLE = """
<!-- command: verify -->

```bash
one
two
```
<!-- example: tour -->
```python
x = 1
```
| `bounds` | tokens |
| path | replays |
"""


def test_extraction_reads_marks() -> None:
    """Blocks come with language and content; marks of the other kind are left alone."""
    assert marked_blocks(SAMPLE, "command") == {"verify": ("bash", "one\ntwo\n")}
    assert marked_blocks(SAMPLE, "example") == {"tour": ("python", "x = 1\n")}
    assert table_names(SAMPLE) == {"bounds", "path"}
    assert unmarked_python(SAMPLE) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SAMPLE.replace("```bash", "prose\n```bash"), "no closed fence right after"),
        (SAMPLE.rpartition("```")[0].partition("<!-- e")[0][:-5], "no closed fence right after"),
        (SAMPLE + SAMPLE, "occurs twice"),
    ],
    ids=["prose between", "never closed", "twice"],
)
def test_extraction_refuses(text: str, expected: str) -> None:
    """A mark that does not stand right before one closed fence is an error."""
    with pytest.raises(ValueError, match=expected):
        marked_blocks(text, "command")


def test_unmarked_python_is_noticed() -> None:
    """A Python fence without a mark is reported by its line."""
    assert unmarked_python("text\n\n```python\nx = 1\n```\n") == [3]


def test_a_row_of_another_table_is_noticed() -> None:
    """Too few and too many cells; an escaped bar is no edge, and a new table has its own head."""
    table = "| a | b |\n|---|---|\n| 1 | x \\| y |\n"
    assert ragged_rows(table + "\n| a |\n|---|\n| 1 |\n") == []
    assert ragged_rows(table + "| 1 |\n| 1 | 2 | 3 |\n") == [4, 5]


def test_variables_are_read_from_the_source(tmp_path: Path) -> None:
    """Whole names in code count; a prefix alone and a docstring do not."""
    text = "'Reads DRAFTPROOF_NOISE.'\nPREFIX = 'DRAFTPROOF_'\nNAME = 'DRAFTPROOF_ENGINE'\n"
    assert configured_variables(plant(tmp_path, {"impl/config.py": text})) == {"DRAFTPROOF_ENGINE"}
