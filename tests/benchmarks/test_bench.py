"""What measures: tokens before times, a failure in its own row, and figures that add up."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console

from impl.noise import CounterNoise

from . import busy, counting, figure, floor, heads, parity, suite, table, wheel
from .bench import Bench, DeadDeviceError
from .chains import NoStagesError, ours
from .clock import HostClock, Run
from .floor import Ceilings
from .parity import Parity
from .peers import AbsentError
from .problem import SEED, Case, Problem, problem_for
from .rows import Report, Row
from .variant import Variant

CPU = torch.device("cpu")
CASE = Case(64, 4, 3, "half", rank=16)
TOKENS = torch.zeros(4, 3, dtype=torch.int64)
GOOD, BAD = Parity(good=True, judged=1.0), Parity(good=False, judged=1.0, complaint="all wrong")


class StillClock:
    """Every call takes two; a device that was broken stays broken."""

    def __init__(self) -> None:
        self.broken = False

    def cold(self, runs: Sequence[Run]) -> list[float]:
        """Run each once."""
        for run in runs:
            run()
        return [2.0 for _ in runs]

    def hot(self, run: Run) -> float:
        """Run it once."""
        run()
        return 2.0

    def step(self, captured: Run, loose: Run) -> tuple[float, float]:
        """Run both once."""
        captured()
        loose()
        return 1.0, 4.0

    def wait(self) -> None:
        """Raise when broken."""
        if self.broken:
            raise RuntimeError("no answer")


def bench_of(path: Path | None = None, clock: StillClock | None = None) -> Bench:
    """A bench on the CPU whose times are known."""
    return Bench(CPU, clock or StillClock(), Report(path, {"device": "still"}))


def variant(name: str, run: Run = lambda: None) -> Variant:
    """A block of nothing."""
    return Variant(name, run, TOKENS, "counter")


def raises(error: Exception) -> Callable[[], list[Variant]]:
    """A builder, or a run, that fails."""

    def fail() -> list[Variant]:
        raise error

    return fail


def rows_of(bench: Bench) -> dict[str, Row]:
    """Rows by name."""
    return {row.name: row for row in bench.report.rows}


def test_a_failure_costs_its_own_row(tmp_path: Path) -> None:
    """Building, judging and timing may each fail; the rows beside it are measured and written."""
    bench = bench_of(tmp_path / "rows.json")
    late = iter([None])

    def once() -> None:
        if next(late, "over") == "over":
            raise ValueError("second run")

    builds = {
        "unbuilt": raises(OSError("no compiler")),
        "away": raises(AbsentError("not installed")),
        "bare": raises(NoStagesError("no stages")),
        "breaking": lambda: [variant("breaking", once)],
        "sound": lambda: [variant("sound")],
    }

    def judge(one: Variant) -> Parity:
        one.run()
        return GOOD

    bench.side_by_side("chain", CASE, builds, judge, 1.0)
    found = rows_of(bench)
    assert found["unbuilt"].word == "OSError: no compiler"
    assert found["away"].word == "absent: not installed"
    assert found["bare"].word == "no stages"
    assert found["breaking"].word == "ValueError: second run"
    assert (found["sound"].cold, found["sound"].ratio, found["sound"].extra["wall"]) == (2, 2, 4)
    written = json.loads((tmp_path / "rows.json").read_text())
    assert [row["name"] for row in written["rows"]] == [row.name for row in bench.report.rows]
    assert written["words"] == ["away: not installed"]


def test_wrong_tokens_are_printed_and_not_timed() -> None:
    """The row says what is wrong and has no times."""
    bench = bench_of()
    bench.side_by_side("chain", CASE, {"x": lambda: [variant("x")]}, lambda _: BAD, 1.0)
    assert rows_of(bench)["x"].parity == "WRONG: all wrong"
    assert rows_of(bench)["x"].cold is None


def test_a_broken_device_ends_the_run() -> None:
    """No row after it could be measured."""
    clock = StillClock()
    bench = bench_of(clock=clock)

    def breaks() -> list[Variant]:
        clock.broken = True
        raise RuntimeError("illegal address")

    with pytest.raises(DeadDeviceError, match="illegal address"):
        bench.built("chain", CASE, {"x": breaks})


@pytest.mark.parametrize("mix", ["greedy", "sampled", "half"])
def test_our_chain_drafts_winners_and_another_does_not(mix: str) -> None:
    """Eager and folded pass and agree; a block with one token moved, or other noise, fails."""
    with torch.no_grad():
        problem = problem_for(replace(CASE, mix=mix), CPU)
        assert parity.noise_agrees(problem)
        eager, folded = ours(problem, "torch", "counter")
        assert parity.judged(eager, problem).good
        assert parity.judged(folded, problem).good
        first = folded.tokens.clone()

        def moved() -> None:
            folded.run()
            folded.tokens[0, 1].add_(1).remainder_(64)

        assert not parity.judged(replace(folded, run=moved), problem).good
        assert not parity.judged(replace(folded, run=lambda: folded.tokens.fill_(64)), problem).good
        if mix == "sampled":
            folded.run()
            assert not parity.judged(replace(folded, restart=lambda: None), problem).good
        assert parity.judged(folded, problem).good
        assert parity.same(folded.tokens, first) == 1.0


def test_the_noise_of_the_judge_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another seed would be seen before anything is judged by it."""
    problem, seeded = problem_for(CASE, CPU), CounterNoise.seeded
    monkeypatch.setattr(CounterNoise, "seeded", lambda wide, _, on: seeded(wide, SEED + 1, on))
    assert not parity.noise_agrees(problem)


def test_a_small_run_of_every_section() -> None:
    """Chain, head, occupancy's parts and counting leave rows; what is absent says so."""
    bench = Bench(CPU, HostClock(rounds=1), Report(None, {}))
    found = Ceilings(copy=1e4, read=1e4, gemm=1e4, node=1.0)
    with torch.no_grad():
        suite.chain(bench, CASE, found)
        suite.head(bench, Case(64, 2, 2, hidden=16), found)
        counting.measure(bench, counting.cases(rows=2**10)[0])
    held = {(row.section, row.name): row for row in bench.report.rows}
    failed = [(row.section, row.name, row.word) for row in bench.report.rows if row.cold is None]
    told = {"ours torch race, folded", "ours torch, folded", "torch argmax, in a graph"}
    assert told <= {name for _, name in held}, failed
    assert held["chain", "ours torch, folded"].equal == 1.0
    assert held["chain", "ours torch race, folded"].parity == "yes"
    assert held["head", "torch argmax, in a graph"].parity == "yes"
    assert held["head", "ours torch, folded"].cold > 0
    assert held["counting", "ours torch, folded"].extra["tokens a second"] > 0
    console = Console(width=190, record=True, file=StringIO())
    table.show(bench.report, console)
    assert "ours torch, folded" in console.export_text()


def test_counts_of_another_law_are_wrong() -> None:
    """All draws on one id are no sample of the law."""
    problem: Problem = problem_for(Case(16, 4, 2, "sampled", rank=16), CPU)
    counts = torch.zeros(16, dtype=torch.int64)
    counts[3] = 1000
    statistic, degrees = counting.chi_square(problem, counts)
    assert statistic > degrees + counting.SIGMAS * (2 * degrees) ** 0.5


def test_tokens_are_counted_by_step() -> None:
    """As a plain loop counts them, onto what is there."""
    tokens = torch.randint(0, 16, (500, 3), generator=torch.Generator().manual_seed(1))
    counts = torch.ones(3, 16, dtype=torch.int64)
    counting.count(tokens, counts)
    assert counts.tolist() == [
        [1 + column.count(token) for token in range(16)] for column in tokens.t().tolist()
    ]


def test_a_head_with_a_wrong_draft_is_seen() -> None:
    """The smallest logit is no winner."""
    case = Case(64, 2, 2, hidden=16)
    weight = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).bfloat16()
    hidden = heads.hidden_for(case, CPU)
    good, *_ = heads.plain(case, hidden, weight)
    assert heads.judged(good, hidden, weight).good
    least = torch.nn.functional.linear(hidden[:, 1:], weight).argmin(-1)
    wrong = replace(good, run=lambda: good.tokens.copy_(least))
    assert heads.judged(wrong, hidden, weight).complaint == "4 of 4 drafts are no winner"


def test_floors_follow_their_formulas() -> None:
    """Bound by memory, bound by products, and heads with logits stored."""
    found = Ceilings(copy=4.24e6, read=4.43e6, gemm=799e6, node=1.12)
    assert floor.chain_floor(Case(151_936, 8, 7, "half"), found) == pytest.approx(136.5, abs=0.2)
    assert floor.chain_floor(Case(151_936, 8, 7), found) == pytest.approx(132.5, abs=0.2)
    many = Case(129_280, 64, 7, hidden=7168)
    assert floor.head_floor(many, found) == pytest.approx(1039, abs=1)
    few = Case(129_280, 1, 7, hidden=4096)
    assert floor.head_floor(few, found, stored=True) > floor.head_floor(few, found)


def test_overlapping_kernels_count_once() -> None:
    """Busy time is a union, and the span runs from the first start to the last end."""
    seen = busy.summed([("a", 0.0, 4.0), ("b", 2.0, 6.0), ("b", 3.0, 5.0), ("c", 8.0, 10.0)])
    assert (seen.launches, seen.busy, seen.span, seen.share) == (4, 8.0, 10.0, 0.8)
    assert list(seen.top) == ["b", "a", "c"]
    assert busy.summed([]).share == 0.0


def test_the_wheel_has_to_be_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No folder, and a folder of something else, are named."""
    monkeypatch.delenv(wheel.VARIABLE, raising=False)
    with pytest.raises(AbsentError, match="names no unpacked wheel"):
        wheel.folder()
    monkeypatch.setenv(wheel.VARIABLE, str(tmp_path))
    with pytest.raises(AbsentError, match=f"without SGLang {wheel.VERSION}"):
        wheel.folder()


def test_a_plot_without_rows_says_so(tmp_path: Path) -> None:
    """Neither a missing library nor missing rows are an error."""
    assert figure.draw([], tmp_path / "plot.png").startswith("no plot: ")
