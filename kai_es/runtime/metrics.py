"""/metrics of a process: gauges that are read from the parts when they are asked for."""

from collections.abc import Iterable, Sequence

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kai_es.runtime.part import Part


class PartsCollector(Collector):
    """`kai_es_<part>_<noun>_<unit>` from `Part.gauges`, and readiness of each part."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = tuple(parts)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The present values."""
        ready = GaugeMetricFamily("kai_es_part_ready", "1 = doing its work", labels=["part"])
        for part in self._parts:
            ready.add_metric([part.name], 0.0 if part.ready() else 1.0)
            for name, (text, value) in part.gauges.items():
                yield GaugeMetricFamily(f"kai_es_{part.name}_{name}", text, value=value())
        yield ready


def registry_of(parts: Sequence[Part]) -> CollectorRegistry:
    """The process's registry with the parts' gauges added."""
    REGISTRY.register(PartsCollector(parts))
    for part in parts:
        for collector in part.collectors:
            REGISTRY.register(collector)
    return REGISTRY
