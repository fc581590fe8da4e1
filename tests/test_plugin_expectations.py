"""The plugin with a file of known deviations: what is expected, and entries that met nothing."""

import json

import pytest

from .test_plugin import WRONG_GATE, conformance

pytest_plugins = ["pytester"]

KNOWN = """
format = "draftproof-expectations-1"
[[expected]]
subject = "wrong_gate:factory"
check = "gates"
says = "{}"
why = "This gate is wrong on purpose."
reference = "https://example.org/gates"
"""


@pytest.mark.parametrize("says", ["observed", "nothing of the kind"])
def test_what_a_file_announces_is_expected_and_an_idle_entry_fails(
    pytester: pytest.Pytester, says: str
) -> None:
    """The finding is xfailed with its reason, and in the report; else it fails, and is told."""
    found = says == "observed"
    pytester.makepyfile(wrong_gate=WRONG_GATE)
    known = pytester.makefile(".toml", known=KNOWN.format(says))
    words = ("-k", "gates and dflash", "-rx", "--draftproof-json", "out.json")
    seen = conformance(
        pytester, "wrong_gate:factory", "--draftproof-expectations", str(known), *words
    )
    seen.assert_outcomes(xfailed=found, failed=not found)
    assert (seen.ret == pytest.ExitCode.OK) is found
    assert ("expected, and not found: wrong_gate:factory" in seen.stdout.str()) is not found
    assert ("XFAIL" in seen.stdout.str()) is found
    report = json.loads((pytester.path / "out.json").read_text())
    assert report["verdict"] == ("expected" if found else "violated")


def test_an_announced_bug_that_is_gone_fails_the_session(pytester: pytest.Pytester) -> None:
    """Every test passes, and the entry says otherwise."""
    text = KNOWN.format("observed").replace("wrong_gate:factory", "reference")
    known = pytester.makefile(".toml", known=text)
    words = ("-k", "gates and dflash", "--draftproof-expectations", str(known))
    seen = conformance(pytester, "reference", *words)
    seen.assert_outcomes(passed=1)
    assert seen.ret == pytest.ExitCode.TESTS_FAILED
    assert "expected, and not found: reference: gates" in seen.stdout.str()
