"""Vectors that any language can run: their form, and how each group is made."""
