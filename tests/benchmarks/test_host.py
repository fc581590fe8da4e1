"""What a replay of the emulator costs over the block it replays, and how fast the suite judges."""

from collections.abc import Iterator

import pytest
import torch
from pytest_benchmark.fixture import BenchmarkFixture

from . import host
from .chains import ours
from .clock import HostClock
from .suite import one_thread

# Not the aim, which a shared machine may miss: a replay that costs this much more is broken.
BROKEN = 3 * host.AIM


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One thread, no gradients."""
    with one_thread(), torch.no_grad():
        yield


@pytest.mark.parametrize("dialect", ["counter", "race"])
def test_a_replay_costs_about_what_the_block_costs(
    benchmark: BenchmarkFixture, dialect: str
) -> None:
    """At batch 8 and V = 4,096; the ratio is a figure of the report."""
    problem = host.problem()
    eager, folded = ours(problem, "torch", dialect)
    clock = HostClock(rounds=8 if benchmark.enabled else 3, calls=5 if benchmark.enabled else 1)
    row = host.compared(dialect, clock, eager, folded)
    benchmark.extra_info |= row.extra
    assert row.extra["ratio"] < BROKEN
    benchmark(folded.run)


@pytest.mark.slow
def test_the_suite_draws_and_judges(benchmark: BenchmarkFixture) -> None:
    """Drafts a second through one statistical check; what is sound is found sound."""
    row = benchmark.pedantic(host.throughput, rounds=1)
    benchmark.extra_info |= row.extra
    assert row.parity == "yes"
    assert row.extra["drafts"] > 0
