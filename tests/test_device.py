"""A run that requires a GPU: what it refuses, what it does not call green, what memory it tells."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import torch
from typer.testing import CliRunner

from impl.fused import Site, cannot_run
from oracle.commands import app
from oracle.judge import report as reports
from oracle.judge.budget import Ledger
from oracle.judge.checks import gates, spike, writeset
from oracle.judge.device import BFLOAT16_SINCE, abilities_on_cpu, capability, lacks, peak
from oracle.judge.environment import environment
from oracle.judge.merge import enter
from oracle.judge.report import document, memory
from oracle.judge.trial import Result, Trial
from oracle.judge.verdict import Outcome, exit_code, holds

from .judging import FOLDED, SMALL, context

QUICK = ["verify", "--check", "gates", "--check", "retention", "--only", "dspark/counter"]
ROOM = 18e9


def run(*words: str) -> tuple[int, str]:
    """Exit code and output of one command."""
    result = CliRunner().invoke(app, [*words], env={"COLUMNS": "200"})
    return result.exit_code, result.output


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is visible, and nothing is missing")
@pytest.mark.parametrize("engine", ["auto", "cuda", "emulator", "eager"])
def test_a_missing_gpu_exits_2(engine: str) -> None:
    """Whatever the engine: nothing is judged, and the text is that of the option."""
    code, output = run(*QUICK, "--require-gpu", "--engine", engine)
    assert code == 2
    assert "--require-gpu was given and torch sees no GPU, required: at least one" in output


class BeyondError(Exception):
    """Processes would meet now."""


def beyond(*_: object, **__: object) -> None:
    """No process is met."""
    raise BeyondError


@pytest.mark.parametrize("command", [QUICK, ["deep", "--limit", "1"]], ids=["verify", "deep"])
def test_a_process_without_a_gpu_of_its_own_exits_2(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of torchrun on one GPU: the second says so, and the first has its place."""
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    monkeypatch.setattr("torch.distributed.is_torchelastic_launched", lambda: True)
    monkeypatch.setattr("torch.distributed.init_process_group", beyond)
    monkeypatch.setenv("LOCAL_RANK", "1")
    code, output = run(*command, "--engine", "cuda")
    assert code == 2
    assert "process 1 of this machine has no GPU of its own: torch sees 1" in output
    assert not taken
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(BeyondError):
        enter("cuda")
    assert taken == [0]


@pytest.mark.gpu
@pytest.mark.parametrize("engine", ["emulator", "eager"])
def test_another_engine_exits_2(engine: str) -> None:
    """A GPU that no check uses is no GPU."""
    code, output = run(*QUICK, "--require-gpu", "--engine", engine)
    assert code == 2
    assert f"engine is '{engine}', required: cuda or auto" in output


@pytest.mark.gpu
def test_a_gpu_is_used_and_its_memory_is_told(tmp_path: Path) -> None:
    """Exit 0; the closing line and the report hold the same peak, which fits a small GPU."""
    file = tmp_path / "out.json"
    # Other tests of this process may have held more.
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    code, output = run(*QUICK, "--require-gpu", "--json", str(file))
    assert code == 0, output
    report = json.loads(file.read_text())
    assert (report["run"]["device"], report["run"]["engine"]) == ("cuda", "cuda")
    (held,) = report["environment"]["gpu_peak_bytes"]
    assert 0 < held < ROOM
    told = re.search(r"peak GPU memory ([\d.]+) GB", output)
    assert float(told[1]) == round(held / 1e9, 2)


def test_the_end_of_a_run_tells_its_memory() -> None:
    """Bytes of several processes are added, a run on a CPU says nothing, and the schema agrees."""
    found = [Result("gates", "dflash", "x", holds("as told", 1, "one answer"), 0.0)]
    where = environment("cpu")
    assert "gpu_peak_bytes" not in where
    for peaks, words in (
        ([], ""),
        ([2_500_000_000], "; peak GPU memory 2.50 GB"),
        ([10**9, 3 * 10**9], "; peak GPU memory 4.00 GB over 2 processes"),
    ):
        told = {**where, **({"gpu_peak_bytes": peaks} if peaks else {})}
        run_of = reports.Run("x", "synthetic", "smoke", "cuda", "cuda", 0, "again")
        assert memory(document(run_of, found, Ledger(), told)) == words
    with pytest.raises(jsonschema.ValidationError):
        document(run_of, found, Ledger(), {**where, "gpu_peak_bytes": ["much"]})
    assert peak("cpu") == 0


def declines_gpu(setting: Mapping[str, Any]) -> Any:
    """A sampler that is served on a CPU alone; this one believes that it was asked for a GPU."""
    if setting["engine"] != "eager":
        raise NotImplementedError("this kind of device is not served")
    return FOLDED(setting)


def declines_all(setting: Mapping[str, Any]) -> Any:
    """A sampler that is served nowhere."""
    raise NotImplementedError(f"no {setting['family']} at all")


@pytest.mark.parametrize(
    ("factory", "required", "outcome"),
    [
        (declines_gpu, False, Outcome.NOT_APPLICABLE),
        (declines_gpu, True, Outcome.UNKNOWN),
        (declines_all, True, Outcome.NOT_APPLICABLE),
    ],
)
def test_what_only_the_device_hides_is_unknown(
    factory: Any,
    required: bool,  # noqa: FBT001
    outcome: Outcome,
) -> None:
    """A setting that a CPU would have served, and a GPU declined, is not beside the point."""
    trial = Trial(factory, context(), checks=(gates,), combinations=(("dspark", "counter"),))
    (found,) = replace(trial, require_gpu=required).run()
    assert found.verdict.outcome is outcome
    assert exit_code([Outcome.HOLDS, outcome]) == (3 if outcome is Outcome.UNKNOWN else 0)


@pytest.mark.parametrize("required", [False, True])
def test_an_ability_that_only_the_device_hides_is_unknown(required: bool) -> None:  # noqa: FBT001
    """Without a recording there are no buffers; the emulator, on the same CPU, shows them."""
    trial = Trial(FOLDED, context(engine="eager"), checks=(writeset,), require_gpu=required)
    (found,) = replace(trial, combinations=(("dspark", "counter"),)).run()
    wanted = Outcome.UNKNOWN if required else Outcome.NOT_APPLICABLE
    assert found.verdict.outcome is wanted
    assert "does not claim BUFFERS" in found.verdict.reason


@pytest.mark.parametrize(
    ("dtype", "step", "found", "lacking"),
    [
        (torch.bfloat16, "bfloat16", (7, 5), True),
        (torch.float16, "bfloat16", (7, 0), True),
        (torch.bfloat16, "float32", (8, 0), False),
        (torch.bfloat16, "bfloat16", (9, 0), False),
        (torch.float16, "float16", (7, 5), False),
        (torch.bfloat16, "bfloat16", None, False),
    ],
)
def test_bfloat16_is_asked_of_the_capability(
    dtype: torch.dtype,
    step: str,
    found: Any,
    lacking: bool,  # noqa: FBT001
) -> None:
    """Neither the name of a device nor its being a GPU says what it multiplies."""
    why = lacks({"head": torch.zeros(1, 1, dtype=dtype), "step_dtype": step}, found)
    assert bool(why) == lacking
    assert not lacking or str(BFLOAT16_SINCE) in why


@pytest.mark.parametrize("required", [False, True])
def test_an_old_gpu_leaves_bfloat16_out(required: bool) -> None:  # noqa: FBT001
    """Only those cases, and they are unknown where the GPU is required."""
    base = context(("dflash", "none"), profile=replace(SMALL, dtypes=("float32", "bfloat16")))
    trial = Trial(FOLDED, base, capability=(7, 5), require_gpu=required)
    left = Outcome.UNKNOWN if required else Outcome.NOT_APPLICABLE
    seen = set()
    for plan in spike.plans(replace(base, profile=replace(base.profile, name="ci"))):
        history, verdict = trial.case(spike, plan, base)
        halved = plan.setting["head"].dtype == torch.bfloat16
        seen.add(halved)
        assert verdict.outcome is (left if halved else Outcome.HOLDS)
        assert (history is None) == halved
    assert seen == {True, False}


def test_kernels_ask_the_capability_of_their_site() -> None:
    """A capability that is given counts; a kernel needs the units that bfloat16 needs."""
    cuda = torch.device("cuda", 0)
    why = cannot_run(Site(cuda), (7, 5))
    assert why in ("compute capability (7, 5) is below (8, 0)", "triton is not installed")
    assert "capability" not in (cannot_run(Site(cuda), (8, 0)) or "")


def test_a_cpu_has_no_capability_and_serves_what_it_serves() -> None:
    """The CPU is asked with an engine of its own."""
    setting = context().setting(
        context().workload.material(0, 61, torch.float32), drafts=2, buckets=(2,)
    )
    assert capability("cpu") is None
    assert "BUFFERS" in abilities_on_cpu(FOLDED, {**setting, "device": "cuda", "engine": "cuda"})
    assert abilities_on_cpu(declines_all, setting) is None
