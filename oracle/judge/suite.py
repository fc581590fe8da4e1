"""A sampler under a test framework: the questions of verify, asked one test at a time."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from . import carried
from .budget import ALPHA, ALPHA_MIN, Ledger, OverspentError
from .checks import ALL, named
from .context import PROFILES, Context
from .environment import PACKAGES, environment
from .history import History, save
from .loading import AdapterError, CannotServeError, build, load_factory
from .place import placed_on
from .protocol import Factory, Subject
from .report import Run, document
from .script import Plan
from .shards import sources
from .trial import COMBINATIONS, Result, Trial, placed, workload_named
from .verdict import Outcome, Verdict, ViolationRuntimeError, not_applicable, worst

Combination = tuple[str, str]
FINE = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
SHOWN = 3


class AskedError(ValueError):
    """What a session asks for cannot be had; the text says what would do."""


@dataclass(frozen=True)
class Asked:
    """What a session asks for, as plain values; the names are those of the options of verify.

    device: '' for that of the engine. folder: from where the subject is imported. expectations: a
    file of verdicts that are known beforehand.
    """

    subject: str
    profile: str = "smoke"
    seed: int = 0
    engine: str = "auto"
    device: str = ""
    workload: str = "synthetic"
    alpha: float = ALPHA
    folder: Path = field(default_factory=Path)
    expectations: Path | None = None


@dataclass(frozen=True)
class Answer:
    """One check on one combination.

    unclaimed: the subject does not claim what the check needs, so it never applies.
    spent: of each ledger line. again: the commands that show it again, shortest first.
    """

    check: str
    label: str
    results: Sequence[Result]
    spent: Mapping[str, float]
    unclaimed: bool
    seed: int
    again: Sequence[str]

    @property
    def outcome(self) -> Outcome:
        """The worst verdict of all cases."""
        return worst(result.verdict.outcome for result in self.results)

    @property
    def reason(self) -> str:
        """What the worst cases say, each once."""
        texts = dict.fromkeys(
            result.verdict.reason
            if result.case == "-"
            else f"{result.case}: {result.verdict.reason}"
            for result in self.results
            if result.verdict.outcome is self.outcome
        )
        more = f"\n  and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        return "\n  ".join([*texts][:SHOWN]) + more

    def require(self) -> None:
        """Raise ViolationRuntimeError for every answer that is neither green nor out of scope."""
        __tracebackhide__ = True
        if self.outcome not in FINE:
            raise ViolationRuntimeError(
                f"{self.outcome}: {self.check}, {self.label}\n  {self.reason}"
            )

    @property
    def told(self) -> str:
        """Seed, and how to see it again."""
        return "\n".join([f"seed {self.seed}", *(f"again: {line}" for line in self.again)])

    @property
    def carried(self) -> dict[str, Any]:
        """Plain values, for the process that writes the report."""
        cases = [carried.packed(result) for result in self.results]
        return {"cases": cases, "spent": dict(self.spent), "unclaimed": self.unclaimed}


@dataclass
class Suite:
    """A subject, and what one session asks of it. AskedError when it cannot be asked that."""

    asked: Asked

    def __post_init__(self) -> None:
        """Refuse a profile, alpha, engine, workload or subject that there is none of."""
        asked = self.asked
        if asked.profile not in PROFILES:
            known = ", ".join(PROFILES)
            raise AskedError(f"profile is {asked.profile!r}, required: one of {known}")
        if not ALPHA_MIN <= asked.alpha < 1:
            raise AskedError(f"alpha is {asked.alpha:g}, required: from {ALPHA_MIN:g} to 1")
        try:
            self.engine, self.device = placed_on(asked.engine, asked.device)
        except ValueError as error:
            raise AskedError(str(error)) from error
        if asked.expectations is not None:
            raise AskedError(f"{asked.expectations}: verify judges without expectations as yet")
        if (folder := str(asked.folder.resolve())) not in sys.path:
            sys.path.insert(0, folder)
        self.missing, self.source = "", workload_named("synthetic")
        self.factory: Factory = self._declined
        try:
            self.factory = load_factory(asked.subject)
            self.source = workload_named(asked.workload)
        except (AdapterError, ValueError) as error:
            raise AskedError(str(error)) from error
        except CannotServeError as error:
            self.missing = str(error)
        self._probed: dict[Combination, Context | Verdict] = {}

    def _declined(self, _setting: Mapping[str, Any]) -> Subject:
        raise NotImplementedError(self.missing)

    @cached_property
    def trial(self) -> Trial:
        """The run that every test is a part of."""
        profile = PROFILES[self.asked.profile]
        where = (self.device, self.engine, self.asked.seed)
        context = Context("dspark", "counter", *where, profile, self.source)
        return Trial(self.factory, context, self.command, Ledger(self.asked.alpha))

    @property
    def command(self) -> str:
        """The command line that asks the same of the subject."""
        asked = self.asked
        return (
            f"draftproof verify --subject {shlex.quote(asked.subject)} --engine {self.engine} "
            f"--workload {asked.workload} --profile {asked.profile} --seed {asked.seed}"
        )

    def again(self, check: str, label: str) -> tuple[str, str]:
        """Two commands for one check of one combination: verify, and pytest."""
        asked = self.asked
        words = (
            f"python -m pytest --pyargs oracle.conformance --draftproof-subject "
            f"{shlex.quote(asked.subject)} --draftproof-engine {self.engine} "
            f"--draftproof-profile {asked.profile} --draftproof-seed {asked.seed} "
            f"-k {shlex.quote(f'{check}-{label}')}"
        )
        return f"{self.command} --check {check} --only {label}", words

    def probed(self, combination: Combination) -> Context | Verdict:
        """What the subject can do in a combination; once a process."""
        if combination not in COMBINATIONS:
            known = ", ".join(map(str, COMBINATIONS))
            raise AskedError(f"combination is {combination}, required: one of {known}")
        if combination not in self._probed:
            if self.missing:
                return not_applicable(self.missing)
            family, dialect = combination
            context = replace(self.trial.context, family=family, dialect=dialect)
            self._probed[combination] = self.trial.probe(context)
        return self._probed[combination]

    def answer(self, check: str, combination: Combination) -> Answer:
        """Judge one check on one combination, on the rules and the budget of verify."""
        try:
            module = named(check)
        except KeyError as error:
            raise AskedError(str(error.args[0])) from error
        context = self.probed(combination)
        label = label_of(combination)
        unclaimed, spent = False, dict[str, float]()
        if isinstance(context, Verdict):
            results = [Result(check, label, "-", context, 0.0)]
        else:
            unclaimed = not set(module.NEEDS) <= set(context.abilities)
            self.trial.ledger.spent = {}
            results = list(self.trial.judge(module, context))
            spent = self.trial.ledger.spent
        seed, again = self.asked.seed, self.again(check, label)
        return Answer(check, label, results, spent, unclaimed, seed, again)

    def header(self) -> list[str]:
        """Versions, device, SM count, what is asked for, and every DRAFTPROOF_ variable."""
        found, asked = environment(self.device), self.asked
        gpu = f"{found['gpu']}, {found['sm_count']} SMs" if "gpu" in found else found["machine"]
        versions = ", ".join(
            f"{name} {found[name]}" for name in PACKAGES if found[name] != "absent"
        )
        knobs = " ".join(f"{name}={value}" for name, value in found["variables"].items())
        run = (
            f"{asked.subject}, engine {self.engine} on {self.device} ({gpu}), workload "
            f"{asked.workload}, profile {asked.profile}, seed {asked.seed}, alpha {asked.alpha:g}"
        )
        return [run, f"{versions}; {knobs or 'no DRAFTPROOF_ variable is set'}"]

    def setting(self, context: Context) -> dict[str, Any]:
        """A complete small setting: V = 61, K = 3, buckets of 4 and 8 rows."""
        material = context.workload.material(context.seed, 61, torch.float32)
        return context.setting(material, drafts=3, buckets=(4, 8))

    def built(self, setting: Mapping[str, Any]) -> Subject:
        """The subject of a setting, on memory of its own."""
        return build(self.factory, placed(setting))

    def played(self, plan: Plan, context: Context) -> tuple[History | None, Verdict]:
        """Play a plan of one's own and judge it by the check that it names."""
        trial = replace(self.trial, ledger=Ledger(self.asked.alpha))
        return trial.case(named(plan.check), plan, context)

    def report(self, answers: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
        """What verify would report of these answers, `Answer.carried`, and what is wrong with them.

        Complaints: an overspent line of the ledger.
        """
        ledger, complaints = Ledger(self.asked.alpha), []
        results = []
        for answer in answers:
            results += [carried.unpacked(case, self.trial.context) for case in answer["cases"]]
            for line, probability in answer["spent"].items():
                try:
                    ledger.take(line, probability)
                except OverspentError as error:
                    complaints.append(f"{error}: a check was asked more often than once")
        order = [label_of(combination) for combination in COMBINATIONS]
        results.sort(key=lambda r: (order.index(r.combination), r.place))
        asked = self.asked
        run = Run(
            asked.subject,
            asked.workload,
            asked.profile,
            self.engine,
            self.device,
            asked.seed,
            self.command,
            "" if self.missing else sources(self.trial),
            [check.NAME for check in ALL if any(r.check == check.NAME for r in results)],
        )
        return document(run, results, ledger, environment(self.device)), complaints


def label_of(combination: Combination) -> str:
    """A combination as it is printed."""
    family, dialect = combination
    return family if dialect == "none" else f"{family}/{dialect}"


def kept(history: History, answer: Verdict, stem: Path) -> ViolationRuntimeError:
    """Store a history that was played; the error names the command that judges it again."""
    try:
        save(history, stem)
        again = f"draftproof judge {stem}.json"
    except (ValueError, TypeError) as error:
        again = f"not stored: {error}"
    return ViolationRuntimeError(f"{answer.outcome}: {answer.reason}\n  again: {again}")
