"""Limit and quota checks, with their texts and details."""

from collections.abc import Mapping
from typing import Any

from kai_es.kube.quantity import parse_quantity
from kai_es.scheduler.fairness import capacity
from kai_es.scheduler.fairness.capacity import QueueRoom, Refusal
from kai_es.scheduler.fairness.counters import gpu_on_node
from kai_es.scheduler.fairness.vectors import NOTHING, RESOURCE_NAMES, Vector, added
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.reasons import quota
from tests.conformance import build
from tests.conformance.build import FINE_UNITS, vector_of
from tests.conformance.fairness_ops import Input, Result, Run
from tests.conformance.fairness_ops.tables import QueueTable, table_of, vector


def _room(queue: Mapping[str, Any]) -> QueueRoom:
    return QueueRoom(
        deserved=vector(queue, "deserved"),
        limit=vector(queue, "maxAllowed"),
        allocated=vector(queue, "allocated"),
        non_preemptible=vector(queue, "allocatedNotPreemptible"),
    )


def _one(bound: str, used: str) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        queue, requested = case["queue"], vector_of(case["requested"], FINE_UNITS)
        resource = capacity.over(
            vector(queue, bound, FINE_UNITS), vector(queue, used, FINE_UNITS), requested
        )
        name = "" if resource is None else RESOURCE_NAMES[resource]
        return {"over": resource is not None, "resource": name}

    return run


class Checked:
    """The two checks on the queues of a case."""

    def __init__(self, case: Input) -> None:
        self.table: QueueTable = table_of(case["queues"])
        self.job = case["job"]
        self.preemptible = self.job.get("preemptibility") == "preemptible"
        self.path = self.table.path(self.job.get("queue", ""))

    def room(self, row: int) -> QueueRoom:
        return _room(self.table.queues[row])

    def limit(self, requested: Vector) -> Result:
        return self.shown(capacity.over_limit(self.path, self.room, requested), requested)

    def quota(self, requested: Vector) -> Result:
        refusal = None
        if not self.preemptible:
            refusal = capacity.non_preemptible_over_quota(self.path, self.room, requested)
        return self.shown(refusal, requested)

    def both(self, requested: Vector) -> Result:
        refusal = capacity.over_capacity(
            self.path, self.room, requested, preemptible=self.preemptible
        )
        return self.shown(refusal, requested)

    def shown(self, refusal: Refusal | None, requested: Vector) -> Result:
        if refusal is None:
            return {"schedulable": True}
        queue = self.table.queues[refusal.queue]
        details = quota.quota_details(
            quota.Asked(self.table.uids[refusal.queue], requested),
            quota.QuotaNumbers(*_room(queue), vector(queue, "request")),
            fixed=not self.preemptible,
        )
        return {
            "schedulable": False,
            "reason": refusal.rule.value,
            "message": _message(refusal, queue.get("name", "")),
            "details": _by_value(details),
        }


def _message(refusal: Refusal, queue: str) -> str:
    numbers = {"allocated": refusal.used, "requested": refusal.requested}
    if refusal.rule is capacity.Rule.OVER_LIMIT:
        return quota.over_limit_text(queue, refusal.resource, limit=refusal.bound, **numbers)
    return quota.over_quota_text(queue, refusal.resource, quota=refusal.bound, **numbers)


class Quantity(str):
    """A Kubernetes quantity; equal by value."""

    def __eq__(self, other: object) -> bool:
        values = (parse_quantity(str(one), what="case", field="quantity") for one in (self, other))
        return next(values) == next(values)

    __hash__ = str.__hash__


def _by_value(details: Any) -> Any:
    lists = details["queueDetails"]
    for name, value in lists.items():
        if isinstance(value, dict):
            lists[name] = {resource: Quantity(text) for resource, text in value.items()}
    return details


def _requested_by_job(case: Input) -> Vector:
    total = NOTHING
    for raw in case["tasksToAllocate"]:
        total = added(total, build.demand(raw.get("resReq") or {}, case.get("maxNodeGpuMemoryMiB")))
    return total


def job_over_capacity(case: Input, flags: Flags) -> Result:
    return Checked(case).both(_requested_by_job(case))


def job_over_quota(case: Input, flags: Flags) -> Result:
    return Checked(case).quota(_requested_by_job(case))


def task_on_node(case: Input, flags: Flags) -> Result:
    request = case["task"].get("resReq") or {}
    shape = build.shape_of(request)
    gpu = gpu_on_node(
        shape.spec.gpu,
        quota=shape.quota,
        dra=shape.dra,
        device_mib=case["node"].get("gpuMemoryMiB", 0),
        flags=flags,
    )
    return Checked(case).both((shape.fair[0], shape.fair[1], gpu))


OPS: dict[str, Run] = {
    "queueOverLimit": _one("maxAllowed", "allocated"),
    "queueNonPreemptibleOverQuota": _one("deserved", "allocatedNotPreemptible"),
    "overLimitCheck": lambda case, _flags: Checked(case).limit(vector_of(case["requested"])),
    "nonPreemptibleOverQuotaCheck": lambda case, _flags: Checked(case).quota(
        vector_of(case["requested"])
    ),
    "jobOverQueueCapacity": job_over_capacity,
    "nonPreemptibleJobOverQuota": job_over_quota,
    "taskOnNodeOverCapacity": task_on_node,
}
