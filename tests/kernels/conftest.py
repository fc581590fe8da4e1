"""Kernels are compiled where a GPU is, and interpreted where none is; decided before any import."""

import os

import torch

if not torch.cuda.is_available():
    # Triton reads it when a kernel is defined, so every kernel of this process is interpreted.
    os.environ["TRITON_INTERPRET"] = "1"  # noqa: TID251  (Triton's switch, not ours)
