"""Informers: watch, dedupe, publish to objects."""
