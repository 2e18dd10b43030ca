"""Benchmark shapes: `python -m benchmarks NAME ...`, one JSON object per line."""
