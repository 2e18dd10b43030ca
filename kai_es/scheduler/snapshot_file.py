"""The reference's snapshot dump as rows: `config`, `schedulerParams`, `rawObjects`.

Reference: pkg/scheduler/plugins/snapshot/snapshot.go (plugins §12.2).
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kai_es.events.decisions import ClaimGrant, ExtendedGrant
from kai_es.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from kai_es.kube.errors import InvalidObjectError
from kai_es.kube.objects import Node, Pod, PodGroup, PriorityClass, Queue
from kai_es.kube.parse import parse
from kai_es.kube.parse_devices import parse_allocation
from kai_es.kube.times import time_ms_or_unset
from kai_es.scheduler.config import Config
from kai_es.scheduler.config_file import config_of
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.lifecycle import Request, Sighting, task_state
from kai_es.snapshot.snapshot import Snapshot

HOUR_MS: Final = 3_600_000

KINDS: Final = (
    ("nodes", "Node"),
    ("queues", "Queue"),
    ("priorityClasses", "PriorityClass"),
    ("deviceClasses", "DeviceClass"),
    ("resourceSlices", "ResourceSlice"),
    ("resourceClaims", "ResourceClaim"),
    ("podGroups", "PodGroup"),
    ("pods", "Pod"),
    ("namespaces", "Namespace"),
    ("topologies", "Topology"),
    ("nodeResourceTopologies", "NodeResourceTopology"),
    ("configMaps", "ConfigMap"),
    ("persistentVolumes", "PersistentVolume"),
    ("persistentVolumeClaims", "PersistentVolumeClaim"),
    ("storageClasses", "StorageClass"),
    ("csiDrivers", "CSIDriver"),
    ("csiStorageCapacities", "CSIStorageCapacity"),
)
"""Arrays of `rawObjects` in the order in which they are read, and their kinds. The reference has no
namespaces in it, and needs none to read it."""
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}")


class SnapshotFileError(ValueError):
    """A dump that cannot be used; the text names the part and what would be right."""


class Loaded(NamedTuple):
    """A dump as rows.

    parked:  objects that could not be parsed, with the reason; they are left out.
    now_ms:  an hour after the newest time in the file.
    """

    snapshot: Snapshot
    config: Config
    parked: tuple[str, ...]
    now_ms: int


def load_dump(dump: Mapping[str, Any]) -> Loaded:
    """The rows of a dump.

    Raises:
        SnapshotFileError: a part is missing or of the wrong type.
        ConfigError: its configuration makes no sense.
    """
    raw = dump.get("rawObjects")
    if not isinstance(raw, Mapping):
        raise SnapshotFileError("no object rawObjects: want a dump made by /get-snapshot")
    config = config_of(dump.get("config") or {}, dump.get("schedulerParams") or {})
    config = dataclasses.replace(config, withheld=())  # nothing is bound from a file
    snapshot, parked = Snapshot(), []
    requests = _bind_requests(raw.get("bindRequests") or ())
    for key, kind in KINDS:
        for one in raw.get(key) or ():
            try:
                _store(snapshot, parse(kind, one), requests)
            except InvalidObjectError as exc:
                parked.append(str(exc))
    newest = max((time_ms_or_unset(text) for text in _times(raw)), default=0)
    return Loaded(snapshot, config, tuple(sorted(parked)), newest + HOUR_MS)


def _store(snapshot: Snapshot, obj: Any, requests: Mapping[str, Request]) -> None:
    if isinstance(obj, Node):
        snapshot.set_node(obj, rv=1)
    elif isinstance(obj, Queue):
        snapshot.set_queue(obj, rv=1)
    elif isinstance(obj, PriorityClass):
        snapshot.set_priority_class(obj, rv=1)
    elif isinstance(obj, DeviceClass):
        snapshot.set_device_class(obj, rv=1)
    elif isinstance(obj, ResourceSlice):
        snapshot.set_slice(obj, rv=1)
    elif isinstance(obj, ResourceClaim):
        snapshot.set_claim(obj, rv=1)
    elif isinstance(obj, PodGroup):
        state = GroupState(
            stale_since_ms=obj.stale_since_ms,
            last_start_ms=obj.last_start_ms,
            last_eviction_ms=obj.last_eviction_ms,
        )
        snapshot.set_group(obj, rv=1, state=state)
    elif not isinstance(obj, Pod):
        snapshot.set_object(obj, rv=1)
    elif obj.phase != "Failed":  # the reference's pod cache has none
        request = requests.get(f"{obj.namespace}/{obj.name}")
        mine = request is not None and request.pod_uid in ("", obj.uid)
        known = (request,) if request is not None and mine else ()
        snapshot.set_pod(obj, rv=1, task=task_state(Sighting(obj), known))


def _bind_requests(raw: Any) -> dict[str, Request]:
    """Usable bind requests by pod: one that failed for good is none (scheduler-core §4.5)."""
    found: dict[str, Request] = {}
    for one in raw:
        meta, spec = one.get("metadata") or {}, one.get("spec") or {}
        status = one.get("status") or {}
        limit = spec.get("backoffLimit")
        failed = status.get("phase") == "Failed" and (
            limit is None or (status.get("failedAttempts") or 0) >= limit
        )
        if failed:
            continue
        owners = [o.get("uid", "") for o in meta.get("ownerReferences") or () if o.get("uid")]
        key = f"{meta.get('namespace', '')}/{spec.get('podName', '')}"
        received = spec.get("receivedGPU") or {}
        found[key] = Request(
            id=f"file/0/{owners[0] if owners else key}",
            shard="file",
            cycle=0,
            decided_ms=0,
            pod_uid=owners[0] if owners else "",
            group_uid="",
            node=spec.get("selectedNode", ""),
            node_uid="",
            received=spec.get("receivedResourceType", ""),
            gpu_count=int(received.get("count") or 0),
            gpu_portion=round(float(received.get("portion") or 0) * 100),
            gpu_groups=tuple(spec.get("selectedGPUGroups") or ()),
            claims=_grants(spec.get("resourceClaimAllocations") or ()),
            extended=_extended(spec.get("extendedResourceClaimAllocation") or {}),
        )
    return found


def _grants(raw: Any) -> tuple[ClaimGrant, ...]:
    """Devices of claims; which claim a reference means, the pod says."""
    return tuple(
        ClaimGrant(one.get("name", ""), "", "", parse_allocation(one["allocation"]))
        for one in raw
        if one.get("allocation")
    )


def _extended(raw: Mapping[str, Any]) -> ExtendedGrant | None:
    """Devices of extended resources; what a cycle reads of them is which."""
    allocation = raw.get("allocation")
    return ExtendedGrant(parse_allocation(allocation), (), ()) if allocation else None


def _times(raw: Any) -> Iterator[str]:
    """Every text in a dump that starts like a time."""
    if isinstance(raw, Mapping):
        for value in raw.values():
            yield from _times(value)
    elif isinstance(raw, list):
        for value in raw:
            yield from _times(value)
    elif isinstance(raw, str) and _TIME.match(raw):
        yield raw
