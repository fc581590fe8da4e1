"""Benchmarks are timed when a file for their figures is named; otherwise each runs once."""

import pytest

# Before any kernel is imported.
from tests import interpreted

__all__ = ["interpreted"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let --benchmark-json stand for --benchmark-enable: the default run disables timing."""
    if getattr(config.option, "benchmark_json", None):
        config.option.benchmark_enable = True
