"""Benchmarks: ratios measured in one run, never a time that must be met."""
