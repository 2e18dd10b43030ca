"""The queues of a case as rows, in order of their uids."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kai_es.scheduler.fairness import shares
from kai_es.scheduler.fairness.division import Claims
from kai_es.scheduler.fairness.reclaim import QueueBook
from kai_es.scheduler.fairness.vectors import Vector
from tests.conformance import build
from tests.conformance.build import FINE_UNITS, QUEUE_UNITS, Units

RESOURCES = ("cpu", "memory", "gpu")


def vector(queue: Mapping[str, Any], field: str, units: Units = QUEUE_UNITS) -> Vector:
    """One field of all resource blocks of a queue."""
    blocks = {name: (queue.get(name) or {}).get(field, 0) for name in RESOURCES}
    return build.vector_of(blocks, units)


def usage(queue: Mapping[str, Any], resource: str) -> float:
    return (queue.get(resource) or {}).get("usage", 0.0)


def weight(queue: Mapping[str, Any], resource: str) -> float:
    return (queue.get(resource) or {}).get("overQuotaWeight", 0.0)


def allocatable(queue: Mapping[str, Any], units: Units = QUEUE_UNITS) -> Vector:
    deserved, fair = vector(queue, "deserved", units), vector(queue, "fairShare", units)
    return shares.allocatable_share(deserved, fair, vector(queue, "maxAllowed", units))


def book(queue: Mapping[str, Any]) -> QueueBook:
    """A queue for rules that only compare."""
    return QueueBook(
        deserved=vector(queue, "deserved", FINE_UNITS),
        fair_share=vector(queue, "fairShare", FINE_UNITS),
        allocatable=allocatable(queue, FINE_UNITS),
        allocated=vector(queue, "allocated", FINE_UNITS),
        non_preemptible=vector(queue, "allocatedNotPreemptible", FINE_UNITS),
    )


@dataclass
class QueueTable:
    """uids, parents (−1 = root), children and the queues themselves, by row."""

    uids: list[str]
    queues: list[Mapping[str, Any]]
    parents: list[int]
    children: list[list[int]]
    roots: list[int]

    def path(self, uid: str) -> tuple[int, ...]:
        """Rows from a queue upwards; empty if it is unknown."""
        if uid not in self.uids:
            return ()
        row, path = self.uids.index(uid), []
        while row >= 0:
            path.append(row)
            row = self.parents[row]
        return tuple(path)

    def column(self, field: str, resource: int) -> list[int]:
        """One field for rules that only divide."""
        return [vector(queue, field, FINE_UNITS)[resource] for queue in self.queues]

    def claims(self, resource: int) -> Claims:
        name = RESOURCES[resource]
        return Claims(
            deserved=self.column("deserved", resource),
            limit=self.column("maxAllowed", resource),
            weight=[weight(queue, name) for queue in self.queues],
            request=self.column("request", resource),
            usage=[usage(queue, name) for queue in self.queues],
        )


def table_of(raw: Mapping[str, Any]) -> QueueTable:
    """Queues by their map key; that is their uid."""
    uids = sorted(raw)
    queues = [raw[uid] for uid in uids]
    row = {uid: n for n, uid in enumerate(uids)}
    parents = [row.get(queue.get("parent") or "", -1) for queue in queues]
    children: list[list[int]] = [[] for _ in uids]
    for n, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(n)
    roots = [n for n, parent in enumerate(parents) if parent < 0]
    return QueueTable(uids, queues, parents, children, roots)
