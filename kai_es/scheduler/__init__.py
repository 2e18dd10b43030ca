"""Columns in, decision out: what a cycle does, and why. Never a clock, a log line or a request."""

from kai_es.scheduler.decide import decide

__all__ = ["decide"]
