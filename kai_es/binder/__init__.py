"""Executes bind and evict requests against the cluster."""
