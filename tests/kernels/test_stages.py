"""The choice of kernels: when they are taken, why when not, and how a replaced arrow wins."""

from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed, so no kernel can be tested")

from impl.bias import MarkovHead
from impl.buffers import Buffers, Layout
from impl.draft import DsparkDraft
from impl.fused import DrawnNoise, Site
from impl.logits import OutputHead
from impl.noise import CounterNoise
from impl.sampler import admit
from impl.shapes import Shapes
from impl.stages import Stages, stages_for

from .chains import DEVICE, same_bits

ROWS, DRAFTS, VOCABULARY, HIDDEN, RANK = 3, 2, 40, 4, 3
KEEPS_TORCH = [
    ("race", "vanilla", 1, "torch: the noise is race"),
    ("counter", "gated", 1, "torch, noise by triton: the Markov head is gated"),
    ("counter", "vanilla", 2, "torch, noise by triton: the vocabulary lies over ranks"),
]


def whole(*size: int, seed: int = 0) -> torch.Tensor:
    """Small integers, so that products are exact in any order."""
    drawn = torch.Generator().manual_seed(seed)
    return torch.randint(-2, 3, size, generator=drawn).to(DEVICE, torch.bfloat16)


def head_of(kind: str) -> MarkovHead:
    """A Markov head of a kind."""
    w1, w2 = whole(VOCABULARY, RANK, seed=1), whole(VOCABULARY, RANK, seed=2)
    if kind == "vanilla":
        return MarkovHead(w1, w2)
    return MarkovHead(w1, w2, kind, whole(RANK, HIDDEN + RANK), whole(RANK))


def drafted(stages: Stages, kind: str = "vanilla") -> dict[str, torch.Tensor]:
    """Draft one block of a sampled, a greedy and a pad row."""
    shapes = Shapes(DRAFTS, VOCABULARY, VOCABULARY, HIDDEN, RANK, (ROWS,))
    kinds = ("dspark", "counter", "sampled", "given")
    layout = Layout(shapes, *kinds, torch.bfloat16, torch.float32)
    noise = CounterNoise.seeded(VOCABULARY, 7, DEVICE)
    buffers = Buffers(layout, DEVICE, noise.state)
    heat = torch.tensor([0.9, 0.0], device=DEVICE)
    admitted = admit(heat, torch.tensor([2**30, 2**30], device=DEVICE))
    buffers.load("temperature", admitted.temperature, ROWS)
    buffers.load("greedy", admitted.greedy, ROWS)
    draft = DsparkDraft(
        shapes, OutputHead(whole(VOCABULARY, HIDDEN), VOCABULARY), head_of(kind), noise
    )
    hidden = whole(ROWS * DRAFTS, HIDDEN, seed=3)
    draft.block(stages, buffers, hidden, torch.arange(ROWS, device=DEVICE))
    found = {name: buffers[name].clone() for name in ("tokens", "flags", "step_logits")}
    return {**found, "block": noise.block.clone()}


def ones(noise: CounterNoise, rows: int, step: int, buffer: object) -> torch.Tensor:
    """Noise that leaves the argmax."""
    del step, buffer
    return torch.ones(rows, noise.vocabulary, device=DEVICE)


def test_a_draft_block_is_the_same_with_both_sets() -> None:
    """Every buffer and the block counter, through the loop that a recording captures."""
    fused = stages_for("triton", "counter", "sampled", site=Site(DEVICE, head_of("vanilla")))
    assert fused.chain is not None
    assert fused.chosen.startswith("triton")
    one, two = drafted(stages_for("torch", "counter", "sampled")), drafted(fused)
    assert all(same_bits(one[name].float(), two[name].float()) for name in one)


def test_a_block_with_noise_by_a_kernel_is_the_same() -> None:
    """Of a head whose steps are torch's."""
    site = Site(DEVICE, head_of("gated"))
    kernels = stages_for("triton", "counter", "sampled", "gated", site)
    one = drafted(stages_for("torch", "counter", "sampled", "gated"), "gated")
    two = drafted(kernels, "gated")
    assert all(same_bits(one[name].float(), two[name].float()) for name in one)
    silent = drafted(kernels._replace(noise=ones), "gated")
    assert torch.equal(silent["tokens"], silent["step_logits"].argmax(-1))
    assert not torch.equal(silent["tokens"], two["tokens"])


@pytest.mark.parametrize("arrow", ["bias", "step", "noise", "choice", "advance"])
def test_a_replaced_arrow_ends_the_fusion(arrow: str) -> None:
    """A fused arrow may not go on doing what a replaced one was meant to do."""
    fused = stages_for("triton", "counter", "sampled", site=Site(DEVICE, head_of("vanilla")))
    replaced: dict[str, Any] = {arrow: partial(getattr(fused, arrow))}
    assert fused._replace(**replaced).chain is None
    assert fused._replace(logits=partial(fused.logits)).chain is not None


def test_a_replaced_arrow_takes_effect() -> None:
    """Noise of one, put in place of the noise of a fused set, decides what is drawn."""
    fused = stages_for("triton", "counter", "sampled", site=Site(DEVICE, head_of("vanilla")))
    found = drafted(fused._replace(noise=ones))
    assert torch.equal(found["tokens"], found["step_logits"].argmax(-1))


@pytest.mark.parametrize(("dialect", "kind", "ranks", "reason"), KEEPS_TORCH)
def test_what_has_no_kernel_keeps_the_torch_arrows(
    dialect: str, kind: str, ranks: int, reason: str
) -> None:
    """And says why."""
    site = Site(DEVICE, head_of(kind), ranks)
    found = stages_for("triton", dialect, "sampled", kind, site)
    assert found.chain is None
    assert found.chosen.startswith(reason)
    assert isinstance(found.noise, DrawnNoise) is ("noise by triton" in reason)
    greedy = stages_for("triton", dialect, "greedy", kind, site)
    assert not isinstance(greedy.noise, DrawnNoise)


def test_auto_takes_kernels_on_a_gpu_alone() -> None:
    """Interpreted kernels are for tests, and an engine could not record them."""
    site = Site(DEVICE, head_of("vanilla"))
    chosen = stages_for("auto", "counter", "sampled", site=site).chosen
    assert chosen.startswith("triton" if DEVICE.type == "cuda" else "torch: the device is cpu")
    with pytest.raises(ValueError, match="'triton': nothing is said of the device"):
        stages_for("triton", "counter", "sampled")
    cpu = Site(torch.device("cpu"), head_of("vanilla"), recorded=True)
    with pytest.raises(ValueError, match=r"not interpreted|cannot record interpreted"):
        stages_for("triton", "counter", "sampled", site=cpu)
