"""The visitor's guide to the zoo: README.md, written from the specimens themselves."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

from oracle.judge.context import PROFILES

from .blocks import RARE
from .controls import CONTROLS
from .controls.below import BELOW
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
python -m tests.zoo --full                 every check on everything, in every combination
python -m tests.zoo --only restage_skip    one specimen or control; may be repeated
python -m tests.zoo --check coupled        one check; may be repeated
python -m tests.zoo --json FILE --figure FILE.png
python -m tests.zoo --save DIR             store every kill; draftproof judge DIR judges it again
python -m tests.zoo --engine cuda          faults of recordings, under CUDA graphs
```

By default a specimen meets its named killer and its named blind check, and a control meets every
check in one combination, dealt in turn. In the larger profiles the named killers have the draws of
the profile; blind checks and controls have those of smoke, which is what leaves it in minutes.
`--full` is everything by every check, in every combination. The exit code is 1 when a cell is
unexpected: the killer does not kill, the blind check does not hold, a control is flagged, or a
check raises. Kills by other checks are counted and are no fault. `--json` follows
`matrix.schema.json`; `--figure` needs the extra `report`. What needs ranks, or the draws of profile
ci, is listed with the command that judges it. `--engine cuda` judges the rooms memory, staleness
and capture, none of which leans on what the emulator alone shows, and the control `folded`; the
other rooms are listed: their faults lie in arithmetic, in noise or in a rule, not in a recording.

One specimen by hand:

```text
draftproof verify --subject tests.zoo.memory:restage_skip --only dspark/counter
```
"""

FAINT = """\
Faults that no check may flag, since each lies below the smallest effect that a check states. Sizes
follow from the profile by the check's own arithmetic; the last column gives them as plain numbers.
An exact check sees one wrong token with certainty: what it looks at is not claimed, or is right.
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
    named = getattr(factory, "__name__", PLAIN) != PLAIN
    return first_line(factory if named else sys.modules[factory.__module__])


def faint() -> Iterator[str]:
    """The lines of the table of faults that nobody may be accused of."""
    yield "| id | what is wrong | check | of what it states | size at smoke |"
    yield "|" + "---|" * 5
    for one in BELOW.values():
        size = f"{one.size(PROFILES['smoke']):.1g}"
        part = f"{one.part:.0%} of: {one.effect}"
        cells = (f"`{one.id}`", cleaned(one.fault), f"`{one.check}`", part, size)
        yield f"| {' | '.join(cells)} |"


def text() -> str:
    """The whole page."""
    lines = [INTRODUCTION]
    lines.append(
        f"{len(everyone())} specimens, {len(CONTROLS)} controls and {len(BELOW)} "
        "faults too faint to be told.\n"
    )
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
    lines += ["", "## below the smallest detectable effect", "", FAINT]
    lines += faint()
    return "\n".join(lines) + "\n"
