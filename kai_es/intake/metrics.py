"""Metrics of the informers."""

from typing import Final

from prometheus_client import Counter, Gauge

RECORDS: Final = Counter("kai_es_intake_records", "Records appended to objects", ["kind", "schema"])
LISTS: Final = Counter("kai_es_intake_lists", "Lists begun", ["kind"])
WATCHES: Final = Counter("kai_es_intake_watches", "Watches begun", ["kind"])
FAILURES: Final = Counter(
    "kai_es_intake_failures", "Lists and watches that failed", ["kind", "error"]
)
UNUSABLE: Final = Counter(
    "kai_es_intake_unusable_objects", "Objects without uid or resourceVersion", ["kind"]
)
OBJECTS: Final = Gauge("kai_es_intake_objects", "Live objects known", ["kind"])
QUEUE: Final = Gauge("kai_es_intake_queue_records", "Records waiting to be appended")
INCARNATION: Final = Gauge("kai_es_intake_incarnation", "Incarnation of the cluster's history")
FOREIGN_REQUESTS: Final = Gauge(
    "kai_es_intake_foreign_bind_requests", "Open BindRequest objects of another scheduler"
)
