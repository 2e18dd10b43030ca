"""Deterministic simulation: the real services in virtual time, everything decided by one seed.

`python -m tests.worlds SEED …` runs the world of a seed; a failing one fails again in the same way.
"""
