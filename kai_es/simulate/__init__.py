"""Simulated API server and kubelet, workload generator, trace importer."""
