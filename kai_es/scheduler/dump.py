"""Rows and raw objects as the reference's snapshot dump: the counterpart of `snapshot_file`.

Reference: pkg/scheduler/plugins/snapshot/snapshot.go (plugins §12.2).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from kai_es.events.decisions import ClaimGrant, ExtendedGrant, ZoneAmount
from kai_es.kube.devices import Allocation
from kai_es.scheduler.config import Config
from kai_es.scheduler.config_dump import configuration_dump, params_dump
from kai_es.scheduler.snapshot_file import KINDS
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.lifecycle import Request
from kai_es.snapshot.snapshot import PodRow, Snapshot
from kai_es.snapshot.status import TaskStatus

POOLED: Final = frozenset({"Node", "Queue", "PodGroup"})
"""Kinds of which a dump has the objects of the shard's node pool alone."""

Labels = Mapping[str, str]


def dump_of(
    config: Config,
    snapshot: Snapshot,
    objects: Callable[[str], Iterable[Any]],
    *,
    not_served: Collection[str] = (),
) -> dict[str, Any]:
    """The dump of a shard.

    Args:
        config: of the shard.
        snapshot: for what is decided and not yet in the objects: open bind requests.
        objects: kind -> its raw objects, as they are to stand in the dump.
        not_served: kinds that the cluster does not have.
    """
    raw: dict[str, Any] = {
        key: None if kind in not_served else list(objects(kind)) for key, kind in KINDS
    }
    raw["bindRequests"] = bind_requests(snapshot)
    return {
        "config": configuration_dump(config),
        "schedulerParams": params_dump(config),
        "rawObjects": raw,
        "discovery": {"serverVersion": None, "resources": None},
    }


def bind_requests(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Open bind requests as the objects that the reference has for them, by pod."""
    rows = (row for row in snapshot.pods.values() if row.state.status is TaskStatus.BINDING)
    ordered = sorted(rows, key=lambda row: (row.pod.namespace, row.pod.name, row.pod.uid))
    return [_bind_request(row) for row in ordered]


def _bind_request(row: PodRow) -> dict[str, Any]:
    pod, state = row.pod, row.state
    spec = bind_request_spec(pod.name, state)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": state.request_id,
            "ownerReferences": [owner],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def bind_request_spec(pod: str, granted: TaskState | Request) -> dict[str, Any]:
    """`spec` of the object that the reference has for a bind request. `pod`: its name."""
    spec: dict[str, Any] = {
        "podName": pod,
        "selectedNode": granted.node,
        "receivedResourceType": granted.received,
        "receivedGPU": {"count": granted.gpu_count, "portion": f"{granted.gpu_portion / 100:.2f}"},
    }
    if granted.gpu_groups:
        spec["selectedGPUGroups"] = list(granted.gpu_groups)
    if granted.claims:
        spec["resourceClaimAllocations"] = [_grant(one) for one in granted.claims]
    if granted.extended is not None:
        spec["extendedResourceClaimAllocation"] = _extended(granted.extended)
    if granted.zones:
        spec["predictedNUMAZones"] = [_zone(one) for one in granted.zones]
    return spec


def _zone(zone: ZoneAmount) -> dict[str, Any]:
    return {"zone": zone.zone, "amount": dict(zone.amount)}


def _grant(grant: ClaimGrant) -> dict[str, Any]:
    return {"name": grant.reference, "allocation": _allocation(grant.allocation)}


def _extended(grant: ExtendedGrant) -> dict[str, Any]:
    return {
        "allocation": _allocation(grant.allocation),
        "containerMappings": [
            {
                "containerName": one.container,
                "resourceName": one.resource,
                "requestName": one.request,
            }
            for one in grant.mappings
        ],
    }


def _allocation(allocation: Allocation) -> dict[str, Any]:
    results = []
    for one in allocation.devices:
        result: dict[str, Any] = {
            "request": one.request,
            "driver": one.driver,
            "pool": one.pool,
            "device": one.device,
        }
        if one.admin:
            result["adminAccess"] = True
        results.append(result)
    found: dict[str, Any] = {"devices": {"results": results}}
    if allocation.config:
        found["devices"]["config"] = allocation.config
    if allocation.node_selector is not None:
        found["nodeSelector"] = allocation.node_selector
    return found
