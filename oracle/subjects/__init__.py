"""Samplers under test that are not ours: reference (the oracle itself), torch_ops (torch's own).

Each file has a `factory(setting)`; a library is imported inside it, and a missing one is a reason.
"""
