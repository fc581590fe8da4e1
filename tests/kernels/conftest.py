"""Decides how kernels run, before any of them is imported."""

from tests import interpreted

__all__ = ["interpreted"]
