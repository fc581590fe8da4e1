"""Shortcuts for tests that run checks: a context, and the verdicts of a trial by check."""

from dataclasses import replace

from oracle.judge.budget import Ledger
from oracle.judge.checks import named
from oracle.judge.context import PROFILES, Context, Profile
from oracle.judge.loading import load_factory
from oracle.judge.protocol import Factory
from oracle.judge.script import Plan
from oracle.judge.trial import COMBINATIONS, Result, Trial
from oracle.judge.verdict import Outcome, Verdict
from oracle.workloads.synthetic import Synthetic

FOLDED = load_factory("folded")
# Every check in full, at sizes that leave the suite its minutes.
SMALL = replace(
    PROFILES["smoke"],
    blocks=3,
    tilt=0.03,
    target_tilt=0.06,
    rows_max=2048,
    dtypes=("float32",),
    cliff_draws=2**13,
    counted=(0, 0),
)


def context(
    combination: tuple[str, str] = ("dspark", "counter"),
    *,
    engine: str = "emulator",
    seed: int = 0,
    abilities: tuple[str, ...] = (),
    profile: Profile = SMALL,
) -> Context:
    """A context on the CPU, or on the GPU for the cuda engine."""
    device = "cuda" if engine == "cuda" else "cpu"
    family, dialect = combination
    return Context(family, dialect, device, engine, seed, profile, Synthetic(), abilities)


def probed(base: Context, factory: Factory = FOLDED) -> Context:
    """The context with the abilities and buffers of a subject."""
    found = Trial(factory, base).probe(base)
    assert isinstance(found, Context), found
    return found


def verdict(check: str, plan: Plan, base: Context, factory: Factory = FOLDED) -> Verdict:
    """Build, play and judge one plan."""
    return Trial(factory, base, ledger=Ledger()).case(named(check), plan, base)[1]


def verdicts(
    factory: Factory,
    base: Context,
    combinations: tuple[tuple[str, str], ...] = COMBINATIONS,
    checks: tuple[str, ...] | None = None,
) -> dict[str, list[Result]]:
    """All results of a trial, by check."""
    trial = Trial(factory, base, combinations=combinations)
    if checks is not None:
        trial.checks = tuple(named(name) for name in checks)
    found: dict[str, list[Result]] = {check.NAME: [] for check in trial.checks}
    for result in trial.run():
        found[result.check].append(result)
    return found


def bad(results: list[Result]) -> list[Result]:
    """Results that are neither green nor out of scope."""
    fine = (Outcome.HOLDS, Outcome.NOT_APPLICABLE)
    return [result for result in results if result.verdict.outcome not in fine]
