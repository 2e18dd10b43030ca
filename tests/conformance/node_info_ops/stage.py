"""A session on nodes and tasks as cases describe them."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from kai_es.events.decisions import CycleInputs
from kai_es.kube.devices import Device, DeviceClass, ResourceClaim, ResourceSlice
from kai_es.kube.labels import APP_LABEL, GPU, GPU_MICRO, RESERVATION_APP
from kai_es.kube.objects import GpuRequest, Node, Pod, PodGroup, Queue, QueueShare
from kai_es.scheduler.columns.nodes import KIND, NO_ROW, task_memory
from kai_es.scheduler.columns.sharing import ABSENT
from kai_es.scheduler.columns.sharing import Device as Shared
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.flags import Flags
from kai_es.scheduler.framework.fit import Fit
from kai_es.scheduler.framework.session import Session
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus
from tests.conformance.node_info_ops.amounts import amounts_of, spec_of
from tests.conformance.node_info_ops.objects import claim_of, pod_of

Case = Mapping[str, Any]
NOW_MS = 1_767_225_600_000
DRIVER = "gpu.nvidia.com"
COUNT_LABEL = "nvidia.com/gpu.count"


def status_name(status: TaskStatus) -> str:
    return "".join(word.capitalize() for word in status.name.split("_"))


STATUS = {status_name(status): status for status in TaskStatus}


def node_of_state(raw: Case, name: str = "") -> Node:
    """A node that offers what a case says."""
    labels = raw.get("labels", {})
    allocatable = amounts_of(raw["allocatable"])
    count = labels.get(COUNT_LABEL, "")
    return Node(
        uid=name or raw.get("name", "node"),
        name=name or raw.get("name", "node"),
        labels=labels,
        allocatable=allocatable,
        capacity=allocatable,
        gpu_memory_mib=raw.get("gpuMemoryMiB", 100) or 100,
        gpu_memory_synced=raw.get("gpuMemorySynced", True),
        gpu_count=int(count) if count.isdigit() else -1,
    )


def task_pod(raw: Case, name: str = "") -> tuple[Pod, list[ResourceClaim]]:
    """The pod of a task with what the task asks for, and its claims."""
    base = pod_of(raw.get("pod") or {})
    claims = raw.get("resourceClaims") or {}
    spec = spec_of(
        raw.get("resReq", {}),
        raw.get("requestType", "Regular"),
        resource_claims=tuple((one, one, "claim") for one in claims),
        legacy_mig=raw.get("legacyMig", False),
        node_selector=base.spec.node_selector,
        tolerations=base.spec.tolerations,
    )
    pod = Pod(
        uid=name or raw.get("uid") or raw.get("name", "task"),
        namespace=raw.get("namespace", base.namespace if "pod" in raw else ""),
        name=raw.get("name", "task"),
        labels=base.labels,
        nominated_node=base.nominated_node,
        spec=spec,
    )
    found, counts = [], raw.get("resReq", {}).get("draGpuCounts", {})
    for one, given in claims.items():
        found.append(_claim(pod.namespace, one, given, counts))
        counts = {}  # the first of several stands for all devices that the task asks for
    return pod, found


def _claim(namespace: str, name: str, given: Case, counts: Mapping[str, int]) -> ResourceClaim:
    requests = [
        {"name": "gpu", "exactly": {"deviceClassName": kind, "count": count}}
        for kind, count in counts.items()
    ]
    raw = {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"devices": {"requests": requests}},
        "status": given,
    }
    return claim_of(raw)


GROUP = PodGroup(uid="job", namespace="", name="job", queue="q", min_member=1)


class Stage:
    """Nodes, tasks on them and a session.

    n:     row of the first node.
    tasks: rows of the tasks that are not placed yet, in order.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        *,
        steps: Sequence[Case] = (),
        tasks: Sequence[Case] = (),
        pods: Sequence[Pod] = (),
        claims: Sequence[ResourceClaim] = (),
        classes: Sequence[DeviceClass] = (),
        dra_is_served: bool = True,
        group: PodGroup | None = None,
        sub_groups: Sequence[str] = (),
        dra_gpus: Mapping[str, int] | None = None,
        config: Config | None = None,
        flags: Flags = frozenset(),
    ) -> None:
        self.snapshot = snapshot = Snapshot()
        for node in nodes:
            snapshot.set_node(node, rv=1)
        for name, count in (dra_gpus or {}).items():
            self._offer(name, count)
        n_first = next((i for i, step in enumerate(steps) if "add" not in step), len(steps))
        for step in steps[:n_first]:
            self._store(step["add"], nodes[0].name)
        for device_class in classes:
            snapshot.set_device_class(device_class, rv=1)
        for claim in claims:
            snapshot.set_claim(claim, rv=1)
        snapshot.devices.served = dra_is_served
        waiting = [self._store(raw, "", f"waiting-{i}") for i, raw in enumerate(tasks)]
        for pod in pods:
            snapshot.set_pod(pod, rv=1, task=TaskState(status=TaskStatus.PENDING))
            waiting.append(pod.uid)
        if waiting:
            names = sub_groups or [""] * len(waiting)
            self._join(group or GROUP, dict(zip(waiting, names, strict=True)))
        for step in steps[n_first:]:
            if "add" in step:
                self._store(step["add"], "")
        config = config or Config(withheld=(), node_pool_key="")
        inputs = CycleInputs(shard="s", cycle=1, now_ms=NOW_MS, flags=tuple(sorted(flags)))
        self.session: Session = open_session(snapshot, config, inputs)
        self.n = self.session.nodes.columns.row[nodes[0].name] if nodes else NO_ROW
        self.tasks = [snapshot.pods[uid].row for uid in waiting]
        for step in steps[n_first:]:
            self._step(step)

    def _offer(self, node: str, count: int) -> None:
        """Devices that a driver offers on a node."""
        self.snapshot.set_device_class(DeviceClass(uid=DRIVER, name=DRIVER), rv=1)
        devices = tuple(Device(name=f"gpu-{i}") for i in range(count))
        offer = ResourceSlice(
            uid=node, name=node, driver=DRIVER, pool=node, node=node, devices=devices
        )
        self.snapshot.set_slice(offer, rv=1)

    def _join(self, group: PodGroup, sub_groups: Mapping[str, str]) -> None:
        """Make pods the members of a group, in a queue without limits."""
        share = QueueShare(quota=-1, limit=-1, weight=1)
        queue = Queue(uid="q", name=group.queue, cpu=share, memory=share, gpu=share)
        self.snapshot.set_queue(queue, rv=1)
        first = self.snapshot.pods[next(iter(sub_groups))].pod
        group = msgspec.structs.replace(group, namespace=first.namespace)
        self.snapshot.set_group(group, rv=1, state=GroupState())
        for uid, sub_group in sub_groups.items():
            row = self.snapshot.pods[uid]
            pod = msgspec.structs.replace(row.pod, group=group.name, sub_group=sub_group)
            self.snapshot.set_pod(pod, rv=2, task=row.state)

    def _store(self, raw: Case, node: str, name: str = "") -> str:
        pod, claims = task_pod(raw, name)
        for claim in claims:
            self.snapshot.set_claim(claim, rv=1)
        status = STATUS.get(raw.get("status", ""), TaskStatus.PENDING)
        state = TaskState(
            status=status if node else TaskStatus.PENDING,
            node=node,
            gpu_groups=tuple(raw.get("gpuGroups", ())) if node else (),
        )
        self.snapshot.set_pod(pod, rv=1, task=state)
        return pod.uid

    def _step(self, step: Case) -> None:
        """A task comes or goes while the session is open."""
        (action, raw), session = next(iter(step.items())), self.session
        row = self.snapshot.pods[raw["uid"]]
        entry = (KIND[STATUS[raw["status"]]], tuple(raw.get("gpuGroups", ())))
        before, after = (None, entry) if action == "add" else (entry, None)
        is_reservation = row.pod.labels.get(APP_LABEL) == RESERVATION_APP
        shape = _without_devices(row.shape) if is_reservation else row.shape
        demand = session.columns.demand(shape)
        kinds = [ABSENT if one is None else one[0] for one in (before, after)]
        session.nodes.change(session.journal, self.n, demand, *kinds)
        if shape.shared:
            capacity = session.nodes.columns.facts[self.n].gpu_memory
            session.nodes.change_shared(self.n, task_memory(shape, capacity), before, after)
        elif shape.dra:
            devices = self.snapshot.devices.devices_of(row.pod, row.state)
            parts = [None if one is None else (one[0], devices) for one in (before, after)]
            session.nodes.change_claimed(self.n, *parts)

    def write(self, n: int, raw: Case) -> None:
        """Give a node the amounts and shared devices that a case says."""
        nodes, vector = self.session.nodes, self.session.columns.index.vector
        idle, used, releasing = (
            vector(amounts_of(raw.get(k) or {})) for k in ("idle", "used", "releasing")
        )
        nodes.amounts[:, :, n] = np.stack((idle, idle + releasing, used))
        nodes._set_devices(n, shared_devices(raw.get("gpuSharing") or {}))
        if nodes.devices[n]:
            nodes.sharing.add(n)

    def fit(self, at: int = 0) -> Fit:
        """What a task needs against all nodes."""
        return self.session.fits.of(self.tasks[at])


def _without_devices(shape: Shape) -> Shape:
    """Of a reservation pod: its devices do not count."""
    requests = {name: amount for name, amount in shape.spec.requests.items() if name != GPU}
    return Shape(msgspec.structs.replace(shape.spec, requests=requests, gpu=GpuRequest()), -1)


def shared_devices(raw: Case) -> dict[str, Shared]:
    """Shared devices of a node, as written in a case."""
    allocated, releasing = (
        raw.get(f"{kind}SharedGpusMemory", {}) for kind in ("allocated", "releasing")
    )
    used = raw.get("usedSharedGpusMemory", {})
    marked = raw.get("releasingSharedGpus", {})
    names = list(dict.fromkeys([*used, *allocated, *releasing]))
    return {
        name: Shared(
            used.get(name, 0),
            allocated.get(name),
            releasing.get(name, 0),
            bool(marked.get(name)),
        )
        for name in names
    }


def shown_devices(devices: Mapping[str, Shared]) -> dict[str, Any]:
    """The same the other way."""
    return {
        "usedSharedGpusMemory": {name: one.used for name, one in devices.items()},
        "allocatedSharedGpusMemory": {
            name: one.allocated for name, one in devices.items() if one.allocated is not None
        },
        "releasingSharedGpusMemory": {name: one.releasing for name, one in devices.items()},
        "releasingSharedGpus": {name: True for name, one in devices.items() if one.marked},
    }


def gpus(micro: int) -> float:
    return micro / GPU_MICRO
