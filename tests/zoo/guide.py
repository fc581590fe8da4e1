"""The visitor's guide to the zoo: README.md, written from the specimens themselves."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from .blocks import RARE
from .controls import CONTROLS
from .matrix import everyone, rooms, torchrun
from .noise_law import WIDE
from .ranks import SHARED
from .specimen import Specimen

FILE = Path(__file__).with_name("README.md")
# Controls whose factory is only called "factory": the first line of their module speaks.
PLAIN = "factory"
COLUMNS = ("id", "story", "public reports it imitates", "killed by", "blind", "smallest size")
INTRODUCTION = """\
# The zoo

Deliberate bugs, each with its story, and correct samplers of other build. A specimen must be
killed by the check that is named for it, while the named blind check holds in its presence; a
control must pass every check. `python -m tests.zoo --guide` writes this page from the specimens.

## How to run

```text
python -m tests.zoo --profile small        sizes of the test suite
python -m tests.zoo --full                 every check on every specimen, profile smoke
python -m tests.zoo --only restage_skip    one specimen or control; may be repeated
python -m tests.zoo --check coupled        one check; may be repeated
python -m tests.zoo --json FILE --figure FILE.png
python -m tests.zoo --save DIR             store every kill; draftproof judge DIR judges it again
```

By default a specimen meets its named killer and its named blind check, and a control meets every
check in every combination. The exit code is 1 when a cell is unexpected: the killer does not kill,
the blind check does not hold, a control is flagged, or a check raises. Kills by other checks are
counted and are no fault. `--json` follows `matrix.schema.json`; `--figure` needs the extra
`report`. What needs ranks, or the draws of profile ci, is listed with the command that judges it.

One specimen by hand:

```text
draftproof verify --subject tests.zoo.memory:restage_skip --only dspark/counter
```
"""


def cleaned(words: str) -> str:
    """Text that can stand in a cell of a table."""
    return " ".join(words.split()).replace("|", "\\|")


def first_line(thing: object) -> str:
    """The first line of a docstring."""
    return (thing.__doc__ or "").strip().splitlines()[0]


def size(specimen: Specimen) -> str:
    """The smallest size, and what one run in one process at the usual sizes lacks."""
    if specimen in (*RARE, *WIDE):
        return f"{specimen.smallest}; profile ci"
    if specimen in SHARED:
        return f"{specimen.smallest}; torchrun"
    return specimen.smallest


def table(specimens: tuple[Specimen, ...]) -> Iterator[str]:
    """The lines of one table."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|" + "---|" * len(COLUMNS)
    for specimen in specimens:
        cells = (
            f"`{specimen.id}`",
            cleaned(specimen.story),
            specimen.imitates,
            f"`{specimen.killed_by}`",
            f"`{specimen.blind_to}`",
            cleaned(size(specimen)),
        )
        yield f"| {' | '.join(cells)} |"


def about(control: str) -> str:
    """What a control is, in one line."""
    factory = CONTROLS[control]
    named = factory.__name__ != PLAIN
    return first_line(factory if named else sys.modules[factory.__module__])


def text() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    lines.append(f"{len(everyone())} specimens and {len(CONTROLS)} controls.\n")
    for module, specimens in rooms().items():
        lines.append(f"## {module.rpartition('.')[2]}\n")
        lines.append(f"{first_line(importlib.import_module(module))}\n")
        lines += table(specimens)
        if specimens[0] in SHARED:
            lines.append("\nOne process sees none of these. For example:\n")
            lines.append(f"```text\n{torchrun(specimens[0])}\n```")
        lines.append("")
    lines.append("## controls\n")
    lines.append(f"{first_line(sys.modules[f'{__package__}.controls'])}\n")
    lines += ["| id | what it is |", "|---|---|"]
    lines += [f"| `{control}` | {cleaned(about(control))} |" for control in CONTROLS]
    return "\n".join(lines) + "\n"
