"""Abilities to plans, plans to histories, histories to verdicts."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch

from .answer import counts, judged, undecided
from .budget import Ledger
from .checks import ALL
from .context import Context, Workload
from .device import Capability, abilities_on_cpu, capability, lacks
from .drive import Driver
from .environment import environment
from .fields import MalformedError
from .history import History
from .loading import AdapterError, CannotServeError, build
from .merge import World, added, merged
from .protocol import Factory, Setting, Subject
from .script import Plan, unserved
from .seeds import seed_of
from .verdict import Pending, Verdict, errored, not_applicable, unknown

ALONE = "one process: start it with torchrun --nproc-per-node 2 -m oracle verify"
COMBINATIONS = (("dflash", "none"), ("dspark", "race"), ("dspark", "counter"))


@dataclass(frozen=True)
class Result:
    """One check on one case: what was answered, how long it took, and what was seen.

    sums: by stage, what a statistical check counted. seeds: of its noise. place: the number of the
    case among those planned, and how many those are. context: what the case was planned for.
    """

    check: str
    combination: str
    case: str
    verdict: Verdict
    seconds: float
    history: History | None = None
    sums: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    place: tuple[int, int] = (0, 1)
    context: Context | None = None


@dataclass
class Trial:
    """One run over a subject.

    reproduce: the command line that repeats the run. keep: whether results hold their histories.
    require_gpu: what is left out because of the device is unknown, not beside the point.
    capability: of the GPU, None to ask for it.
    """

    factory: Factory
    context: Context
    reproduce: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    keep: bool = False
    checks: tuple[ModuleType, ...] = ALL
    combinations: tuple[tuple[str, str], ...] = COMBINATIONS
    world: World = field(default_factory=World)
    require_gpu: bool = False
    capability: Capability | None = None

    def run(self, progress: Callable[[str], None] = lambda _: None) -> Iterator[Result]:
        """Judge every combination of abilities by every check; results come as they are found.

        Several processes share the checks out; those of ranks are played by all of them.
        """
        rank, ranks = self.world.rank, self.world.size
        for family, dialect in self.combinations:
            context = replace(self.context, family=family, dialect=dialect, rank=rank, ranks=ranks)
            probed = self.probe(context)
            for number, check in enumerate(self.checks):
                if number % ranks != rank and "RANKS" not in check.NEEDS:
                    continue
                progress(f"{context.label}: {check.NAME}")
                if isinstance(probed, Verdict):
                    yield Result(check.NAME, context.label, "-", probed, 0.0)
                else:
                    yield from self.judge(check, probed)

    def probe(self, context: Context) -> Context | Verdict:
        """Build a small subject to learn the abilities and buffers of a combination."""
        setting = small(context)
        try:
            told = build(self.factory, placed(setting)).describe()
            abilities, blind = tuple(told["abilities"]), tuple(map(str, told.get("blind", ())))
            context = replace(context, abilities=abilities, blind=blind)
            setting["forward"] = context.forward
            subject: Any = build(self.factory, placed(setting))
            if "BUFFERS" not in abilities:
                return context
            roles = {name: str(entry["role"]) for name, entry in subject.buffers().items()}
            return replace(context, buffers=roles)
        except CannotServeError as error:
            return self.skipped(setting, str(error))
        except AdapterError as error:
            return errored(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a subject raises is its verdict
            return errored(f"{type(error).__name__}: {error}")

    def judge(self, check: ModuleType, context: Context) -> Iterator[Result]:
        """One check on all its cases."""
        lacking = [need for need in check.NEEDS if need not in context.abilities]
        if lacking:
            reason = f"the subject does not claim {', '.join(lacking)}"
            verdict = self.skipped(small(context), reason, lacking)
            yield Result(check.NAME, context.label, "-", verdict, 0.0)
            return
        over_ranks = "RANKS" in check.NEEDS
        if over_ranks and self.world.size == 1:
            yield Result(check.NAME, context.label, "-", not_applicable(ALONE), 0.0)
            return
        plans = check.plans(context)
        if not plans:
            verdict = not_applicable("it needs designed input: run it with --workload synthetic")
            yield Result(check.NAME, context.label, "-", verdict, 0.0)
        for number, plan in enumerate(plans):
            if not mine(check, number, context):
                continue
            start = time.perf_counter()
            case = self.case_of_ranks if over_ranks else self.case
            history, verdict = case(check, plan, context)
            seconds = time.perf_counter() - start
            if history is not None:
                history.alpha = self.ledger.alpha
                history.verdict = {"outcome": verdict.outcome.value, "reason": verdict.reason}
            kept = history if self.keep else None
            sums = history.sums if history else {}
            seeds = (seeded(plan, context).setting["seed"],) if sums else ()
            found = (verdict, seconds, kept, sums, seeds, (number, len(plans)), context)
            yield Result(check.NAME, context.label, plan.case, *found)

    def case(
        self, check: ModuleType, plan: Plan, context: Context
    ) -> tuple[History | None, Verdict]:
        """Build, play, judge; stage two on the same subject when stage one was alarmed."""
        plan = seeded(plan, context)
        if missing := self.missing(plan.setting):
            return None, missing
        try:
            subject = build(self.factory, placed(plan.setting))
        except CannotServeError as error:
            return None, self.skipped(plan.setting, str(error))
        except Exception as error:  # noqa: BLE001 - a subject that cannot be built has errored
            return None, errored(f"building it raised {type(error).__name__}: {error}")
        history = self.opened(plan, subject, context)
        if rule := unserved(plan, history.description.get("rules")):
            return None, not_applicable(f"the subject has no accept rule {rule!r}")
        driver = Driver(subject, plan, history)
        self.play(driver, history, plan.commands)
        only = context if context.shards > 1 else None
        verdict = judged(check, history, self.ledger, only)
        if isinstance(verdict, Pending) or (only and plan.confirm and history.sums):
            history.stages = 2
            history.events.append({"verb": "stage", "reason": verdict.reason})
            self.play(driver, history, plan.confirm)
            verdict = judged(check, history, self.ledger, only)
        if isinstance(verdict, Pending):
            return history, undecided(verdict)
        return history, verdict

    def case_of_ranks(
        self, check: ModuleType, plan: Plan, context: Context
    ) -> tuple[History | None, Verdict]:
        """Build and play on every rank at once; each judges what all of them saw."""
        self.world.gather(plan.case)
        plan = seeded(plan, context)
        if missing := self.missing(plan.setting):
            return None, missing
        history: History | None = None
        failure: Verdict | None = None
        try:
            subject = build(self.factory, placed(plan.setting))
            history = self.opened(plan, subject, context)
            self.play(Driver(subject, plan, history), history, plan.commands)
        except CannotServeError as error:
            # Whether a CPU is served would be asked of all ranks at once, and not all need decline.
            failure = (unknown if self.require_gpu else not_applicable)(str(error))
        except Exception as error:  # noqa: BLE001 - a subject that cannot be built has errored
            failure = errored(
                f"rank {context.rank}: building it raised {type(error).__name__}: {error}"
            )
        everyone = self.world.gather((history, failure))
        for _, failed in everyone:
            if failed is not None:
                return None, failed
        together = merged(history for history, _ in everyone)
        answer = judged(check, together, self.ledger)
        if isinstance(answer, Pending):
            return together, unknown(f"a check of ranks has no second stage: {answer.reason}")
        return together, answer

    def skipped(self, setting: Setting, reason: str, needs: Iterable[str] = ()) -> Verdict:
        """The answer to what a subject does not serve, or does not claim: `needs`."""
        if self.require_gpu:
            elsewhere = abilities_on_cpu(self.factory, setting)
            if elsewhere is not None and set(needs) <= set(elsewhere):
                return unknown(f"left out on the GPU that is required, not on a CPU: {reason}")
        return not_applicable(reason)

    def missing(self, setting: Setting) -> Verdict | None:
        """The answer where the GPU has not what a setting needs, None where it has."""
        why = lacks(setting, self.capability or capability(setting["device"]))
        return (unknown if self.require_gpu else not_applicable)(why) if why else None

    def everyones(self, results: list[Result]) -> list[Result]:
        """The results of all processes; the ledger then holds what all of them spent."""
        found = self.world.gather((results, self.ledger.spent))
        self.ledger.spent = added(spent for _, spent in found)
        together = {check.NAME for check in self.checks if "RANKS" in check.NEEDS}
        return [
            result
            for rank, (theirs, _) in enumerate(found)
            for result in theirs
            if rank == 0 or result.check not in together
        ]

    def opened(self, plan: Plan, subject: Subject, context: Context) -> History:
        """An empty history of a plan on a subject."""
        described = dict(subject.describe())
        described.setdefault("stages", f"torch-{context.device.split(':')[0]}")
        return History(
            check=plan.check,
            case=plan.case,
            setting=plan.setting,
            inputs=plan.inputs,
            notes=plan.notes,
            description=described,
            environment=environment(context.device),
            reproduce=self.reproduce,
        )

    def play(self, driver: Driver, history: History, commands: Iterable[Any]) -> None:
        """Play commands; what the subject raises ends the history and is kept in it."""
        try:
            driver.play(commands)
        except MalformedError as error:
            history.error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever a subject raises is its verdict
            history.error = f"{type(error).__name__}: {error}"


def small(context: Context) -> dict[str, Any]:
    """A setting of a combination that costs little to serve."""
    material = context.workload.material(context.seed, 61, torch.float32)
    return context.setting(material, drafts=3, buckets=(4, 8))


def seeded(plan: Plan, context: Context) -> Plan:
    """The plan with the noise seed of its case: no two cases of a run share their noise."""
    case = f"{context.label}: {plan.case}"
    seed = seed_of(plan.check, case, "subject", shard=context.shard, run=context.seed)
    return replace(plan, setting={**plan.setting, "seed": seed})


def placed(setting: Setting) -> dict[str, Any]:
    """The setting with its weights on its device, in new memory: the judge keeps its own."""
    return {
        name: value.to(setting["device"], copy=True) if isinstance(value, torch.Tensor) else value
        for name, value in setting.items()
    }


def mine(check: ModuleType, number: int, context: Context) -> bool:
    """Whether this shard plays case `number` of a check.

    All shards share the draws of what is counted; a case of another check is played by one.
    """
    if context.shards == 1 or counts(check):
        return True
    turn = number + ALL.index(check) + COMBINATIONS.index((context.family, context.dialect))
    return turn % context.shards == context.shard - 1


def workload_named(name: str) -> Workload:
    """The workload of that name, imported only when asked for."""
    if name == "synthetic":
        from ..workloads.synthetic import Synthetic

        return Synthetic()
    if name == "smollm2":
        from ..workloads import real

        try:
            return real.workload()
        except real.MissingError as error:
            raise CannotServeError(str(error)) from error
    raise ValueError(f"workload is {name!r}, required: 'synthetic' or 'smollm2'")
