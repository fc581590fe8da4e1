"""Third-party samplers as they were shipped, where a variable names their folders.

Nothing is fetched. Without SGLang the tests are skipped with the reason, or fail where
DRAFTPROOF_REQUIRE_SHIPPED=1 asks for them. Each run is a process of its own: what stands around the
genuine modules must not meet other tests.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oracle.subjects import alone

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
REQUIRED = "DRAFTPROOF_REQUIRE_SHIPPED"


@pytest.fixture
def sglang() -> Path:
    """The folder of SGLang."""
    try:
        return alone.folder_of("sglang")
    except NotImplementedError as error:
        if os.environ.get(REQUIRED) == "1":  # noqa: TID251  (a matter of the test run)
            pytest.fail(f"{REQUIRED}=1, but {error}")
        pytest.skip(str(error))  # noqa: TID251  (the reason says what to unpack)


def verified(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of one run in a process of its own."""
    file = folder / "out.json"
    command = [sys.executable, "-m", "oracle", "verify", "--jobs", "1", "--json", str(file)]
    done = subprocess.run([*command, *words], cwd=ROOT, check=False, capture_output=True, text=True)
    assert file.is_file(), done.stdout + done.stderr
    return done.returncode, json.loads(file.read_text())


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    """The verdict of every check that applied."""
    rows = {row["check"]: row["verdict"] for row in report["checks"]}
    return {name: verdict for name, verdict in rows.items() if verdict != "not applicable"}


@pytest.mark.usefixtures("sglang")
def test_the_folded_samplers_deviate_where_it_is_written_and_nowhere_else(tmp_path: Path) -> None:
    """Both families, every check that applies, and one known deviation."""
    words = ("--subject", "sglang", "--expectations", "shipped")
    code, report = verified(tmp_path, *words)
    found = verdicts(report)
    assert (code, report["verdict"]) == (0, "expected")
    assert found.pop("retention") == "expected"
    assert set(found.values()) == {"holds"}
    decisive = {"equality", "coupled", "noise_law", "draft_law", "block_law", "independence"}
    assert decisive | {"bounds", "spike", "writeset", "confidence", "claim"} <= set(found)


@pytest.mark.usefixtures("sglang")
def test_an_edit_in_place_is_found(tmp_path: Path) -> None:
    """What the restaging skips is stale, by name and age; the file of known deviations says so."""
    words = ("--subject", "sglang:edited", "--check", "freshness", "--only", "dspark/counter")
    code, report = verified(tmp_path, *words)
    (row,) = report["checks"]
    assert (code, row["verdict"]) == (1, "violated")
    assert any("stale: buffer temperatures" in case["reason"] for case in row["cases"])
    assert verified(tmp_path, *words, "--expectations", "shipped")[0] == 0


@pytest.mark.usefixtures("sglang")
def test_the_steps_of_a_block_draw_the_same_tokens(tmp_path: Path) -> None:
    """MarkovSampleStep and MarkovGreedyStep, coupled on their own noise."""
    checks = ("--check", "coupled", "--check", "equality", "--check", "invariance")
    words = ("--subject", "sglang:step", "--only", "dspark/counter", *checks)
    code, report = verified(tmp_path, *words)
    assert (code, set(verdicts(report).values())) == (0, {"holds"})


@pytest.mark.usefixtures("sglang")
@pytest.mark.parametrize("subject", ["sglang:sampler", "sglang:step"])
def test_a_seed_at_which_a_masked_id_is_drawn(subject: str, tmp_path: Path) -> None:
    """The one id with mass has the largest word in block 2; announced for this seed alone."""
    words = ("--subject", subject, "--check", "bounds", "--only", "dspark/counter", "--seed")
    code, report = verified(tmp_path, *words, "617245")
    (row,) = report["checks"]
    seen = {case["case"]: case["reason"] for case in row["cases"] if case["verdict"] == "violated"}
    assert (code, list(seen)) == (1, ["one id left"])
    assert seen["one id left"].startswith("token of row 7, step 0, block 2")
    assert verified(tmp_path, *words, "617245", "--expectations", "shipped")[0] == 0
    assert verified(tmp_path, *words, "0", "--expectations", "shipped")[0] == 0


MASKED = """
import torch
from oracle.reference import noise
from oracle.subjects.sglang.shipped import STEP, modules

logits = torch.full((1, 12), -torch.inf)
logits[0, 6] = 3.0
given = {"temperatures": torch.ones(1), "step": 0, "step_dtype": torch.float32}
for block in (18268508, 18268509):
    token = modules()[STEP].MarkovSampleStep.torch(
        base_logits=logits, bias=torch.zeros(1, 12), key=1, offset=torch.tensor([block]), **given
    )
    told = [
        float(noise.counter_noise(1, 1, 12, block, 1, law=law)[0, 0, 6])
        for law in (noise.uniform, noise.unbounded_uniform)
    ]
    print(int(token), *told)
"""


@pytest.mark.usefixtures("sglang")
def test_a_masked_id_is_drawn_where_a_word_rounds_to_one() -> None:
    """The one id with mass has infinite E; the reference of that dialect foretells it."""
    command = [sys.executable, "-c", MASKED]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    usual, endless = (line.split() for line in done.stdout.splitlines())
    assert usual[0] == "6"
    assert usual[1] == usual[2] != "inf"
    assert (endless[0], endless[2]) == ("0", "inf")
    assert float(endless[1]) < 17


RECIPE = """
import runpy, sys, types
import pytest
from oracle import plugin

def stand_in(words):
    # On a machine without a GPU: recorded by the emulator, as if there were one.
    for name in NAMES:
        del sys.modules[name]
    plugin.gpus = lambda: 1
    words.remove("--draftproof-engine=cuda")
    return run([*words, "-p", "oracle.plugin", "-p", "no:cacheprovider"])

NAMES = ["sglang", "sglang.test", "sglang.test.ci", "sglang.test.ci.ci_register"]
sys.modules |= {name: types.ModuleType(name) for name in NAMES}
sys.modules[NAMES[-1]].register_cuda_ci = lambda **_: None
run, pytest.main = pytest.main, stand_in
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@pytest.mark.usefixtures("sglang")
def test_the_registered_recipe_passes_on_what_was_shipped(tmp_path: Path) -> None:
    """Known deviations are xfailed, what SGLang does not serve is no hole in a GPU job."""
    recipe = ROOT / ".github" / "recipes" / "sglang_registered.py"
    command = [sys.executable, "-c", RECIPE, str(recipe)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}  # noqa: TID251  (the recipe's own)
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* passed, .*2 xfailed", done.stdout)


GATES = """
import torch
from oracle.subjects.sglang import sampler
from oracle.subjects.sglang.dflash import gated

for block, dtype in ((4, "float32"), (1, "float32"), (4, "int8"), (4, "float8_e4m3fn")):
    head = torch.zeros(8, 4).to(getattr(torch, dtype))
    try:
        print(type(gated({"head": head, "vocabulary": 7, "device": "cpu"}, 4, block)).__name__)
    except NotImplementedError as error:
        print(error)
whole = {"family": "dspark", "dialect": "counter", "forward": "given", "step_dtype": "float32"}
whole |= {"head": torch.zeros(8, 4), "vocabulary": 7, "w1": torch.zeros(7, 2), "device": "cpu"}
whole |= {"w2": torch.zeros(7, 2), "buckets": (4,), "sample_from_anchor": True, "seed": 0}
for drafts in (2, 0):
    try:
        print(type(sampler({**whole, "drafts": drafts, "engine": "eager"})).__name__)
    except NotImplementedError as error:
        print(error)
"""


@pytest.mark.usefixtures("sglang")
def test_the_gates_of_the_builders_decline_by_name() -> None:
    """Open ones build; a block without drafts and quantized heads are kept eager."""
    command = [sys.executable, "-c", GATES]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    kept = "DFLASH draft greedy head kept eager (reason={})."
    assert done.stdout.splitlines() == [
        "_DflashDraftSampler",
        kept.format("block_size<=1"),
        kept.format("quantized lm_head"),
        kept.format("quantized lm_head"),
        "Sampler",
        "maybe_build_draft_sampler keeps the proposal eager",
    ]
