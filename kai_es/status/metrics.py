"""Metrics of the status writer, and of queues under the reference's names.

Reference: pkg/queuecontroller/metrics (operator §13.2).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from prometheus_client import Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kai_es.kube.labels import CPU, MEMORY
from kai_es.kube.objects import Queue
from kai_es.status.amounts import MICRO, Amounts

WRITES: Final = Counter("kai_es_status_writes", "Calls to the API server", ["what", "answer"])
EVENTS_LEFT_OUT: Final = Counter(
    "kai_es_status_events_left_out", "Events that were not written", ["why"]
)
WAITING: Final = Gauge("kai_es_status_waiting", "Objects whose status is still to be looked at")
EVENTS_WAITING: Final = Gauge("kai_es_status_events_waiting", "Events still to be written")

_LABELS: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
_MEGABYTE: Final = 1_000_000
_MILLI: Final = 1000


class QueueNow(NamedTuple):
    """A queue and what it and the queues below it hold."""

    queue: Queue
    allocated: Amounts


class QueueMetrics(Collector):
    """Quota and use of every queue, made when they are asked for.

    Args:
        queues: the queues now; nothing from a standby, whose leader has them already.
        prefix: before every name, without the underscore.
        labels: queue label -> metric label, whose value is the queue label's.
    """

    def __init__(
        self,
        queues: Callable[[], Iterable[QueueNow]],
        prefix: str = "kai",
        labels: Mapping[str, str] | None = None,
    ) -> None:
        self._queues = queues
        self._prefix = prefix
        self._labels = dict(sorted((labels or {}).items()))

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The present values."""
        names = (*_LABELS, *self._labels.values())
        families = {
            name: GaugeMetricFamily(f"{self._prefix}_{name}", text, labels=names)
            for name, text in _HELP.items()
        }
        for found in self._queues():
            queue = found.queue
            values = [queue.name, queue.name, queue.display_name]
            values += [queue.labels.get(label, "") for label in self._labels]
            for name, value in _values(found):
                families[name].add_metric(values, value)
        return families.values()


_HELP: Final = {
    "queue_info": "Queues",
    "queue_deserved_gpus": "Quota of GPUs, −1 = unlimited",
    "queue_quota_cpu_cores": "Quota of CPU, −1 = unlimited",
    "queue_quota_memory_bytes": "Quota of memory, −1 = unlimited",
    "queue_allocated_gpus": "GPUs that pods of the queue hold",
    "queue_allocated_cpu_cores": "CPU that pods of the queue hold",
    "queue_allocated_memory_bytes": "Memory that pods of the queue hold",
}


def _values(found: QueueNow) -> Iterable[tuple[str, float]]:
    queue, allocated = found
    gpu = next((allocated[name] for name in sorted(allocated) if name.endswith("/gpu")), 0)
    yield "queue_info", 1.0
    yield "queue_deserved_gpus", queue.gpu.quota
    yield "queue_quota_cpu_cores", _quota(queue.cpu.quota, 1 / _MILLI)
    yield "queue_quota_memory_bytes", _quota(queue.memory.quota, _MEGABYTE)
    yield "queue_allocated_gpus", _units(gpu)
    yield "queue_allocated_cpu_cores", _units(allocated.get(CPU, 0))
    yield "queue_allocated_memory_bytes", _units(allocated.get(MEMORY, 0))


def _quota(value: float, unit: float) -> float:
    return -1.0 if value == -1 else value * unit


def _units(amount: int) -> float:
    """Four decimals, as the reference."""
    return round(amount / MICRO, 4)
