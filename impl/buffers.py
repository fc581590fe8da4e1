"""Every tensor that outlives a call: name, shape, dtype, role and pad policy, allocated once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from .shapes import Shapes

# What a pad row holds after every load, so that it is a valid request whatever it held before.
NEUTRAL: dict[str, float] = {
    "anchor": 0,
    "temperature": 1.0,
    "greedy": True,
    "hidden": 0.0,
    "context": 0.0,
}
STEP_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Spec:
    """A buffer before it exists.

    role  input, parameter, noise, scratch, output or state
    pad   'neutral': pad rows hold NEUTRAL after a load. 'undefined': nothing is said about them
    rows  True when the leading dimension is the batch row
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    role: str
    pad: str = "undefined"
    rows: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, in integers."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Buffer:
    """A buffer that exists; fields as in Spec."""

    name: str
    tensor: Tensor
    role: str
    pad: str
    rows: bool


@dataclass(frozen=True)
class Layout:
    """What decides which buffers exist.

    shapes      sizes; the largest bucket is the leading dimension
    family      'dflash' or 'dspark'
    dialect     'none', 'race' or 'counter'
    fold        'greedy': no sampling buffers. 'sampled': kept step logits and race noise
    forward     'given': hidden states are an input. 'backbone': the target features are
    head_dtype  dtype of hidden states and base logits
    step_dtype  dtype of the step logits
    recurrent   a state is carried from step to step
    confidence  a confidence head writes its outputs

    ValueError: a step dtype that is not float16, bfloat16 or float32.
    """

    shapes: Shapes
    family: str
    dialect: str
    fold: str
    forward: str
    head_dtype: torch.dtype
    step_dtype: torch.dtype
    recurrent: bool = False
    confidence: bool = False

    def __post_init__(self) -> None:
        if self.step_dtype not in STEP_DTYPES:
            raise ValueError(
                f"the step dtype is {self.step_dtype}; it should be float16, bfloat16 or float32"
            )

    def specs(self) -> tuple[Spec, ...]:
        """Every buffer of this layout, in the order of the pipeline."""
        parts = [*self._inputs(), *self._block()]
        if self.family == "dspark":
            parts += [*self._parameters(), *self._sampling(), *self._state()]
        return (*parts, *self._heads())

    def nbytes(self) -> int:
        """Bytes of all static buffers, in integers."""
        return sum(spec.nbytes for spec in self.specs())

    def for_rows(self, rows: int) -> "Layout":
        """The same layout for one bucket of `rows` rows."""
        return replace(self, shapes=replace(self.shapes, buckets=(rows,)))

    def _inputs(self) -> Iterator[Spec]:
        top, sizes = self.shapes.rows_max, self.shapes
        block = (top, sizes.query_rows, sizes.hidden)
        if self.forward == "given":
            yield Spec("hidden", block, self.head_dtype, "input", "neutral")
        else:
            yield Spec("context", (top, sizes.hidden), self.head_dtype, "input", "neutral")
            yield Spec("hidden", block, self.head_dtype, "output")
        yield Spec("anchor", (top,), torch.int64, "input", "neutral")
        yield Spec("input_ids", (top, sizes.query_rows), torch.int64, "scratch")

    def _block(self) -> Iterator[Spec]:
        top, drafts, wide = self.shapes.rows_max, self.shapes.drafts, self.shapes.vocabulary
        yield Spec("base_logits", (top, drafts, wide), self.head_dtype, "scratch")
        yield Spec("tokens", (top, drafts), torch.int64, "output")
        yield Spec("flags", (top, drafts), torch.uint8, "output")

    def _parameters(self) -> Iterator[Spec]:
        top = self.shapes.rows_max
        yield Spec("temperature", (top,), torch.float32, "parameter", "neutral")
        yield Spec("greedy", (top,), torch.bool, "parameter", "neutral")

    def _sampling(self) -> Iterator[Spec]:
        top, drafts, wide = self.shapes.rows_max, self.shapes.drafts, self.shapes.vocabulary
        if self.fold == "greedy":
            yield Spec("step_scratch", (top, wide), self.step_dtype, "scratch")
            return
        yield Spec("step_logits", (top, drafts, wide), self.step_dtype, "output")
        if self.dialect == "race":
            yield Spec("exp_noise", (top, wide), torch.float32, "noise")

    def _state(self) -> Iterator[Spec]:
        if self.dialect == "counter":
            yield Spec("seed_key", (2,), torch.int64, "state", rows=False)
            yield Spec("block", (1,), torch.int64, "state", rows=False)

    def _heads(self) -> Iterator[Spec]:
        top, drafts = self.shapes.rows_max, self.shapes.drafts
        if self.recurrent:
            yield Spec("markov_state", (top, self.shapes.rank), self.head_dtype, "scratch")
        if self.confidence:
            yield Spec("confidence", (top, drafts), torch.float32, "output")
            yield Spec("confidence_raw", (top, drafts), torch.float32, "output")
            yield Spec("confidence_flags", (top, drafts), torch.uint8, "output")


class Buffers(Mapping[str, Tensor]):
    """The tensors of a layout on one device, by name.

    layout  what exists
    device  where
    state   tensors of the noise, adopted and not allocated: every set of buffers shares them

    Neutral buffers start neutral, all others at zero.
    """

    def __init__(self, layout: Layout, device: torch.device, state: Mapping[str, Tensor]) -> None:
        self.layout = layout
        self.all = tuple(
            Buffer(
                spec.name,
                state[spec.name] if spec.role == "state" else _fresh(spec, device),
                spec.role,
                spec.pad,
                spec.rows,
            )
            for spec in layout.specs()
        )
        self._by_name = {buffer.name: buffer.tensor for buffer in self.all}

    def __getitem__(self, name: str) -> Tensor:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def load(self, name: str, live: Tensor, padded: int) -> None:
        """Copy the live rows of one buffer and make the rows up to `padded` neutral.

        live [B, ...]: values of the live rows, in the dtype and row shape of the buffer

        ValueError: another dtype, another row shape, or more rows than the bucket.
        """
        held, rows = self[name], live.shape[0]
        if live.dtype != held.dtype or live.shape[1:] != held.shape[1:]:
            raise ValueError(
                f"{name} has dtype {live.dtype} and row shape {tuple(live.shape[1:])}; it should "
                f"have {held.dtype} and {tuple(held.shape[1:])}"
            )
        if not rows <= padded <= held.shape[0]:
            raise ValueError(
                f"{name} has {rows} rows; the bucket holds {padded} of at most {held.shape[0]}"
            )
        held[:rows].copy_(live)
        held[rows:padded].fill_(NEUTRAL[name])

    def step_column(self, rows: int, step: int) -> Tensor:
        """Where the step logits of one column go: the kept ones, or scratch when none are kept."""
        if "step_logits" in self._by_name:
            return self["step_logits"][:rows, step]
        return self["step_scratch"][:rows]


def _fresh(spec: Spec, device: torch.device) -> Tensor:
    tensor = torch.zeros(spec.shape, dtype=spec.dtype, device=device)
    return tensor.fill_(NEUTRAL[spec.name]) if spec.pad == "neutral" else tensor
