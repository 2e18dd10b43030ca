"""Shares of one queue, division among queues, order of two queues, cluster total."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kai_es.kube.labels import CPU_WORKER_LABEL, GPU_MICRO
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.fairness import order as queue_order
from kai_es.scheduler.fairness import shares, vectors
from kai_es.scheduler.fairness.division import Division
from kai_es.scheduler.fairness.settings import ProportionSettings
from kai_es.scheduler.fairness.vectors import NOTHING, Vector, added
from kai_es.scheduler.flags import Flags
from kai_es.snapshot.snapshot import Snapshot
from tests.conformance import build, rows
from tests.conformance.build import (
    FINE_UNITS,
    amount,
    at_ms,
    quantities_of,
    quantity,
    vector_of,
)
from tests.conformance.fairness_ops import Input, Result, Run
from tests.conformance.fairness_ops.reclaims import victim_groups
from tests.conformance.fairness_ops.tables import RESOURCES, allocatable, table_of, vector
from tests.conformance.job_ops.selections import to_allocate

UNIT = GPU_MICRO
"""One whole unit of every resource in `FINE_UNITS`."""

# -- division


def _division(case: Input, flags: Flags) -> tuple[Any, Division]:
    table = table_of(case["queues"])
    division = Division(
        priority=[queue.get("priority", 0) for queue in table.queues],
        created_ms=[at_ms(queue.get("createdAt")) for queue in table.queues],
        k_value=case.get("kValue", 0.0),
        flags=flags,
    )
    return table, division


def divide_resource(case: Input, flags: Flags) -> Result:
    table, division = _division(case, flags)
    r = RESOURCES.index(case["resource"])
    total = amount(case["total"], case["resource"], FINE_UNITS)
    fair = table.column("fairShare", r)
    left = division.divide_level(total, range(len(fair)), table.claims(r), UNIT, fair)
    return _divided(table, fair, left, case["resource"])


def divide_over_quota(case: Input, flags: Flags) -> Result:
    table, division = _division(case, flags)
    r = RESOURCES.index(case["resource"])
    fair = table.column("fairShare", r)
    left = amount(case["total"], case["resource"], FINE_UNITS)
    left = division.divide_over_quota(left, range(len(fair)), table.claims(r), UNIT, fair)
    return _divided(table, fair, left, case["resource"])


def _divided(table: Any, fair: list[int], left: int, resource: str) -> Result:
    given = (quantity(share, resource, FINE_UNITS) for share in fair)
    return {
        "remaining": quantity(left, resource, FINE_UNITS),
        "fairShare": dict(zip(table.uids, given, strict=True)),
    }


def divide_all(case: Input, flags: Flags) -> Result:
    table, division = _division(case, flags)
    total = vector_of(case["total"], FINE_UNITS)
    every = range(len(table.uids))
    fair = [[0] * len(every) for _ in RESOURCES]
    for r in range(3):
        division.divide_level(total[r], every, table.claims(r), UNIT, fair[r])
    return _shares(table, list(zip(*fair, strict=True)))


def hierarchical(case: Input, flags: Flags) -> Result:
    table, division = _division(case, flags)
    total = vector_of(case["total"], FINE_UNITS)
    fair = [
        division.divide_resource(total[r], table.claims(r), UNIT, table.roots, table.children)
        for r in range(3)
    ]
    return _shares(table, list(zip(*fair, strict=True)))


def _shares(table: Any, fair: list[Vector]) -> Result:
    return {
        "fairShare": {
            uid: quantities_of(share, FINE_UNITS)
            for uid, share in zip(table.uids, fair, strict=True)
        }
    }


# -- one queue


def _field(name: str) -> Run:
    return lambda case, _flags: {
        "value": quantities_of(vector(case["share"], name, FINE_UNITS), FINE_UNITS)
    }


def _requestable(case: Input, flags: Flags) -> Result:
    def one(block: Mapping[str, float], name: str) -> float:
        request = amount(block.get("request", 0), name, FINE_UNITS)
        limit = amount(block.get("maxAllowed", 0), name, FINE_UNITS)
        return quantity(shares.requestable(request, limit), name, FINE_UNITS)

    if "resourceShare" in case:
        return {"value": one(case["resourceShare"], "memory")}
    return {"value": {name: one(case["share"].get(name) or {}, name) for name in RESOURCES}}


def _allocatable(case: Input, flags: Flags) -> Result:
    share = case.get("share") or {"memory": case["resourceShare"]}
    found = quantities_of(allocatable(share, FINE_UNITS), FINE_UNITS)
    return {"value": found if "share" in case else found["memory"]}


def _dominant(case: Input, flags: Flags) -> Result:
    share = case["share"]
    total = vector_of(case.get("total"))
    used = vector(share, "allocated")
    return {"value": shares.dominant_share(used, allocatable(share), total)}


def _compare(case: Input, flags: Flags) -> Result:
    left, right = (amount(case.get(side, 0), "gpu") for side in ("left", "right"))
    return {"value": (left > right) - (left < right)}


def _on_vectors(function: Callable[[Vector, Vector], Any]) -> Run:
    def run(case: Input, flags: Flags) -> Result:
        left, right = (vector_of(case.get(side), FINE_UNITS) for side in ("left", "right"))
        value = function(left, right)
        return {"value": quantities_of(value, FINE_UNITS) if isinstance(value, tuple) else value}

    return run


# -- order


def order(case: Input, flags: Flags) -> Result:
    total = vector_of(case.get("totalResources"))
    left, right = (_key(case, side, total, flags) for side in ("left", "right"))
    return {"compare": 1 if right <= left else -1}


def _key(case: Input, side: str, total: Vector, flags: Flags) -> Any:
    queue = case[side]
    standing = queue_order.QueueStanding(
        deserved=vector(queue, "deserved"),
        fair_share=vector(queue, "fairShare"),
        allocatable=allocatable(queue),
        priority=queue.get("priority", 0),
        created_ms=at_ms(queue.get("createdAt")),
        identity=queue.get("uid", ""),
    )
    wanted = _wanted(case.get(f"{side}Job"), case.get("minNodeGpuMemoryMiB"), flags)
    freed = NOTHING
    for victim in case.get(f"{side}Victims") or ():
        allocated = victim.get("allocated") or {}
        freed = added(freed, build.plain_vector(allocated))
    allocated = vector(queue, "allocated")
    return queue_order.queue_key(standing, allocated, wanted, freed, total, flags)


def _wanted(job: Input | None, min_memory: int | None, flags: Flags) -> Vector:
    total = NOTHING
    if job is not None:
        for task in to_allocate(build.job_of(job), {}, flags):
            total = added(total, build.demand(task.request, min_memory))
    return total


# -- plugin


def _plugin_arguments(case: Input, flags: Flags) -> Result:
    settings = ProportionSettings.of(case["arguments"])
    return {
        "kValue": settings.k_value,
        "reclaimerSaturationMultiplier": settings.saturation_multiplier,
    }


def node_resources(case: Input, flags: Flags) -> Result:
    """What one node adds to the total that queues divide."""
    node = rows.node_of(case["node"], "n1")
    if case["restrictNodeScheduling"]:  # the reference's test does not filter nodes by worker label
        node = msgspec.structs.replace(node, labels={CPU_WORKER_LABEL: "", **node.labels})
    snapshot = Snapshot()
    snapshot.set_node(node, rv=1)
    for n, raw in enumerate(case["node"].get("pods", ())):
        state = rows.state_of(raw, "n1")
        snapshot.set_pod(rows.pod_of(raw, f"pod-{n}"), rv=1, task=state)
    restrict, scheduler = case["restrictNodeScheduling"], case["schedulerName"]
    columns = Columns(snapshot, Lens(restrict_nodes=restrict, scheduler_name=scheduler))
    columns.refresh(0)
    return {"resources": quantities_of(columns.nodes.total())}


DIVISION: dict[str, Run] = {
    "divideResource": divide_resource,
    "divideOverQuota": divide_over_quota,
    "divideAllResources": divide_all,
}

SHARES: dict[str, Run] = {
    **{
        name: _field(name)
        for name in (
            "fairShare",
            "deserved",
            "allocated",
            "allocatedNotPreemptible",
            "maxAllowed",
            "request",
        )
    },
    "requestable": _requestable,
    "allocatable": _allocatable,
    "dominantShare": _dominant,
    "compareQuantity": _compare,
    "quantities.add": _on_vectors(vectors.added),
    "quantities.sub": _on_vectors(vectors.subtracted),
    "quantities.less": _on_vectors(vectors.less_everywhere),
    "quantities.lessEqual": _on_vectors(vectors.fits),
    "quantities.lessInAtLeastOne": _on_vectors(vectors.less_somewhere),
}

PROPORTION: dict[str, Run] = {
    "hierarchicalFairShare": hierarchical,
    "pluginArguments": _plugin_arguments,
    "victimResourceGroups": victim_groups,
    "nodeResources": node_resources,
}
