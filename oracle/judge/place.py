"""Where a sampler runs: the engine that records it, and the device of that engine."""

import torch

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
    found = "cuda" if engine == "cuda" else "cpu"
    if device not in ("", found):
        raise ValueError(f"engine {engine} runs on {found}, and device {device} was asked for")
    return engine, found


def gpus() -> int:
    """How many CUDA devices torch sees."""
    return torch.cuda.device_count()
