"""The engine for CUDA tensors: torch.cuda.CUDAGraph, with errors in the emulator's words.

What the driver refuses is refused here too, in texts that name neither op nor line. Two modes that
are active during capture see both. They also refuse draws from the implicit generator, which the
driver allows, and from one that is not registered before the driver does (G7). They judge nothing
else: this engine shows what the device does, the emulator what we believe it does.

Libraries that set themselves up at their first use, such as cuBLAS, fail when that happens inside
a capture: warm up first.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .engine import Pool
from .hazard import (
    FRESH,
    READ,
    SIZED,
    STRANGER,
    WAIT,
    Hazard,
    Kind,
    calling_line,
    fenced,
    identity,
    refuse_draw,
    spoken,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

__all__ = ["CudaEngine", "CudaRecording"]

_DRAW = "Attempt to increase offset for a CUDA generator not in capture mode"
_COPY = "Cannot copy between CPU and CUDA tensors during CUDA graph capture"
# The driver has several names for one event: a call that waits, on a stream that is capturing.
_WAIT = ("previous error during capture", "when stream is capturing", "capture was invalidated")


class CudaRecording:
    """A captured graph and what the captured call returned."""

    def __init__(self, graph: torch.cuda.CUDAGraph, result: Any) -> None:
        """Keep the graph and the result alive."""
        self.result = result
        self.replays = 0
        self.kernels: tuple[str, ...] = ()
        self._graph = graph

    def replay(self) -> None:
        """Launch the graph on the current stream; RuntimeError while that stream captures."""
        if torch.cuda.is_current_stream_capturing():
            msg = "replay was called while recording; required: a recorded call without replay"
            raise RuntimeError(msg)
        self._graph.replay()
        self.replays += 1


class CudaEngine:
    """Captures work on one CUDA device, on a side stream of its own."""

    name = "cuda"

    def __init__(self, device: torch.device) -> None:
        """Take the device; its current index when `device` has none."""
        index = torch.cuda.current_device() if device.index is None else device.index
        self._device = torch.device("cuda", index)
        self._stream = torch.cuda.Stream(self._device)

    def pool(self) -> Pool:
        """Make a new pool of device memory."""
        with torch.cuda.device(self._device):
            return Pool(self.name, torch.cuda.graph_pool_handle())

    def record(
        self,
        body: Callable[[], Any],
        *,
        pool: Pool,
        generators: Sequence[torch.Generator] = (),
    ) -> CudaRecording:
        """Capture one call of `body`; see Engine.record."""
        handle = pool.handle_for(self.name)
        if torch.cuda.is_current_stream_capturing():
            msg = "record was called while recording; required: a recorded call without record"
            raise RuntimeError(msg)
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            if generator.device.type != "cuda":
                msg = f"a generator on {generator.device} was registered; required: cuda"
                raise ValueError(msg)
            graph.register_generator_state(generator)
        witness = _Witness(generators)
        with torch.cuda.device(self._device), torch.no_grad(), _translated(witness):
            torch.cuda.synchronize()
            # Collecting a dead graph in the middle of a capture would break the capture.
            gc.collect()
            with torch.cuda.stream(self._stream):
                result = _capture(graph, handle, body, witness)
            torch.cuda.synchronize()
        return CudaRecording(graph, result)


def _capture(
    graph: torch.cuda.CUDAGraph, handle: Any, body: Callable[[], Any], witness: _Witness
) -> Any:
    """Capture on the current stream; on an error end the capture and let the error out."""
    # Only this thread's unsafe calls can break the capture, so another thread may go on working.
    graph.capture_begin(pool=handle, capture_error_mode="thread_local")
    try:
        with witness, _Caller(witness):
            result = body()
    except BaseException:
        _abandon(graph, witness.generators)
        raise
    try:
        graph.capture_end()
    except RuntimeError:
        _release(witness.generators)
        raise
    return result


def _abandon(graph: torch.cuda.CUDAGraph, generators: Sequence[torch.Generator]) -> None:
    """End a capture whose result nobody wants; the error that led here is the one to report."""
    try:
        with warnings.catch_warnings():
            # Torch warns when nothing had been captured yet.
            warnings.simplefilter("ignore")
            graph.capture_end()
    except RuntimeError:
        _release(generators)


def _release(generators: Sequence[torch.Generator]) -> None:
    """Make generators usable again that a broken capture left in capture mode."""
    # Torch frees them, and the default one, only at the end of a capture that ends well.
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    graph.capture_begin(capture_error_mode="thread_local")
    torch.zeros(1, device="cuda")
    graph.capture_end()


class _Witness(TorchDispatchMode):
    """Keeps the first op that the driver refused; refuses implicit draws itself."""

    def __init__(self, generators: Sequence[torch.Generator]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.generators = generators
        self.hazard: Hazard | None = None
        self._registered = {identity(generator) for generator in generators}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Collection[Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Judge the draw of `func` and run it."""
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():
            # There torch leaves compound ops whole; their parts say what draws.
            with self:
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        refuse_draw(func, args, kwargs, self._registered)
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            self.note(error, str(func), func.tags)
            raise

    def note(self, error: RuntimeError, op: str, tags: Collection[Any]) -> None:
        """Keep what `error` says about `op`, unless an earlier op was refused."""
        kind = _kind(str(error), tags)
        if self.hazard is None and kind is not None:
            self.hazard = _named(op, kind)

    def note_call(self, error: RuntimeError, op: str, kind: Kind | None) -> None:
        """Name the torch function that the caller wrote, not the op that it came to.

        kind  what the function does wrong by its name, None to go by what `error` says
        """
        told = _kind(str(error), ())
        if told is not None and (kind is not None or self.hazard is None):
            self.hazard = _named(op, kind or told)


class _Caller(TorchFunctionMode):
    """Tells the witness of torch functions that fail without reaching the dispatcher."""

    def __init__(self, witness: _Witness) -> None:
        super().__init__()
        self._witness = witness

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Collection[Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run `func`."""
        kwargs = kwargs or {}
        try:
            return func(*args, **kwargs)
        except RuntimeError as error:
            op, kind = fenced(func, args, kwargs) or (spoken(func), None)
            self._witness.note_call(error, op, kind)
            raise


@contextlib.contextmanager
def _translated(witness: _Witness) -> Iterator[None]:
    """Turn the driver's refusals into Hazard; leave other errors as they are."""
    try:
        yield
    except Hazard:
        raise
    except RuntimeError as error:
        hazard = witness.hazard
        kind = _kind(str(error), ())
        if hazard is None and kind is not None:
            # A call of the driver that torch did not make has no op and no line.
            hazard = Hazard(kind.rule, "a driver call", "an unknown line", kind.what, kind.instead)
        if hazard is None:
            raise
        raise hazard from error


def _named(op: str, kind: Kind) -> Hazard:
    """The Hazard of an op, at the line that is being run."""
    return Hazard(kind.rule, op, calling_line(), kind.what, kind.instead)


def _kind(text: str, tags: Collection[Any]) -> Kind | None:
    """What a driver text means, in the words of every engine; None when it is another error.

    tags  of the op that raised it
    """
    if _DRAW in text:
        return STRANGER
    if _COPY not in text and not any(words in text for words in _WAIT):
        return None
    if torch.Tag.dynamic_output_shape in tags:
        return SIZED
    if torch.Tag.data_dependent_output in tags:
        return READ
    return FRESH if _COPY in text else WAIT
