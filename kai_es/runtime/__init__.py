"""Composition root: settings, wiring, supervision, metrics, logging."""
