"""Explain, replay, capture, verify and export, from the log alone.

In: a log (or an exported file) and checkpoints. Out: what was decided, again; what happened and
why; where an invariant does not hold. Never: a write to the log, a rule of its own (a replay runs
the production code).
"""
