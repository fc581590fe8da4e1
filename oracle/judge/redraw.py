"""The race noise of one block, or of its accept, drawn again from the state it started from."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..reference.noise import floored
from .protocol import Setting


def drawable(device: str) -> bool:
    """Whether this machine can draw the stream of that kind of device again."""
    return not device.startswith("cuda") or torch.cuda.is_available()


def race_noise(
    state: torch.Tensor, device: str, bucket: int, drafts: int, vocabulary: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Repeat the K draws of a block: one Exp(1) buffer of the bucket's shape before each step.

    state uint8, a torch.Generator state; device the kind the subject drew on: the stream depends
    on it. Returns E [bucket, K, V] float32 on the CPU and the state after the last draw.
    """
    generator = torch.Generator(device)
    generator.set_state(state.cpu())
    steps = []
    for _ in range(drafts):
        drawn = torch.empty(bucket, vocabulary, dtype=torch.float32, device=device)
        drawn.exponential_(generator=generator)
        steps.append(floored(drawn).to(torch.float32).cpu())
    return torch.stack(steps, 1), generator.get_state()


def rows_drawn(path: Mapping[str, Any], rows: int, buckets: Sequence[int]) -> tuple[int, ...]:
    """Row counts that a block of `rows` live rows may have drawn noise for.

    The bucket, where the subject tells its path; else the live rows, or the bucket that holds them.
    """
    if path.get("bucket"):
        return (int(path["bucket"]),)
    padded = min((bucket for bucket in buckets if bucket >= rows), default=rows)
    return tuple(dict.fromkeys((rows, padded)))


def declared_noise(
    state: torch.Tensor, after: torch.Tensor, setting: Setting, rows: Sequence[int]
) -> tuple[torch.Tensor, bool]:
    """The noise of the first of these row counts that ends at `after`, and whether one does.

    state, after uint8, generator states before and after the block. Returns E [bucket, K, V].
    """
    sizes = (setting["drafts"], setting["vocabulary"])
    found = []
    for count in rows:
        noise, end = race_noise(state, setting["device"], count, *sizes)
        if torch.equal(end.cpu(), after.cpu()):
            return noise, True
        found.append(noise)
    return found[0], False


def after_coins(state: torch.Tensor, device: str, rows: int, columns: int) -> torch.Tensor:
    """The state that one accept leaves: one uniform buffer [rows, columns] drawn from `state`."""
    generator = torch.Generator(device)
    generator.set_state(state.cpu())
    torch.empty(rows, columns, dtype=torch.float32, device=device).uniform_(generator=generator)
    return generator.get_state()
