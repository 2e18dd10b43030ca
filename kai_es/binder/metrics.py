"""Metrics of the binder."""

from typing import Final

from prometheus_client import Counter, Gauge, Histogram

RESULTS: Final = Counter("kai_es_binder_results", "Results published", ["result", "code"])
CALLS: Final = Counter("kai_es_binder_calls", "Calls to the API server", ["call", "answer"])
OPEN: Final = Gauge("kai_es_binder_open_requests", "Requests read that have no final result yet")
SECONDS: Final = Histogram(
    "kai_es_binder_request_seconds",
    "From the request's append to its final result",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 15, 60, 180),
)
