"""The cluster of a case as a snapshot, and what carries over from round to round."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kai_es.kube.devices import (
    AllocatedDevice,
    Allocation,
    Consumer,
    Device,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from kai_es.kube.labels import GPU_MICRO, NUMA_OBSERVED
from kai_es.kube.objects import (
    GpuRequest,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    Queue,
    QueueShare,
    SubGroup,
    TopologyConstraint,
)
from kai_es.kube.topologies import NumaNode, NumaZone, Topology, TopologyLevel
from kai_es.scheduler.config import Config, PluginOption
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

NOW_MS = 1_780_000_000_000
MINUTE_MS = 60_000

STATUS = {status.name.replace("_", "").lower(): status for status in TaskStatus}
STARTED = {TaskStatus.ALLOCATED, TaskStatus.BINDING, TaskStatus.BOUND, TaskStatus.RUNNING}

Case = Mapping[str, Any]


@dataclass(slots=True)
class Carried:
    """What a task keeps from one round to the next."""

    status: TaskStatus
    node: str = ""
    groups: tuple[str, ...] = ()


class World:
    """A case's cluster; `store` writes the carried state into the snapshot."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.snapshot = Snapshot()
        self.tasks: dict[str, Carried] = {}
        self.job_of: dict[str, Case] = {}
        for priority in {job["priority"] for job in case["jobs"]}:
            cls = PriorityClass(uid=f"p{priority}", name=f"p{priority}", value=priority)
            self.snapshot.set_priority_class(cls, rv=1)
        for node in case["nodes"]:
            self.snapshot.set_node(a_node(node), rv=1)
            if "numa" in node:
                self.snapshot.set_object(a_numa_node(node), rv=1)
        for queue in case["queues"]:
            self.snapshot.set_queue(a_queue(queue), rv=1)
        for topology in case["topologies"]:
            levels = tuple(TopologyLevel(label) for label in topology["levels"])
            name = topology["name"]
            self.snapshot.set_object(Topology(uid=name, name=name, levels=levels), rv=1)
        for job in case["jobs"]:
            for task in job["tasks"]:
                self.job_of[task["name"]] = job
                self.tasks[task["name"]] = Carried(
                    STATUS[task["status"].lower()],
                    task["node"] or "",
                    tuple(task.get("gpu_groups") or ()),
                )

        self._store_offers(case.get("dra") or {})
        self.claims: dict[str, ResourceClaim] = {
            raw["name"]: a_claim(raw) for raw in (case.get("dra") or {}).get("resource_claims", ())
        }

    def _store_offers(self, dra: Case) -> None:
        for name in dra.get("device_classes", ()):
            self.snapshot.set_device_class(DeviceClass(uid=name, name=name), rv=1)
        for raw in dra.get("resource_slices", ()):
            self.snapshot.set_slice(a_slice(raw), rv=1)

    def store(self) -> None:
        """The rows of the next session."""
        for claim in self.claims.values():
            self.snapshot.set_claim(claim, rv=1)
        for index, job in enumerate(self.case["jobs"]):
            started = any(self.tasks[t["name"]].status in STARTED for t in job["tasks"])
            stale = job.get("stale_for_seconds")
            state = GroupState(
                last_start_ms=NOW_MS - MINUTE_MS if started else 0,
                stale_since_ms=NOW_MS - 1000 * stale if stale is not None else 0,
            )
            self.snapshot.set_group(a_group(job, index), rv=1, state=state)
            for task in job["tasks"]:
                kept = self.tasks[task["name"]]
                shared = set(task["requests"]) & {"gpu_fraction", "gpu_memory_mib"}
                self.snapshot.set_pod(
                    a_pod(job, task),
                    rv=1,
                    task=TaskState(
                        status=kept.status,
                        node=kept.node,
                        gpu_groups=kept.groups if shared and kept.node else (),
                    ),
                )


def config_of(case: Case) -> Config:
    raw = case["config"]
    values: dict[str, Any] = {}
    if raw["plugins"] is not None:
        values["plugins"] = tuple(
            PluginOption(name=p["name"], arguments=p["arguments"]) for p in raw["plugins"]
        )
    elif any("numa" in node for node in case["nodes"]):
        values["plugins"] = (*Config().plugins, PluginOption(name="numa"))
    return Config(
        node_pool_key="",
        withheld=(),
        max_consolidation_preemptees=-1,
        use_scheduling_signatures=False,
        staleness_grace_ms=1000 * raw["staleness_grace_period_seconds"],
        **values,
    )


def a_node(raw: Case) -> Node:
    allocatable = raw["allocatable"]
    amounts = {
        "cpu": allocatable["cpu_millicores"],
        "memory": allocatable["memory_bytes"],
        "gpu": allocatable["gpus"] * GPU_MICRO,
        "pods": allocatable["pods"],
        **allocatable.get("mig", {}),
    }
    count = raw["labels"].get("nvidia.com/gpu.count", "")
    return Node(
        uid=raw["name"],
        name=raw["name"],
        labels=raw["labels"],
        allocatable=amounts,
        capacity={**amounts, "gpu": raw["capacity_gpus"] * GPU_MICRO},
        gpu_memory_mib=raw["gpu_memory_mib"],
        gpu_memory_synced=raw.get("gpu_memory_synced", True),
        gpu_count=int(count) if count.isdigit() else -1,
    )


def a_claim(raw: Case) -> ResourceClaim:
    asked, status = raw["request"], raw.get("status") or {}
    devices = tuple(
        AllocatedDevice(one["request"], one["driver"], one["pool"], one["device"])
        for one in status.get("allocated_devices") or ()
    )
    users = [
        Consumer(one["resource"], one["name"], one["uid"])
        for one in status.get("reserved_for") or ()
    ]
    others = range(status.get("reserved_for_other_pods") or 0)
    users += [Consumer("pods", f"other-{n}", f"other-{n}") for n in others]
    return ResourceClaim(
        uid=f"claim-{raw['name']}",
        namespace=raw["namespace"],
        name=raw["name"],
        labels=raw["labels"],
        requests=(
            DeviceRequest(
                name=asked["name"],
                device_class=asked["device_class"],
                mode=asked["allocation_mode"],
                count=asked["count"],
            ),
        ),
        allocation=Allocation(devices=devices) if devices else None,
        reserved_for=tuple(users),
    )


def a_slice(raw: Case) -> ResourceSlice:
    return ResourceSlice(
        uid=raw["name"],
        name=raw["name"],
        driver=raw["driver"],
        pool=raw["pool"],
        n_slices=raw["pool_slice_count"],
        node=raw["node"],
        devices=tuple(Device(name=one["name"], capacity=one["capacity"]) for one in raw["devices"]),
    )


def a_numa_node(raw: Case) -> NumaNode:
    layout = raw["numa"]
    return NumaNode(
        uid=raw["name"],
        name=raw["name"],
        policy=layout["policy"],
        scope=layout["scope"],
        zones=tuple(
            NumaZone(
                name=zone["name"],
                allocatable={"cpu": zone["allocatable"]["cpu_millicores"]},
                available={"cpu": zone["available"]["cpu_millicores"]},
            )
            for zone in layout["zones"]
        ),
    )


def a_queue(raw: Case) -> Queue:
    def share(part: Case) -> QueueShare:
        return QueueShare(
            quota=part["quota"], limit=part["limit"], weight=part["over_quota_weight"]
        )

    min_runtime = raw.get("reclaim_min_runtime_seconds")
    return Queue(
        uid=raw["name"],
        name=raw["name"],
        parent=raw["parent"] or "",
        priority=raw["priority"],
        created_ms=NOW_MS + MINUTE_MS * raw["created_offset_minutes"],
        gpu=share(raw["gpu"]),
        cpu=share(raw["cpu_millicores"]),
        memory=share(raw["memory_mb"]),
        reclaim_min_runtime_ms=None if min_runtime is None else 1000 * min_runtime,
    )


def a_group(job: Case, index: int) -> PodGroup:
    root = job["sub_groups"]
    grace = job.get("staleness_grace_period_seconds")
    plain = not root["children"] and [p["name"] for p in root["pod_sets"]] == ["default"]
    plain = plain and root["pod_sets"][0]["topology"] is None
    return PodGroup(
        uid=job["name"],
        namespace=job["namespace"],
        name=job["name"],
        created_ms=NOW_MS - MINUTE_MS * job["created_minutes_ago"] + index,
        queue=job["queue"],
        priority_class=f"p{job['priority']}",
        preemptibility=job["preemptibility"],
        preemption_delay_ms=1000 * job.get("preemption_delay_seconds", 0),
        staleness_grace_ms=None if grace is None else 1000 * grace,
        min_member=root["pod_sets"][0]["min_member"] if plain else None,
        min_sub_group=root["min_sub_group"],
        topology=_constraint(root["topology"]),
        sub_groups=() if plain else tuple(_sub_groups(root, None)),
    )


def _sub_groups(group: Case, parent: str | None) -> list[SubGroup]:
    found = [
        SubGroup(
            name=pod_set["name"],
            parent=parent,
            min_member=pod_set["min_member"],
            topology=_constraint(pod_set["topology"]),
        )
        for pod_set in group["pod_sets"]
    ]
    for child in group["children"]:
        found.append(
            SubGroup(
                name=child["name"],
                parent=parent,
                min_sub_group=child["min_sub_group"],
                topology=_constraint(child["topology"]),
            )
        )
        found += _sub_groups(child, child["name"])
    return found


def _constraint(raw: Case | None) -> TopologyConstraint | None:
    if raw is None:
        return None
    return TopologyConstraint(
        topology=raw["topology"],
        required=raw["required_level"] or "",
        preferred=raw["preferred_level"] or "",
    )


def a_pod(job: Case, task: Case) -> Pod:
    labels = {"job-name": task["name"], **task.get("labels", {})}
    if "order_priority" in task:
        labels["kai.scheduler/task-priority"] = str(task["order_priority"])
    return Pod(
        uid=task["name"],
        namespace=job["namespace"],
        name=task["name"],
        phase="Pending",
        group=job["name"],
        sub_group=task.get("sub_group") or "",
        labels=labels,
        annotations=_zones(task),
        spec=a_spec(job, task),
    )


def a_spec(job: Case, task: Case) -> PodSpec:
    asked = task["requests"]
    requests = {
        "cpu": asked["cpu_millicores"],
        "memory": asked["memory_bytes"],
        "pods": 1,
    }
    gpu, kind = GpuRequest(), "Regular"
    devices = asked.get("gpu_devices", 1)
    if "gpu_fraction" in asked:
        gpu, kind = GpuRequest(count=devices, portion=asked["gpu_fraction"]), "Fraction"
    elif "gpu_memory_mib" in asked:
        gpu, kind = GpuRequest(count=devices, memory_mib=asked["gpu_memory_mib"]), "GpuMemory"
    elif "mig" in asked:
        gpu, kind = GpuRequest(mig=asked["mig"]), "MigInstance"
        requests |= asked["mig"]
    elif asked["gpus"]:
        gpu = GpuRequest(count=asked["gpus"], portion=1.0)
        requests["gpu"] = asked["gpus"] * GPU_MICRO
    requests = {name: amount for name, amount in requests.items() if amount}
    return PodSpec(
        requests=requests,
        gpu=gpu,
        request_type=kind,
        legacy_mig=task.get("legacy_mig", False),
        affinity=_affinity(task),
        claims=tuple(task.get("persistent_volume_claims") or ()),
        resource_claims=tuple((name, name, "claim") for name in task.get("resource_claims") or ()),
        guaranteed=job.get("qos_class") == "Guaranteed",
        scheduler="kai-scheduler",
        priority=job["priority"],
    )


def _zones(task: Case) -> dict[str, str]:
    if "numa_placement_observed" not in task:
        return {}
    record = [
        {"zone": part["zone"], "amount": {"cpu": f"{part['cpu_millicores']}m"}}
        for part in task["numa_placement_observed"]
    ]
    return {NUMA_OBSERVED: json.dumps(record)}


def _affinity(task: Case) -> Any:
    found: dict[str, Any] = {}
    if "node_affinity" in task:
        term = {"matchExpressions": [task["node_affinity"]]}
        found["nodeAffinity"] = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    for key, name in (("pod_affinity", "podAffinity"), ("pod_anti_affinity", "podAntiAffinity")):
        if key in task:
            found[name] = {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": task[key]["topology_key"],
                        "labelSelector": {"matchLabels": task[key]["match_labels"]},
                    }
                ]
            }
    return found or None
