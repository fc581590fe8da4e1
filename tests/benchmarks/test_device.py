"""Our block and its peers on a GPU: tokens first, then times, by `--benchmark-json`.

Without that option each implementation runs once, in one small case.
"""

from collections.abc import Callable, Iterator

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from . import busy, floor, heads, parity, suite
from .bench import Build
from .clock import COLD_ROUNDS, COLD_WARM, CudaClock
from .floor import Ceilings
from .parity import Parity
from .problem import Case, chain_cases, head_cases, head_weight, problem_for
from .variant import Variant

pytestmark = pytest.mark.gpu
SMALL = Case(4096, 4, 3, "half", rank=64)
CHAINS = ("ours torch", "ours torch race", "ours triton", "SGLang", "FlashInfer", "torch")
COMPILED = "torch.compile"
# The compiler imports modules of torch's own that are deprecated.
QUIET = pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
HEADS = ("ours torch", "ours triton", "ours triton, stored", "torch argmax")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """All sizes when times are wanted, else one."""
    timed = bool(metafunc.config.option.benchmark_json)
    if metafunc.function is test_chain:
        cases = list(chain_cases(quick=False)) if timed else [SMALL]
        metafunc.parametrize(("case", "name"), list(chains(cases)))
    if metafunc.function is test_head:
        cases = list(head_cases(quick=False)) if timed else [Case(4096, 4, 3, hidden=64)]
        metafunc.parametrize(
            ("case", "name"),
            [pytest.param(case, name, marks=marks(name)) for case in cases for name in HEADS],
        )


def chains(cases: list[Case]) -> Iterator[object]:
    """Case and implementation; compiled torch last, since it compiles for long."""
    for case in cases:
        for name in CHAINS:
            if case.samples or name not in ("ours torch race", "FlashInfer"):
                yield pytest.param(case, name, marks=marks(name))
    for case in cases:
        if case == SMALL or case in suite.compiled_cases(quick=False):
            yield pytest.param(case, COMPILED, marks=QUIET)


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """A skip that says why the implementation is absent."""
    reason = suite.absent(name)
    return (pytest.mark.skip(reason=reason),) if reason else ()


@pytest.fixture(scope="module")
def ceilings() -> Ceilings:
    """The ceilings of the device."""
    busy.prime()
    return floor.measured(CudaClock(), torch.device("cuda"))


@pytest.fixture(autouse=True)
def no_gradients() -> Iterator[None]:
    """As the blocks are used."""
    with torch.no_grad():
        yield
    torch.cuda.empty_cache()


def test_chain(benchmark: BenchmarkFixture, case: Case, name: str, ceilings: Ceilings) -> None:
    """The chain of K steps, base logits given."""
    problem = problem_for(case, torch.device("cuda"))
    assert parity.noise_agrees(problem)
    builds = suite.chain_builds(problem) | suite.compiled_builds(problem)
    measured(
        benchmark,
        builds[name],
        lambda variant: parity.judged(variant, problem),
        floor.chain_floor(case, ceilings),
    )


def test_head(benchmark: BenchmarkFixture, case: Case, name: str, ceilings: Ceilings) -> None:
    """Output head and argmax."""
    device = torch.device("cuda")
    weight = head_weight(case.vocabulary, case.hidden, device)
    hidden = heads.hidden_for(case, device)
    measured(
        benchmark,
        heads.builders(case, hidden, weight)[name],
        lambda variant: heads.judged(variant, hidden, weight),
        floor.head_floor(case, ceilings),
    )


def measured(
    benchmark: BenchmarkFixture,
    build: Build,
    judge: Callable[[Variant], Parity],
    least: float,
) -> None:
    """Judge what was built, then time it; the folded form is the one whose rounds are kept."""
    variants = build()
    for variant in variants:
        found = judge(variant)
        assert found.good, f"{variant.name}: {found.complaint}"
    if benchmark.enabled:
        clock = CudaClock()
        colds = clock.cold([variant.run for variant in variants])
        for variant, cold in zip(variants, colds, strict=True):
            figures = {"cold": cold, "hot": clock.hot(variant.run), "ratio": cold / least}
            if variant.loose is not None:
                seen = busy.profiled(variant.run)
                figures |= {"launches": seen.launches, "busy": seen.share}
            benchmark.extra_info[variant.name] = figures
        benchmark.extra_info["floor"] = least

    def once() -> None:
        variants[-1].run()
        torch.cuda.synchronize()

    benchmark.pedantic(once, rounds=COLD_ROUNDS, warmup_rounds=COLD_WARM)
