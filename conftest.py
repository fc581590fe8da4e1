"""Hypothesis profiles: dev (quick), ci (the same examples every run), nightly (long, remembered).

A fourth, mutation, asks only whether a test fails: the same few examples, and no smaller ones.

HYPOTHESIS_PROFILE names one of them; without it CI=true selects ci, and anything else dev.
"""

import os

from hypothesis import Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

pytest_plugins = ["oracle.plugin"]

# A deadline would fail a test because the machine was busy. A blob repeats a failure anywhere.
# Hypothesis has settings of its own for CI, so each profile says whether its examples vary.
settings.register_profile("dev", max_examples=20, deadline=None, print_blob=True, derandomize=False)
settings.register_profile(
    "ci", max_examples=50, deadline=None, print_blob=True, derandomize=True, database=None
)
settings.register_profile(
    "nightly",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    derandomize=False,
    database=DirectoryBasedExampleDatabase(".hypothesis/examples"),
)
settings.register_profile(
    "mutation",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
)

_environment = os.environ  # noqa: TID251  (the profile is a matter of the test run, not of impl)
_unnamed = "ci" if _environment.get("CI") == "true" else "dev"
settings.load_profile(_environment.get("HYPOTHESIS_PROFILE", _unnamed))
