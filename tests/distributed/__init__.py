"""Ranks as processes: a test that starts them, and what they run."""
