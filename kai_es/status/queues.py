"""What is to be written of queues. Reference: pkg/queuecontroller (apis §2.6)."""

from collections.abc import Mapping
from typing import Any, Final

from kai_es.kube.objects import Queue
from kai_es.kube.parse import KINDS
from kai_es.ports.cluster import Resource
from kai_es.status.amounts import quantities
from kai_es.status.conditions import as_of_condition
from kai_es.status.patch import Patch, decoded, difference
from kai_es.status.tally import Sums

QUEUES: Final = Resource("Queue", KINDS["Queue"].api_version, "queues")


def totals_of(sums: Sums) -> dict[str, Any]:
    """`allocated`, `allocatedNonPreemptible` and `requested`; empty ones are left out."""
    found = {
        "allocated": quantities(sums.allocated),
        "allocatedNonPreemptible": quantities(sums.fixed),
        "requested": quantities(sums.requested),
    }
    return {name: amounts for name, amounts in found.items() if amounts}


def child_names(parents: Mapping[str, str]) -> dict[str, list[str]]:
    """Names of the queues below each queue, in order. `parents`: of every queue."""
    found: dict[str, list[str]] = {}
    for name in sorted(parents):
        found.setdefault(parents[name], []).append(name)
    return found


def queue_patch(
    queue: Queue, sums: Sums, children: list[str] | None, *, offset: int
) -> Patch | None:
    """What is to be written, None = everything says so already."""
    now = totals_of(sums)
    if children:
        now["childQueues"] = children
    changes = difference(decoded(queue.status.totals), now)
    if not changes:
        return None
    status = {**changes, "conditions": as_of_condition(queue.status.conditions, offset)}
    return Patch(QUEUES, "", queue.name, {"status": status}, "status")
