"""Engine fixture, marker rules for missing GPUs, and the count of skips by reason."""

import re
from collections import Counter

import pytest

NEEDED_GPUS = {"gpu": 1, "multi_gpu": 2}


@pytest.fixture(scope="session", params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def engine_name(request: pytest.FixtureRequest) -> str:
    """Name of the graph engine under test: the emulator always, cuda where a GPU is."""
    return str(request.param)


def visible_gpus() -> int:
    """Count the CUDA devices; torch is loaded only when a collected test needs one."""
    import torch

    return torch.cuda.device_count()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test that lacks its GPUs a skip that says what is missing."""
    wanting = [
        (item, count)
        for item in items
        for marker, count in NEEDED_GPUS.items()
        if item.get_closest_marker(marker) is not None
    ]
    present = visible_gpus() if wanting else 0
    for item, count in wanting:
        if present < count:
            reason = f"{present} CUDA devices are visible, the test needs {count}"
            item.add_marker(pytest.mark.skip(reason=reason))


def skip_reason(report: pytest.TestReport) -> str:
    """Return the reason of a skipped report, without pytest's prefix."""
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return re.sub(r"^Skipped: ", "", text)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason to skip, with the number of tests it hid."""
    skipped = terminalreporter.stats.get("skipped", [])
    for reason, count in sorted(Counter(map(skip_reason, skipped)).items()):
        terminalreporter.write_line(f"skipped {count}: {reason}")
