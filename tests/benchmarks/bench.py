"""Measures implementations of one case side by side; what fails costs its own row and no more."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from . import busy
from .chains import NoStagesError
from .clock import Clock
from .parity import Parity, same
from .peers import AbsentError
from .problem import Case
from .rows import Report, Row
from .variant import Variant

Build = Callable[[], list[Variant]]
LINES, LETTERS = 1, 160


class DeadDeviceError(RuntimeError):
    """The device answers nothing any more, so no later row can be measured."""


@dataclass
class Bench:
    """What every measurement needs.

    clock     of the device
    report    where rows go
    deadline  in the time of `time.monotonic`; no case is begun after it
    say       told about every row as it comes
    """

    device: torch.device
    clock: Clock
    report: Report
    deadline: float = float("inf")
    say: Callable[[str], None] = lambda _: None

    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.deadline

    def keep(self, row: Row) -> None:
        """Report a row and say it in one line."""
        self.report.add(row)
        times = [f"{time:.1f}" if time else "-" for time in (row.cold, row.hot, row.floor)]
        case, text = row.case, row.word or row.parity
        size = f"V={case.vocabulary} B={case.rows} K={case.drafts} D={case.hidden} {case.mix}"
        self.say(f"{row.section} {size} | {row.name} | {' / '.join(times)} us | {text}")

    def built(self, section: str, case: Case, builds: Mapping[str, Build]) -> list[Variant]:
        """Build every implementation; one that cannot be built leaves a row that says why."""
        found = []
        for name, build in builds.items():
            try:
                found += build()
            except AbsentError as absent:
                self.report.say(f"{name}: {absent}")
                self.keep(Row(section, name, case, word=f"absent: {absent}"))
            except NoStagesError as error:
                self.keep(Row(section, name, case, word=str(error)))
            except Exception as error:  # noqa: BLE001  (a peer may raise anything)
                self.keep(Row(section, name, case, word=self.failure(error)))
        return found

    def side_by_side(
        self,
        section: str,
        case: Case,
        builds: Mapping[str, Build],
        judge: Callable[[Variant], Parity],
        floor: float,
    ) -> None:
        """Judge, and then time in turns, every implementation that drafts what it should."""
        pairs: list[tuple[Row, Variant]] = []
        shared: dict[str, Tensor] = {}
        for variant in self.built(section, case, builds):
            row = Row(section, variant.name, case, floor=floor, word=variant.note)
            if self.sound(row, variant, judge, shared):
                pairs.append((row, variant))
            else:
                self.keep(row)
        for (row, variant), cold in zip(pairs, self.colds(pairs), strict=True):
            row.cold = cold
            if cold is not None:
                self.guarded(row, partial(self.timed, row, variant))
            self.keep(row)

    def sound(
        self,
        row: Row,
        variant: Variant,
        judge: Callable[[Variant], Parity],
        shared: dict[str, Tensor],
    ) -> bool:
        """Judge a block; a row with wrong tokens says so and is not timed."""

        def ask() -> None:
            found = judge(variant)
            row.parity = f"WRONG: {found.complaint}"
            if found.good:
                # Noise of its own shows no winner: only the argmax rows of such a block are judged.
                row.parity = "yes" if found.judged else "not judged: own noise"
            row.extra["judged"] = found.judged
            if variant.draws == "counter" and found.good:
                tokens = variant.tokens.clone()
                row.equal = same(tokens, shared.setdefault("first", tokens))

        return self.guarded(row, ask) and not row.parity.startswith("WRONG")

    def colds(self, pairs: list[tuple[Row, Variant]]) -> list[float | None]:
        """Cold times in turns; each alone when one of them fails."""
        runs = [variant.run for _, variant in pairs]
        try:
            return list(self.clock.cold(runs))
        except Exception as error:  # noqa: BLE001  (as above)
            self.failure(error)
        found: list[float | None] = []
        for row, variant in pairs:
            kept: list[float] = []
            self.guarded(row, partial(self.alone, variant, kept))
            found.append(kept[0] if kept else None)
        return found

    def alone(self, variant: Variant, kept: list[float]) -> None:
        """The cold time of one variant, put into `kept`."""
        kept += self.clock.cold([variant.run])

    def timed(self, row: Row, variant: Variant) -> None:
        """Hot time, wall of a step that waits, and what the profiler sees."""
        row.hot = self.clock.hot(variant.run)
        row.extra["wall"] = self.clock.step(variant.run, lambda: None)[1]
        if self.device.type == "cuda" and variant.loose is not None:
            seen = busy.profiled(variant.run)
            row.launches, row.busy = seen.launches, seen.share
            row.extra["top"] = seen.top

    def guarded(self, row: Row, measure: Callable[[], object]) -> bool:
        """Measure; a failure is written into the row. Returns whether it went well."""
        try:
            measure()
            self.clock.wait()
        except Exception as error:  # noqa: BLE001  (as above)
            row.word = self.failure(error)
            return False
        return True

    def failure(self, error: Exception) -> str:
        """An error in one line. DeadDeviceError: the device was broken by it."""
        text = f"{type(error).__name__}: {error}".strip().splitlines()
        try:
            self.clock.wait()
        except Exception as broken:
            raise DeadDeviceError(text[0][:LETTERS]) from broken
        return " ".join(text[:LINES])[:LETTERS]

    def swept(self) -> None:
        """Give memory back that no one holds."""
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
