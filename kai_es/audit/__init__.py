"""Explain, replay, capture and verify, from the log alone."""
