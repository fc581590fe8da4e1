"""A sampler under a test framework: the questions of verify, asked one test at a time."""

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from . import carried, expected
from .budget import ALPHA_MIN, Ledger, OverspentError
from .checks import ALL, named
from .context import PROFILES, Context
from .environment import PACKAGES, environment
from .history import History, save
from .loading import AdapterError, CannotServeError, build, load_factory
from .place import placed_on
from .protocol import Factory, Subject
from .question import Answer, Asked, AskedError
from .report import Run, document
from .script import Plan
from .shards import sources
from .trial import COMBINATIONS, Result, Trial, placed, workload_named
from .verdict import Verdict, ViolationRuntimeError, not_applicable

Combination = tuple[str, str]


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
        try:
            self._known = expected.named(asked.expectations) if asked.expectations else []
        except ValueError as error:
            raise AskedError(str(error)) from error
        if asked.workers > 1:
            # With all threads in each of them they would wait for one another.
            torch.set_num_threads(max(torch.get_num_threads() // asked.workers, 1))
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
        held = (self.factory, context, self.command, Ledger(self.asked.alpha))
        return Trial(*held, require_gpu=self.asked.require_gpu)

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

    @property
    def where(self) -> dict[str, Any]:
        """What decides which expectations are about this session."""
        asked = self.asked
        place = {"device": self.device, "profile": asked.profile, "seed": asked.seed}
        return {"subject": asked.subject, **place}

    def answer(self, check: str, combination: Combination) -> Answer:
        """Judge one check on one combination, on the rules and the budget of verify."""
        try:
            module = named(check)
        except KeyError as error:
            raise AskedError(str(error.args[0])) from error
        context = self.probed(combination)
        label = label_of(combination)
        declined, spent = not self.missing, dict[str, float]()
        if isinstance(context, Verdict):
            results = [Result(check, label, "-", context, 0.0)]
        else:
            self.trial.ledger.spent = {}
            results = list(self.trial.judge(module, context))
            spent = self.trial.ledger.spent
            # One result for all cases of what it claims: this session has not what they need.
            claimed = set(module.NEEDS) <= set(context.abilities)
            declined = not claimed or all(result.case != "-" for result in results)
        raw = [carried.packed(result) for result in results]
        reach = expected.in_reach(self._known, self.where, results)
        results = [expected.described(reach, result) for result in results]
        seed, again = self.asked.seed, self.again(check, label)
        return Answer(check, label, results, raw, spent, declined, seed, again)

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

        Complaints: an overspent line of the ledger, an expectation that nothing met.
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
        results, idle = expected.applied(self._known, self.where, results)
        complaints += [idle] if idle else []
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
