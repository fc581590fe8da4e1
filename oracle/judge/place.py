"""Where a sampler runs: the engine that records it, and the device of that engine."""

import torch
from torch import distributed

ENGINES = ("auto", "emulator", "cuda", "eager")


def placed_on(engine: str, device: str = "") -> tuple[str, str]:
    """Engine and device. 'auto' is cuda where a GPU is visible, else the emulator on the CPU.

    device 'cpu', 'cuda' or '' for that of the engine. ValueError names what does not fit.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine is {engine!r}, required: one of {', '.join(ENGINES)}")
    if device not in ("", "cpu", "cuda"):
        raise ValueError(f"device is {device!r}, required: cpu or cuda")
    visible = torch.cuda.is_available()
    if engine == "auto":
        engine = "cuda" if device == "cuda" or (visible and device != "cpu") else "emulator"
    if engine == "cuda" and not visible:
        raise ValueError("engine cuda needs a GPU, and torch sees none")
    if engine == "cuda":
        own_gpu()
    found = "cuda" if engine == "cuda" else "cpu"
    if device not in ("", found):
        raise ValueError(f"engine {engine} runs on {found}, and device {device} was asked for")
    return engine, found


def own_gpu() -> None:
    """ValueError where torchrun started more processes on this machine than it has GPUs."""
    if not (distributed.is_available() and distributed.is_torchelastic_launched()):
        return
    rank, seen = distributed.get_node_local_rank(), gpus()
    if rank >= seen:
        raise ValueError(
            f"process {rank} of this machine has no GPU of its own: torch sees {seen}, "
            f"required: at most --nproc-per-node {seen}"
        )


def gpus() -> int:
    """How many CUDA devices torch sees."""
    return torch.cuda.device_count()
