"""Results that nobody can see share bytes in the emulator; what may be looked at keeps its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from impl.graph import engine_for
from impl.graph.emulator import EmulatorRecording

WIDE, STEPS = 64, 6


def recorded(body: Callable[[], object]) -> EmulatorRecording:
    """The recording of a call."""
    engine = engine_for("cpu")
    made = engine.record(body, pool=engine.pool())
    assert isinstance(made, EmulatorRecording)
    return made


def places(recording: EmulatorRecording) -> set[int]:
    """Where the tensors that the steps use begin."""
    return {
        tensor.untyped_storage().data_ptr()
        for step in recording._steps
        for tensor in (*step.args, *step.kwargs.values(), *step.outputs)
        if isinstance(tensor, Tensor)
    }


def test_dead_results_lie_on_common_bytes() -> None:
    """A chain of sums needs its input, its result, and two more."""
    source = torch.arange(WIDE, dtype=torch.float32)

    def body() -> Tensor:
        value = source
        for _ in range(STEPS):
            value = value + 1
        return value

    recording = recorded(body)
    assert len(places(recording)) == 4
    for _ in range(2):
        recording.replay()
        assert torch.equal(recording.result, source + STEPS)
        source.add_(1)


def kept_tensor(value: Tensor) -> object:
    """The tensor itself."""
    return value


def kept_view(value: Tensor) -> object:
    """A part of it."""
    return value[:7].view(7, 1)


def kept_storage(value: Tensor) -> object:
    """Its bytes alone."""
    return value.untyped_storage()


@pytest.mark.parametrize("keep", [kept_tensor, kept_view, kept_storage])
def test_what_is_kept_is_not_overwritten(keep: Callable[[Tensor], object]) -> None:
    """A result in the middle that something holds has its value after every replay."""
    source = torch.arange(WIDE, dtype=torch.float32)
    shelf: list[object] = []

    def body() -> Tensor:
        middle = source * 2
        shelf.append(keep(middle))
        value = middle + 1
        for _ in range(STEPS):
            value = value + 1
        return value

    recording = recorded(body)
    for _ in range(2):
        source.add_(1)
        recording.replay()
        held = shelf[0]
        if isinstance(held, torch.UntypedStorage):
            held = torch.empty(0).set_(held)
        assert isinstance(held, Tensor)
        assert torch.equal(held.flatten(), (source * 2)[: held.numel()])
        assert torch.equal(recording.result, source * 2 + 1 + STEPS)


def test_a_result_is_not_laid_over_what_its_step_reads() -> None:
    """An op of two results and a product of itself, over and over, equal the eager call."""
    source = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))

    def body() -> Tensor:
        value = source
        for _ in range(STEPS):
            order = torch.sort(value, -1).values
            value = (order @ value.t()).tanh_().t().contiguous() + order.view(8, 8)[:, :1]
        return value

    recording = recorded(body)
    for _ in range(3):
        recording.replay()
        assert torch.equal(recording.result, body())
        source.mul_(0.5)
