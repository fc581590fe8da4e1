"""The shards of one run: what each of them says of itself, and their reports as one verdict.

A shard decides by itself what needs no chance. What it counts decides nothing until all shards are
there: then the sums are judged once, by the rule and on the alarm budget of a whole run.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from jsonschema import Draft202012Validator, ValidationError

from .answer import counts
from .budget import Ledger
from .checks import ALL, named
from .context import PROFILES, Context
from .evidence import EvidenceError, same
from .history import History
from .loading import CannotServeError, source_digest
from .report import SCHEMA, Run
from .script import Plan
from .sums import Sums, added, documents, read
from .trial import Result, Trial, seeded, workload_named
from .verdict import Outcome, Pending, Verdict, unknown, worst

# Two reports of one run agree on these; machines may differ.
RUN = ("subject", "source", "workload", "profile", "engine", "device", "seed", "shards", "checks")
VERSIONS = ("draftproof", "torch", "numpy", "scipy", "triton", "variables")
# Check, combination, case, and its number: names of cases may repeat.
Key = tuple[str, str, str, int]
Case = Mapping[str, Any]
NO_CASE = "-"


def sources(trial: Trial) -> str:
    """What tells builds of the sampler, and of the judge, apart."""
    return f"{source_digest(trial.factory)} judged by {source_digest(cast('Any', Trial))}"


def stored(path: Path) -> dict[str, Any]:
    """Read a report; EvidenceError names a file that is none."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
    except (OSError, json.JSONDecodeError) as error:
        raise EvidenceError(f"{path} cannot be read: {error}") from error
    except ValidationError as error:
        raise EvidenceError(f"{path} is no report: {error.message}") from error
    return found


def complete(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The reports of all shards of one run, by shard; EvidenceError names what does not fit."""
    by_shard: dict[int, tuple[Path, dict[str, Any]]] = {}
    for path in paths:
        found = stored(path)
        run, first = found["run"], next(iter(by_shard.values()), (path, found))
        sides = f"of {first[0]} and {path}"
        for name in RUN:
            same(f"{name} {sides}", first[1]["run"][name], run[name])
        for name in VERSIONS:
            left, right = first[1]["environment"].get(name), found["environment"].get(name)
            same(f"versions of {name} {sides}", left, right)
        same(f"alpha {sides}", first[1]["alpha"], found["alpha"])
        for label in first[1]["served"].keys() & found["served"].keys():
            abilities = first[1]["served"][label], found["served"][label]
            same(f"abilities in {label} {sides}", *abilities)
        if run["shards"] > 1 and run["shard"] == 0:
            raise EvidenceError(f"{path} is a sum already, required: reports of single shards")
        if run["shard"] in by_shard:
            other = by_shard[run["shard"]][0]
            raise EvidenceError(
                f"{other} and {path} are both shard {run['shard']} of {run['shards']}: their draws "
                f"would count twice"
            )
        by_shard[run["shard"]] = path, found
    shards = next(iter(by_shard.values()))[1]["run"]["shards"]
    missing = [number for number in range(1, shards + 1) if number not in by_shard]
    if shards > 1 and missing:
        raise EvidenceError(f"shards {missing} of {shards} are missing, required: all of them")
    return [by_shard[number][1] for number in sorted(by_shard)]


def verdict_of(case: Case) -> Verdict:
    """What one report says of a case."""
    return Verdict(
        Outcome(case["verdict"]),
        case["reason"],
        case["used"],
        case["unit"],
        case["smallest_detectable_effect"],
        case["evidence"],
    )


def lines_of(module: ModuleType) -> tuple[str, ...]:
    """The ledger lines of a check."""
    lines: str | tuple[str, ...] = getattr(module, "LEDGER", ())
    return (lines,) if isinstance(lines, str) else lines


def words(key: Key) -> str:
    """A case as it is named in messages."""
    return ", ".join(key[:3])


def served_by(check: ModuleType, context: Context) -> bool:
    """Whether a subject has the abilities that a check needs."""
    return set(check.NEEDS) <= set(context.abilities)


def refuse_lost(
    checks: Sequence[str], cases: Mapping[Key, Mapping[int, Case]], broken: Collection[object]
) -> None:
    """EvidenceError when a case that was planned, of a check that was asked, is in no report.

    broken: pairs of check and combination that errored as a whole.
    """
    labels = dict.fromkeys(label for _, label, _, _ in cases)
    groups: dict[tuple[str, str], tuple[set[int], int]] = {
        (check, label): (set(), 1) for check in checks for label in labels
    }
    for (check, label, _, number), found in cases.items():
        planned = max(case["place"][1] for case in found.values())
        seen, most = groups[check, label]
        groups[check, label] = seen | {number}, max(most, planned)
    for (check, label), (seen, planned) in groups.items():
        lost = sorted(set(range(planned)) - seen)
        if lost and (check, label) not in broken:
            raise EvidenceError(
                f"{check}, {label}: cases {lost} of {planned} are in no report, required: all"
            )


@dataclass
class Whole:
    """All shards of one run, by number, and the alarm budget of their sum."""

    reports: Sequence[Mapping[str, Any]]
    ledger: Ledger

    @classmethod
    def of(cls, paths: Sequence[Path]) -> "Whole":
        """Read all shards. What they spent on single cases is spent; sums are judged afresh."""
        found = complete(paths)
        ledger = Ledger(found[0]["alpha"])
        anew = {line for check in ALL if counts(check) for line in lines_of(check)}
        for report in found:
            for line, probability in report["alarm_spent"].items():
                if line not in anew:
                    ledger.take(line, probability)
        return cls(found, ledger)

    @property
    def run(self) -> Run:
        """The run as a whole."""
        stored_run = dict(self.reports[0]["run"])
        stored_run["reproduce"] = stored_run["reproduce"].partition(" --num-shards ")[0]
        return Run(**{**stored_run, "shard": 0})

    @property
    def served(self) -> dict[str, Any]:
        """What the subject can do, by combination."""
        return {label: own for report in self.reports for label, own in report["served"].items()}

    def context(self, label: str) -> Context:
        """The unsharded context of a combination."""
        run, own = self.run, self.served[label]
        try:
            source = workload_named(run.workload)
        except CannotServeError as error:
            raise EvidenceError(f"the cases cannot be planned again: {error}") from error
        profile, abilities = PROFILES[run.profile], tuple(own["abilities"])
        where = (own["family"], own["dialect"], run.device, run.engine, run.seed)
        return Context(*where, profile, source, abilities, own["buffers"])

    def results(self) -> list[Result]:
        """Every case once: what was counted is judged on the sums, of the rest the worst answer."""
        cases: dict[Key, dict[int, Case]] = {}
        for report in self.reports:
            for row in report["checks"]:
                for case in row["cases"]:
                    key = row["check"], case["combination"], case["case"], case["place"][0]
                    cases.setdefault(key, {})[report["run"]["shard"]] = case
        final = (Outcome.VIOLATED.value, Outcome.ERRORED.value)
        # Where the subject raised before a case was planned, there is nothing to add.
        broken = {
            key[:2]
            for key, found in cases.items()
            if key[2] == NO_CASE and any(case["verdict"] in final for case in found.values())
        }
        planned: dict[Key, tuple[Context, Plan]] = {}
        for name in self.run.checks:
            for label in self.served if counts(named(name)) else ():
                context = self.context(label)
                if (name, label) not in broken and served_by(named(name), context):
                    for number, plan in enumerate(named(name).plans(context)):
                        planned[name, label, plan.case, number] = context, plan
        for key in planned:
            self.refuse_gaps(key, cases.get(key, {}))
        refuse_lost(self.run.checks, cases, broken)
        return [
            self.counted(key, found, *planned[key]) if key in planned else self.split(key, found)
            for key, found in cases.items()
        ]

    def refuse_gaps(self, key: Key, found: Mapping[int, Case]) -> None:
        """EvidenceError when a shard lacks its part of a case that all of them share."""
        numbers = [report["run"]["shard"] for report in self.reports]
        missing = [number for number in numbers if number not in found]
        if missing:
            raise EvidenceError(f"{words(key)}: shards {missing} lack it, required: all of them")

    def split(self, key: Key, found: Mapping[int, Case]) -> Result:
        """A case that one shard played, or that no shard could."""
        worst_of = worst(Outcome(case["verdict"]) for case in found.values())
        spoke = next(case for case in found.values() if case["verdict"] == worst_of.value)
        if len(found) > 1 and worst_of is Outcome.HOLDS:
            raise EvidenceError(f"{words(key)}: played by shards {sorted(found)}, required: one")
        seconds = sum(case["seconds"] for case in found.values())
        return Result(*key[:3], verdict_of(spoke), seconds, place=tuple(spoke["place"]))

    def counted(self, key: Key, found: Mapping[int, Case], context: Context, plan: Plan) -> Result:
        """A case that every shard counted: its sums are added, and judged once."""
        shards, seconds = len(self.reports), sum(case["seconds"] for case in found.values())
        final = (Outcome.VIOLATED.value, Outcome.ERRORED.value)
        hard = [
            case
            for case in found.values()
            if not case["sums"] or (shards > 1 and case["verdict"] in final)
        ]
        if hard:
            speaks = worst(Outcome(case["verdict"]) for case in hard)
            spoke = next(case for case in hard if case["verdict"] == speaks.value)
            return Result(*key[:3], verdict_of(spoke), seconds, place=tuple(spoke["place"]))
        seeds = tuple(seed for case in found.values() for seed in case["seeds"])
        of_shards = [replace(context, shard=number, shards=shards) for number in found]
        same(
            f"seeds of {words(key)}, drawn and required,",
            seeds,
            tuple(seeded(plan, each).setting["seed"] for each in of_shards),
        )
        total: dict[str, Sums] = {}
        for number, case in found.items():
            for stage, sums in case["sums"].items():
                try:
                    mine = read(sums)
                    total[stage] = added(total[stage], mine) if stage in total else mine
                except EvidenceError as error:
                    where = f"{words(key)}, shard {number}"
                    raise EvidenceError(f"{where}: {error}") from error
        verdict = decided(named(key[0]), plan, context, total, self.ledger)
        packed = {stage: documents(sums) for stage, sums in total.items()}
        place = next(iter(found.values()))["place"]
        return Result(*key[:3], verdict, seconds, None, packed, seeds, tuple(place), context)


def decided(
    check: ModuleType, plan: Plan, context: Context, total: Mapping[str, Sums], ledger: Ledger
) -> Verdict:
    """The answer of a check to sums, as a run that drew them all would have given it.

    total: by stage; fresh draws are looked at when the first ones were alarmed.
    """
    described = {"abilities": context.abilities}
    history = History(plan.check, plan.case, plan.setting, plan.inputs, plan.notes, described, {})
    answer: Verdict | Pending = check.decided(history, total["1"], ledger)
    if isinstance(answer, Pending) and "2" in total:
        history.stages = 2
        answer = check.decided(history, total["2"], ledger)
    if isinstance(answer, Pending):
        return unknown(f"stage one was alarmed and no fresh draws are stored: {answer.reason}")
    return answer
