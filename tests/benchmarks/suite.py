"""The whole run in its order.

Ceilings, chain, heads, occupancy, counting, and compiled torch last, since it compiles for long.
"""

import importlib.metadata
import platform
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import Any

import torch

from impl.fused import Site
from impl.stages import stages_for

from . import busy, counting, floor, heads, host, occupancy, parity, peers, wheel
from .bench import Bench, Build, DeadDeviceError
from .chains import ours
from .clock import HostClock
from .floor import Ceilings
from .parity import Parity
from .problem import Case, Problem, chain_cases, head_cases, head_weight, problem_for
from .variant import Variant

Sections = tuple[str, ...]
SECTIONS: Sections = ("host", "chain", "head", "occupancy", "counting", "compile")


def facts(device: torch.device) -> dict[str, Any]:
    """What the figures belong to."""
    versions = {}
    for name in ("torch", "triton", "numpy"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "absent"
    cuda = device.type == "cuda"
    named = torch.cuda.get_device_name(device) if cuda else platform.processor() or "cpu"
    return {"device": named, "python": platform.python_version(), "versions": versions}


def chain_builds(problem: Problem) -> dict[str, Build]:
    """Every implementation of the chain but compiled torch, by name."""
    builds: dict[str, Build] = {
        "ours torch": lambda: list(ours(problem, "torch", "counter")),
        "ours triton": lambda: [ours(problem, "triton", "counter")[1]],
        "SGLang": lambda: wheel.sglang_chain(problem)[1:],
        "torch": partial(peers.plain, problem),
    }
    if problem.case.samples:
        builds["ours torch race"] = lambda: [ours(problem, "torch", "race")[1]]
        builds["FlashInfer"] = partial(peers.flashinfer_chain, problem)
    return builds


def absent(name: str) -> str:
    """Why an implementation of the chain is not here, or nothing."""
    if name.startswith("ours triton"):
        try:
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            stages_for("triton", "counter", "sampled", site=Site(device, recorded=True))
        except (ImportError, ValueError) as error:
            return f"no stages named triton: {type(error).__name__}"
    if name == "SGLang":
        try:
            wheel.folder()
        except peers.AbsentError as error:
            return str(error)
    if name == "FlashInfer":
        try:
            peers.flashinfer_sampler()
        except peers.AbsentError as error:
            return str(error)
    return ""


def compiled_builds(problem: Problem) -> dict[str, Build]:
    """Compiled torch."""
    return {"torch.compile": partial(peers.compiled, problem)}


def chain(
    bench: Bench,
    case: Case,
    found: Ceilings,
    builds: Callable[[Problem], dict[str, Build]] = chain_builds,
) -> None:
    """The chain alone, base logits given."""
    problem = problem_for(case, bench.device)
    if not parity.noise_agrees(problem):
        bench.report.say("the noise that drafts are judged by is not the reference's")
        return
    judge: Callable[[Variant], Parity] = partial(parity.judged, problem=problem)
    bench.side_by_side("chain", case, builds(problem), judge, floor.chain_floor(case, found))


def head(bench: Bench, case: Case, found: Ceilings) -> None:
    """Output head and argmax."""
    weight = head_weight(case.vocabulary, case.hidden, bench.device)
    hidden = heads.hidden_for(case, bench.device)
    judge = partial(heads.judged, hidden=hidden, weight=weight)
    builds = heads.builders(case, hidden, weight)
    bench.side_by_side("head", case, builds, judge, floor.head_floor(case, found))


def compiled_cases(*, quick: bool) -> Iterator[Case]:
    """Few sizes: each compiles anew."""
    for case in chain_cases(quick=quick):
        few = case.vocabulary == 151_936 and case.drafts == 7 and case.mix == "sampled"
        if few and (not quick or case.rows in (1, 64)):
            yield case


def hosted(bench: Bench) -> None:
    """What needs no GPU."""
    clock = HostClock(rounds=8, calls=5)
    for dialect in ("counter", "race"):
        bench.keep(host.overhead(dialect, clock))
    _alone(bench, "host, throughput", lambda: bench.keep(host.throughput()))


def everything(bench: Bench, *, quick: bool, sections: Sections = SECTIONS) -> None:
    """Run the sections in order; a case that begins too late leaves a word."""
    if "host" in sections:
        with one_thread():
            _alone(bench, "host", partial(hosted, bench))
    if bench.device.type != "cuda":
        bench.report.say("no CUDA device: chain, heads and peers are not measured")
        return
    busy.prime()
    found = floor.measured(bench.clock, bench.device)
    bench.report.facts["ceilings"] = asdict(found)
    bench.say(
        f"copy {found.copy / 1e6:.2f} TB/s, read {found.read / 1e6:.2f} TB/s, bf16 "
        f"{found.gemm / 1e6:.0f} TFLOP/s, node {found.node:.2f} us; {floor.rank_note()}"
    )
    last = partial(chain, builds=compiled_builds)
    plan: list[tuple[str, Iterable[Case], Callable[..., None]]] = [
        ("chain", chain_cases(quick=quick), partial(chain, found=found)),
        ("head", head_cases(quick=quick), partial(head, found=found)),
        ("occupancy", occupancy.cases(), partial(occupancy.measure, found=found)),
        ("counting", counting.cases(), counting.measure),
        ("compile", compiled_cases(quick=quick), partial(last, found=found)),
    ]
    for section, cases, measure in plan:
        for case in cases if section in sections else ():
            if bench.late():
                bench.report.say(f"the time was up: {section} and what follows is not complete")
                return
            _alone(bench, f"{section} {case}", partial(measure, bench, case))


def _alone(bench: Bench, what: str, measure: Callable[[], None]) -> None:
    """One case; what fails outside a row costs the case."""
    try:
        measure()
    except DeadDeviceError:
        raise
    except Exception as error:  # noqa: BLE001  (a case may run out of memory)
        bench.report.say(f"{what}: {bench.failure(error)}")
    # The pools of dead graphs are given back, or the next case may not fit.
    bench.swept()


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch inside: processor time is then the time of the work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
