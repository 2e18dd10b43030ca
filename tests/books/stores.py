"""Stores of the books in memory, with the failures that a database has."""

from kai_es.simulate.books import MemoryCheckpoints, MemoryUsage

__all__ = ["MemoryCheckpoints", "MemoryUsage"]
