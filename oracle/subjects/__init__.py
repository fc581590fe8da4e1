"""Samplers under test that are not ours: the oracle itself, torch, SGLang, vLLM, FlashInfer.

Each has a `factory(setting)`; a library is imported inside it, and a missing one is a reason.
"""
