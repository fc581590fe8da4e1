"""One test for each check and combination, judged as `draftproof verify` judges it."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from ..judge.answer import counts
from ..judge.checks import ALL
from ..judge.question import Answer
from ..judge.suite import label_of
from ..judge.trial import COMBINATIONS


def marks(check: ModuleType) -> list[Any]:
    """What spends alarm probability is marked as statistical."""
    return [pytest.mark.statistical] if counts(check) else []


CASES = [
    pytest.param(
        check.NAME,
        combination,
        id=f"{check.NAME}-{label_of(combination)}",
        marks=marks(check),
    )
    for combination in COMBINATIONS
    for check in ALL
]


@pytest.mark.parametrize(("check", "combination"), CASES)
def test_check(
    check: str, combination: tuple[str, str], draftproof_judge: Callable[..., Answer]
) -> None:
    """The check holds on every case, or does not apply and says why."""
    draftproof_judge(check, combination)
