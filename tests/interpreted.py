"""Kernels are compiled where a GPU is, and interpreted where none is.

Imported by every folder of tests that may import a kernel before others do: Triton reads its
variable when a kernel is defined, so one that is defined too early is compiled for ever.
"""

import os

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # noqa: TID251  (Triton's switch, not ours)
