"""The repository keeps its layout rules, and each rule notices what breaks it."""

from pathlib import Path

import pytest

from . import rules
from .tree import ROOT, plant

# Written in two parts, so that this file does not hold what it forbids.
MACHINE = "/" + "work/somewhere"
TICKET = "see #" + "12 for the reason"
WORDED = "as issue" + " 12 says"
LONG = "x = " + "1" * 97 + "\n"
TALL = "def tall():\n" + "    x = 1\n" * 60

# rule, planted files, part of the complaint that must come back
PLANTED: list[tuple[rules.Rule, dict[str, str], str]] = [
    (rules.top_level, {"scripts/run.sh": ""}, "scripts is no agreed"),
    (rules.top_level, {"oracle/gate.py": ""}, "README.md is missing"),
    (rules.names, {"impl/utils.py": ""}, "utils says nothing"),
    (rules.names, {"oracle/common/law.py": ""}, "common says nothing"),
    (rules.names, {"impl/token.py": ""}, "token shadows"),
    (rules.names, {"tests/statistics/test_law.py": ""}, "statistics shadows"),
    (rules.file_lines, {"impl/draft.py": "x = 1\n" * 301}, "301 lines"),
    (rules.function_lines, {"tests/test_law.py": TALL}, "tall has 61 lines"),
    (rules.columns, {"oracle/plugin.py": LONG}, "101 columns"),
    (rules.columns, {".ci/run": LONG}, "101 columns"),
    (rules.module_docstrings, {"impl/__init__.py": ""}, "no module docstring"),
    (rules.public_docstrings, {"impl/draft.py": "def fold():\n    return 1\n"}, "fold has no"),
    (rules.public_docstrings, {"impl/draft.py": "class Fold:\n    x = 1\n"}, "Fold has no"),
    (
        rules.public_docstrings,
        {"impl/draft.py": "class Fold:\n    'A fold.'\n    def run(self):\n        return 1\n"},
        "Fold.run has no",
    ),
    (rules.tickets, {"impl/draft.py": f"x = 1  # {TICKET}\n"}, "names '#1"),
    (rules.tickets, {"impl/draft.py": f"def f():\n    '''{WORDED}.'''\n"}, "names 'issue"),
    (rules.tickets, {"README.md": f"{WORDED}\n"}, "README.md:1"),
    (rules.tickets, {".ci/run": f"# {TICKET}\n"}, ".ci/run:1"),
    (rules.machine_paths, {"impl/draft.py": f"x = '{MACHINE}'\n"}, "impl/draft.py:1"),
    (rules.machine_paths, {".ci/run": f"cd {MACHINE}\n"}, ".ci/run:1"),
    (rules.twins, {"impl/logits.py": "", "oracle/reference/bias.py": ""}, "impl/bias.py"),
    (rules.twins, {"impl/logits.py": "", "oracle/reference/bias.py": ""}, "reference/logits.py"),
    (rules.twins, {"oracle/reference/confidence.py": ""}, "impl/confidence.py"),
]

# What looks like a violation and is none.
INNOCENT: list[tuple[rules.Rule, dict[str, str]]] = [
    (rules.names, {"impl/typesetting.py": "", "impl/__main__.py": ""}),
    (rules.file_lines, {"impl/draft.py": "x = 1\n" * 300}),
    (rules.function_lines, {"tests/test_law.py": TALL.rpartition("    x")[0]}),
    (rules.columns, {"oracle/plugin.py": LONG.replace("11", "1", 1), "README.md": LONG}),
    (rules.public_docstrings, {"impl/draft.py": "def _fold():\n    def inner():\n        pass\n"}),
    (rules.public_docstrings, {"impl/draft.py": "def fold() -> int: ...\n"}),
    (rules.tickets, {"README.md": "owner/repository#" + "12, and the colour #abc\n"}),
    (rules.tickets, {"impl/draft.py": f"x = {TICKET!r}\n"}),
    (rules.machine_paths, {"README.md": "a relative/work/folder, $HOME/tmp/x and /usr/bin/env\n"}),
    (
        rules.twins,
        {f"{side}/{n}.py": "" for side in ("impl", "oracle/reference") for n in rules.TWINS},
    ),
]


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_repository_keeps(rule: rules.Rule) -> None:
    """The repository breaks no layout rule, apart from the exceptions that give a reason."""
    assert rules.excused(rule, rule(ROOT)) == []


@pytest.mark.parametrize(("rule", "files", "expected"), PLANTED)
def test_rule_notices(
    rule: rules.Rule, files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    """Each rule reports what was planted against it."""
    complaints = rule(plant(tmp_path, files))
    assert any(expected in complaint for complaint in complaints), complaints


@pytest.mark.parametrize(("rule", "files"), INNOCENT)
def test_rule_spares(rule: rules.Rule, files: dict[str, str], tmp_path: Path) -> None:
    """A rule is silent about what only resembles a violation."""
    assert rule(plant(tmp_path, files)) == []


def test_planting_covers_every_rule() -> None:
    """No rule goes without a planted violation."""
    assert {rule for rule, _, _ in PLANTED} == set(rules.RULES)


def test_idle_exception_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception takes away its violation, and one that excuses nothing is a violation."""
    monkeypatch.setattr(rules, "EXCEPTIONS", {("columns", "impl/draft.py"): "wide on purpose"})
    assert rules.excused(rules.columns, ["impl/draft.py:3 has 101 columns"]) == []
    (complaint,) = rules.excused(rules.columns, [])
    assert "(wide on purpose) excuses nothing" in complaint


def test_exceptions_name_rules_and_reasons() -> None:
    """Each exception belongs to a rule and says why."""
    known = {rule.__name__ for rule in rules.RULES}
    assert all(rule in known and reason for (rule, _), reason in rules.EXCEPTIONS.items())
