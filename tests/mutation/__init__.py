"""Mutation testing of the reference and the judge: who guards what, and which mutants survive."""
