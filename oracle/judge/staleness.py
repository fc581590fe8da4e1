"""What is said of a stale value: whose it is, how old it was, and in which block."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..reference import choice
from .attribution import NEVER, WEIGHTS, Stale, stale
from .margin import ARITHMETIC
from .timeline import Moment

# The protocol's words for what a subject without BUFFERS does not name.
WORDS = {
    "hidden": "the hidden states",
    "anchor": "the anchor",
    "temperature": "the temperature",
    "top_k": "top_k, the mask of greedy rows,",
    "noise": "the noise",
}
READ = {
    "tokens": "the tokens as read",
    "step_logits": "the kept step logits as read",
    "temperature": "the exported temperature",
    "greedy": "the exported mask of greedy rows",
    "confidence": "the confidence as read",
}
# Where several buffers hold the stale value, the first of these roles passed it on.
ROLES = ("input", "parameter", "noise", "output", "scratch")


@dataclass(frozen=True)
class Found:
    """A block that a value of an earlier one explains; what: as Stale has it."""

    moment: Moment
    what: Stale


@dataclass(frozen=True)
class Judged:
    """All blocks of a run: those explained by something stale, and how many nothing explains."""

    blocks: Sequence[Moment]
    found: Sequence[Found]
    unexplained: int


def judged(blocks: Sequence[Moment], stages: str, limit: float, patience: int = 3) -> Judged:
    """Ask of every block that was read whether something in it was stale.

    After `patience` blocks that contradict what they were given, and that nothing explains, the
    rest is left alone: that is no matter of age. A block that several things explain is given to
    the one that explains most blocks.
    """
    found, unexplained = list[Found](), 0
    for number, moment in enumerate(blocks):
        if unexplained > patience or not moment.outputs:
            continue
        hint = found[-1].what if found else None
        wrong, what = stale(moment, blocks[:number], ARITHMETIC[stages], limit, hint)
        unexplained += wrong and what is None
        if what is not None:
            found.append(Found(moment, what))
    kinds = Counter(each.what.kind for each in found)
    for place, each in enumerate(found):
        best = max(found, key=lambda other: kinds[other.what.kind]).what
        if each.what.kind != best.kind:
            earlier = blocks[: each.moment.number]
            again = stale(each.moment, earlier, ARITHMETIC[stages], limit, best)[1]
            if again is not None and again.kind == best.kind:
                found[place] = Found(each.moment, again)
    return Judged(blocks, found, unexplained)


def forms(moment: Moment, name: str) -> list[torch.Tensor]:
    """A value that a block was given, in the forms in which a buffer may hold it."""
    value = moment.given(name)
    if value is None:
        return []
    if name == "temperature":
        return [value, choice.clamped(value).to(torch.float32)]
    if name == "top_k":
        return [value, choice.is_greedy(moment.inputs["temperature"], value)]
    return [value[:, -1].to(torch.float32)] if name == "noise" else [value]


def holds_form(content: torch.Tensor, wanted: Sequence[torch.Tensor], rows: int) -> bool:
    """Whether a buffer, or its first column, holds one of these values in its live rows."""
    held = [content[:rows]]
    if content.dim() > 1:
        held.append(content[:rows, 0])
    return any(
        part.dtype == form.dtype and torch.equal(part, form) for part in held for form in wanted
    )


def seen_in(moment: Moment, buffer: str) -> Mapping[str, Any]:
    """A buffer as the block found it, where that was looked at, else as the block left it."""
    return moment.ahead.get(buffer, moment.buffers[buffer])


def carriers(cases: Sequence[tuple[Moment, Moment]], name: str) -> list[str]:
    """The buffers in which each first block finds what the second one was given.

    cases: pairs of blocks. Those of the role that comes first in ROLES lead.
    """
    if not cases or not all(moment.buffers for moment, _ in cases):
        return []
    first = cases[0][0].buffers
    found = [
        buffer
        for buffer in first
        if all(
            first[buffer]["rows"]
            and holds_form(seen_in(m, buffer)["content"], forms(source, name), m.rows)
            for m, source in cases
        )
    ]
    return sorted(found, key=lambda buffer: ROLES.index(first[buffer]["role"]))


def written(cases: Sequence[Moment], name: str) -> str:
    """The buffer that holds an output as it was read, or ''."""
    for buffer, seen in cases[0].buffers.items():
        held = [(m.buffers[buffer]["content"], m.outputs[name], m.rows) for m in cases]
        if seen["rows"] and all(holds_form(c, [read], rows) for c, read, rows in held):
            return buffer
    return ""


def owner(run: Judged, found: Sequence[tuple[Moment, int]], name: str, *, read: bool) -> str:
    """Who is stale: a buffer by the subject's own name, else the protocol's word for it."""
    if read:
        buffer = written([moment for moment, _ in found], name)
        return f"buffer {buffer}" if buffer else READ[name]
    if name in WEIGHTS:
        return f"weight {name}"
    cases = [(m, run.blocks[m.number - age]) for m, age in found if age != NEVER]
    if holding := carriers(cases, name):
        return f"buffer {holding[0]}"
    if fresh := carriers([(moment, moment) for moment, _ in found], name):
        places = {m.buffers[fresh[0]]["address"] for m in run.blocks if m.buffers}
        left = "that was left by" if len(places) > 1 else "that is read in the place of"
        return f"the memory {left} buffer {fresh[0]}"
    return WORDS[name]


def counted(age: int, kind: str = "replay") -> str:
    """An age as a phrase."""
    return f"{age} {kind}{'' if age == 1 else 's'} old"


def sentence(run: Judged, name: str, found: Mapping[int, int], *, read: bool) -> str:
    """Who was stale, how old at the worst, what it held, and the ages of all blocks.

    found: number of a block -> age.
    """
    who = owner(run, [(run.blocks[n], age) for n, age in found.items()], name, read=read)
    number, age = max(found.items(), key=lambda each: (each[1], -each[0]))
    eager = any(run.blocks[n].event["verb"] == "eager" for n in range(number - age, number + 1))
    kind = "block" if eager else "replay"
    if age == NEVER:
        where = f"{kind} {number}" if len(found) == 1 else f"{len(found)} {kind}s"
        return f"{who} was older than the first load in {where}, and held its neutral value"
    did = "written by" if read else "drawn for" if name == "noise" else "given to"
    text = f"{who} was {counted(age, kind)} in {kind} {number}, as {did} {kind} {number - age}"
    if len(found) == 1:
        return text
    every = ["-" if found.get(m.number) == NEVER else found.get(m.number, 0) for m in run.blocks]
    return f"{text}; ages by {kind}: {' '.join(map(str, every))}"


def told(run: Judged) -> tuple[str, dict[str, int]]:
    """All that was stale in a run, as one phrase, and field -> worst age; '' without any."""
    ages: dict[tuple[str, bool], dict[int, int]] = {}
    for each in run.found:
        for name, age in each.what.ages.items():
            ages.setdefault((name, each.what.read), {})[each.moment.number] = age
    # A field that was late once and never loaded before that is late; NEVER says less.
    said = {
        key: {n: age for n, age in found.items() if age != NEVER} or found
        for key, found in ages.items()
    }
    ranked = sorted(said.items(), key=lambda item: (-max(item[1].values()), -len(item[1])))
    phrases = [sentence(run, name, found, read=read) for (name, read), found in ranked]
    others = [read for each in run.found for read in each.what.either]
    if others and not any("buffer" in phrase for phrase in phrases):
        phrases[0] += f", or {READ[others[0]]} of that block"
    return "; ".join(phrases), {name: max(found.values()) for (name, _), found in ranked}


def explanation(blocks: Sequence[Moment], stages: str) -> str:
    """What explains the last of these blocks, as a phrase; '' when no earlier value does."""
    if not blocks or not blocks[-1].outputs:
        return ""
    *earlier, now = blocks
    what = stale(now, earlier, ARITHMETIC[stages], 0.0)[1]
    return "" if what is None else told(Judged(blocks, [Found(now, what)], 0))[0]
