"""Columns to a CycleDecision. Pure: no clock, no chance, no I/O."""
