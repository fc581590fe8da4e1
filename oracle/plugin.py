"""pytest with a draft sampler under test: options, markers, header, fixtures, report.

The plugin is loaded wherever the wheel is installed. It does nothing until a subject is named, by
--draftproof-subject or by DRAFTPROOF_SUBJECT, and loads torch no earlier.
"""

import json
import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .judge.context import Context
    from .judge.protocol import Factory, Setting, Subject
    from .judge.question import Answer
    from .judge.script import Plan
    from .judge.suite import Suite

MARKERS = {
    "gpu": "gpu: needs a CUDA device",
    "multi_gpu": "multi_gpu(n=2): needs n CUDA devices",
    "statistical": "statistical: spends alarm probability from the ledger",
    "stateful": "stateful: a Hypothesis state machine",
    "slow": "slow: longer than a default run allows",
}
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("subject", {"metavar": "MODULE:FACTORY", "help": "the sampler under test"}),
    ("profile", {"default": "smoke", "help": "smoke, ci or deep: how much is drawn"}),
    ("seed", {"type": int, "default": 0, "help": "seed of inputs and noise"}),
    ("engine", {"default": "auto", "help": "auto, emulator, cuda or eager: what records"}),
    ("device", {"default": "", "help": "cpu or cuda; that of the engine when left out"}),
    ("workload", {"default": "synthetic", "help": "synthetic or smollm2: where inputs come from"}),
    ("alpha", {"type": float, "default": 1e-6, "help": "false-alarm probability of the session"}),
    ("json", {"type": Path, "metavar": "FILE", "help": "write the report of verify"}),
    ("expectations", {"default": "", "metavar": "FILE", "help": "deviations known beforehand"}),
    ("require-gpu", {"action": "store_true", "help": "no GPU, or one skipped test, is a failure"}),
)
SUITE: pytest.StashKey["Suite"] = pytest.StashKey()
SESSION: pytest.StashKey["Session"] = pytest.StashKey()
CARRIED: pytest.StashKey[list[dict[str, Any]]] = pytest.StashKey()
TOLD: pytest.StashKey[list[str]] = pytest.StashKey()
FIXTURES = "draftproof_"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Every option begins with --draftproof-, so that no other plugin declares it too."""
    group = parser.getgroup("draftproof", "draft samplers under test")
    for name, words in OPTIONS:
        group.addoption(
            f"--draftproof-{name}", dest=f"draftproof_{name.replace('-', '_')}", **words
        )


def option(config: pytest.Config, name: str) -> Any:
    """The value of --draftproof-NAME; the subject may also be named by the environment."""
    value = config.getoption(f"draftproof_{name}")
    return value or (os.environ.get("DRAFTPROOF_SUBJECT") if name == "subject" else value)


def suite_of(config: pytest.Config) -> "Suite":
    """The subject under test; UsageError where none is named, or none can be had."""
    if SUITE not in config.stash:
        from .judge.question import Asked, AskedError
        from .judge.suite import Suite

        if not (subject := option(config, "subject")):
            raise pytest.UsageError(
                "no sampler is under test, required: --draftproof-subject module:factory, "
                "or the variable DRAFTPROOF_SUBJECT"
            )
        names = (name.replace("-", "_") for name, _ in OPTIONS if name not in ("subject", "json"))
        asked = {name: option(config, name) for name in names}
        asked["workers"] = getattr(config, "workerinput", {}).get("workercount", 1)
        try:
            suite = Suite(Asked(subject, **asked, folder=config.invocation_params.dir))
        except AskedError as error:
            raise pytest.UsageError(f"draftproof: {error}") from error
        config.stash[SUITE] = suite
    return config.stash[SUITE]


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers that nobody has declared, and look for what the session requires."""
    declared = {line.partition(":")[0].partition("(")[0] for line in config.getini("markers")}
    for name, line in MARKERS.items():
        if name not in declared:
            config.addinivalue_line("markers", line)
    if option(config, "require_gpu"):
        require_gpu(config)
    if not hasattr(config, "workerinput"):
        config.stash[SESSION] = Session(config)
        config.pluginmanager.register(config.stash[SESSION], "draftproof-session")


def gpus() -> int:
    """How many CUDA devices torch sees."""
    from .judge import place

    return place.gpus()


def require_gpu(config: pytest.Config) -> None:
    """Refuse a session that no GPU can take part in."""
    engine, device = option(config, "engine"), option(config, "device")
    if engine in ("emulator", "eager") or device == "cpu":
        raise pytest.UsageError(
            f"--draftproof-require-gpu, and engine {engine} on {device or 'cpu'}"
        )
    if not gpus():
        raise pytest.UsageError(
            "RuntimeError: --draftproof-require-gpu, and torch sees no CUDA device"
        )


def pytest_sessionstart(session: pytest.Session) -> None:
    """Load the subject before anything is collected: a wrong name stops the session."""
    if option(session.config, "subject"):
        suite_of(session.config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What is under test, on what, with which versions and variables."""
    if not option(config, "subject"):
        return []
    return [f"draftproof: {line}" for line in suite_of(config).header()]


def concerned(item: pytest.Item) -> bool:
    """Whether a test is about the subject or about a GPU."""
    markers = any(item.get_closest_marker(name) for name in ("gpu", "multi_gpu"))
    return markers or any(name.startswith(FIXTURES) for name in getattr(item, "fixturenames", ()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where a subject is named, tests that lack their GPUs are skipped, and say what is missing."""
    if not option(config, "subject"):
        return
    wanting = [(item, item.get_closest_marker("multi_gpu")) for item in items if concerned(item)]
    for item, several in wanting:
        need = int(several.kwargs.get("n", (*several.args, 2)[0])) if several else 1
        if (several or item.get_closest_marker("gpu")) and (found := gpus()) < need:
            reason = f"{found} CUDA devices are visible, the test needs {need}"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a report its answers, and a failure its seed and the commands that show it again."""
    report = yield
    # Whatever a report holds travels from a worker of xdist to the process that reports.
    vars(report)["draftproof_concerned"] = concerned(item)
    if report.when == "call":
        vars(report)["draftproof"] = item.stash.get(CARRIED, [])
        if report.failed and (told := item.stash.get(TOLD, [])):
            report.sections.append(("draftproof", "\n".join(told)))
    return report


class Session:
    """What the process that reports has seen: answers, and skips that must not pass."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.answers: list[dict[str, Any]] = []
        self.skipped: list[str] = []
        self.ran = 0
        self.complaints: list[str] = []
        if file := option(config, "json"):
            # What an earlier session wrote must not stand for this one.
            file.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect what a test answered, here or in a worker."""
        answers = getattr(report, "draftproof", [])
        self.answers += answers
        about = getattr(report, "draftproof_concerned", False)
        # What is expected was judged: pytest counts it as a skip.
        skipped = report.skipped and not hasattr(report, "wasxfail")
        self.ran += about and report.when == "call" and not skipped
        # What a subject does not claim or serve is no hole in a session; all other skips are.
        declined = bool(answers) and all(answer["declined"] for answer in answers)
        if about and skipped and not declined:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.skipped.append(f"{report.nodeid}: {str(reason).removeprefix('Skipped: ')}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; a session that skipped what a GPU job must run has failed."""
        if self.answers:
            report, self.complaints = suite_of(self.config).report(self.answers)
            if file := option(self.config, "json"):
                file.write_text(json.dumps(report, indent=1) + "\n")
        if option(self.config, "require_gpu") and not self.config.option.collectonly:
            self.complaints += [f"--draftproof-require-gpu, and skipped: {t}" for t in self.skipped]
            if not self.ran:
                self.complaints.append("--draftproof-require-gpu, and no test of a sampler ran")
        if self.complaints and session.exitstatus in (
            pytest.ExitCode.OK,
            pytest.ExitCode.NO_TESTS_COLLECTED,
        ):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what failed the session beside its tests."""
        for text in self.complaints:
            terminalreporter.write_line(f"RuntimeError: draftproof: {text}", red=True)


@pytest.fixture(scope="session")
def draftproof_suite(pytestconfig: pytest.Config) -> "Suite":
    """The subject, and everything that can be asked of it; oracle/judge/suite.py lists it."""
    return suite_of(pytestconfig)


@pytest.fixture(scope="session")
def draftproof_factory(draftproof_suite: "Suite") -> "Factory":
    """The factory of the subject under test."""
    return draftproof_suite.factory


@pytest.fixture(scope="session")
def draftproof_combination() -> tuple[str, str]:
    """Family and dialect of the fixtures below; override it, or parametrise it indirectly."""
    return "dspark", "counter"


@pytest.fixture(scope="session")
def draftproof_context(
    draftproof_suite: "Suite", draftproof_combination: tuple[str, str]
) -> "Context":
    """What the subject can do in this combination; without it there is nothing to test."""
    from .judge.context import Context

    found = draftproof_suite.probed(draftproof_combination)
    if not isinstance(found, Context):
        pytest.skip(found.reason)
    return found


@pytest.fixture
def draftproof_setting(draftproof_suite: "Suite", draftproof_context: "Context") -> "Setting":
    """A complete setting with weights: V = 61, K = 3, buckets of 4 and 8 rows."""
    return draftproof_suite.setting(draftproof_context)


@pytest.fixture
def draftproof_subject(draftproof_suite: "Suite", draftproof_setting: "Setting") -> "Subject":
    """The subject, built for `draftproof_setting`."""
    return draftproof_suite.built(draftproof_setting)


@pytest.fixture
def draftproof_judge(
    request: pytest.FixtureRequest,
    draftproof_suite: "Suite",
    draftproof_combination: tuple[str, str],
) -> "Callable[..., Answer]":
    """Judge a check by its name: raises unless it holds, skips with a reason where it cannot apply.

    A second argument names another combination than `draftproof_combination`.
    """

    def judge(check: str, combination: tuple[str, str] | None = None) -> "Answer":
        __tracebackhide__ = True
        answer = draftproof_suite.answer(check, combination or draftproof_combination)
        request.node.stash.setdefault(CARRIED, []).append(answer.carried)
        request.node.stash.setdefault(TOLD, []).append(answer.told)
        answer.require()
        if answer.outcome.value == "not applicable":
            pytest.skip(f"not applicable: {answer.reason}")
        if answer.outcome.value == "expected":
            pytest.xfail(f"expected: {answer.reason}")
        return answer

    return judge


@pytest.fixture(scope="session")
def draftproof_play(
    pytestconfig: pytest.Config, draftproof_suite: "Suite", draftproof_context: "Context"
) -> "Callable[[Plan], None]":
    """Play a plan of one's own and judge it: what fails is stored, to be judged again."""
    from .judge.question import FINE
    from .judge.suite import kept

    def play(plan: "Plan") -> None:
        __tracebackhide__ = True
        history, verdict = draftproof_suite.played(plan, draftproof_context)
        if verdict.outcome in FINE:
            return
        if history is not None:
            raise kept(history, verdict, pytestconfig.rootpath / ".draftproof" / "played")
        verdict.raise_if_violated()

    return play
