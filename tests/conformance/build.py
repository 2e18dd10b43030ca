"""Shapes of the fairness and jobs cases (their README) as production values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.kube.objects import GpuRequest, PodSpec, TopologyConstraint
from kai_es.kube.times import duration_ms, time_ms
from kai_es.scheduler.fairness.counters import memory_in_devices
from kai_es.scheduler.fairness.vectors import Vector
from kai_es.scheduler.jobs.tree import JobTree, Member, PodSet, SubGroupSet, number_leaves
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.status import TaskStatus

Units = Mapping[str, int]

STATUS = {status.name.replace("_", "").lower(): status for status in TaskStatus}
QUEUE_UNITS = {"cpu": 1, "memory": 1, "gpu": GPU_MICRO}
"""Amounts of one unit of a case, by the resource's name there."""
FINE_UNITS = dict.fromkeys(QUEUE_UNITS, GPU_MICRO)
"""For rules that only compare or divide: cases have fractions of every resource."""


def status_of(name: str) -> TaskStatus:
    return STATUS[name.lower()]


def status_name(status: TaskStatus) -> str:
    return status.name.replace("_", " ").title().replace(" In ", "In").replace(" ", "")


def ms_of(duration: str | None) -> int | None:
    return None if duration is None else duration_ms(duration, what="case", field="duration")


def at_ms(time: str | None) -> int:
    return time_ms(time, what="case", field="time")


def time_of(ms: int | None) -> str | None:
    """As cases write a time; 0 and None = unset."""
    if not ms:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Duration(int):
    """Milliseconds that equal any text of the same duration."""

    def __eq__(self, other: object) -> bool:
        return int(self) == (ms_of(other) if isinstance(other, str) else other)

    __hash__ = int.__hash__


def raw_group(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A pod group of a case with the metadata that every real one has."""
    metadata = {"name": "group", "namespace": "ns", "uid": "uid", **raw.get("metadata", {})}
    return {**raw, "metadata": metadata}


def raw_pod(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A pod of a case with what every real one has."""
    return {
        "status": {"phase": "Pending"},
        **raw,
        "spec": {"containers": [], **raw.get("spec", {})},
    }


def raw_queue(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A queue of a case with the metadata that every real one has."""
    return {**raw, "metadata": {"uid": "uid", **raw["metadata"]}}


def micro(devices: float) -> int:
    return round(devices * GPU_MICRO)


def amount(value: float, resource: str, units: Units = QUEUE_UNITS) -> int:
    """A quantity of a case as amount; −1 = unlimited."""
    return UNLIMITED if value == -1 else round(value * units[resource])


def quantity(value: int, resource: str, units: Units = QUEUE_UNITS) -> float:
    """An amount as the case writes it."""
    return -1 if value >= UNLIMITED else value / units[resource]


def vector_of(quantities: Mapping[str, float] | None, units: Units = QUEUE_UNITS) -> Vector:
    """{cpu, memory, gpu} as a vector."""
    given = quantities or {}
    return (
        amount(given.get("cpu", 0), "cpu", units),
        amount(given.get("memory", 0), "memory", units),
        amount(given.get("gpu", 0), "gpu", units),
    )


def quantities_of(vector: Sequence[int], units: Units = QUEUE_UNITS) -> dict[str, float]:
    names = ("cpu", "memory", "gpu")
    return {name: quantity(value, name, units) for name, value in zip(names, vector, strict=True)}


def gpu_request(resources: Mapping[str, Any]) -> GpuRequest:
    return GpuRequest(
        count=resources.get("gpuCount", 0),
        portion=resources.get("gpuPortion", 0.0),
        memory_mib=resources.get("gpuMemoryMiB", 0),
        mig=resources.get("mig", {}),
        dra=resources.get("draGpuCounts", {}),
    )


def shape_of(resources: Mapping[str, Any], request_type: str = "") -> Shape:
    """A request (`resReq`) as the shape of a task that has it."""
    gpu = gpu_request(resources)
    by_memory = gpu.memory_mib > 0 and gpu.portion == 0
    spec = PodSpec(
        requests={
            "cpu": resources.get("milliCpu", 0),
            "memory": resources.get("memory", 0),
            **resources.get("scalars", {}),
        },
        gpu=gpu,
        request_type=request_type or ("GpuMemory" if by_memory else "Regular"),
    )
    return Shape(spec, 0)


def demand(resources: Mapping[str, Any], device_mib: int | None) -> Vector:
    """What a pending task weighs in its queue; GPU memory by devices of that size."""
    shape = shape_of(resources)
    cpu, memory, gpu = shape.fair
    return cpu, memory, gpu + memory_in_devices(shape.memory_mib, device_mib)


def plain_vector(raw: Mapping[str, Any]) -> Vector:
    """A bundle with `gpus` (or a request's GPU fields), `milliCpu` and `memory`."""
    cpu, memory, gpu = shape_of(raw).fair
    return cpu, memory, gpu + micro(raw.get("gpus", 0))


@dataclass
class CaseTask:
    """One task of a case."""

    uid: str
    name: str
    namespace: str
    sub_group: str
    status: TaskStatus
    virtual: bool
    request: dict[str, Any]
    accepted: dict[str, Any]
    labels: dict[str, str] = field(default_factory=dict)
    node: str = ""

    @property
    def gpu(self) -> GpuRequest:
        return gpu_request(self.request)

    @property
    def accepted_gpu(self) -> GpuRequest:
        return gpu_request(self.accepted)


def task_of(raw: Mapping[str, Any], sub_group: str = "") -> CaseTask:
    return CaseTask(
        uid=raw.get("uid", ""),
        name=raw.get("name", ""),
        namespace=raw.get("namespace", ""),
        sub_group=raw.get("subGroup", sub_group),
        status=status_of(raw.get("status", "Pending")),
        virtual=raw.get("virtual", False),
        request=raw.get("resReq") or {},
        accepted=raw.get("acceptedResource") or {},
        labels=raw.get("labels") or {},
        node=raw.get("nodeName", ""),
    )


def constraint_of(raw: Mapping[str, str] | None) -> TopologyConstraint | None:
    if not raw or not raw.get("topology"):
        return None
    return TopologyConstraint(
        topology=raw["topology"],
        required=raw.get("requiredLevel", ""),
        preferred=raw.get("preferredLevel", ""),
    )


@dataclass
class CaseJob:
    """A job of a case: its tree and the tasks of each leaf, by uid."""

    tree: JobTree
    tasks: tuple[tuple[CaseTask, ...], ...]
    raw_leaves: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def counts(self, statuses: frozenset[TaskStatus]) -> list[int]:
        return [sum(task.status in statuses for task in tasks) for tasks in self.tasks]

    def all_tasks(self) -> list[CaseTask]:
        return [task for tasks in self.tasks for task in tasks]


def job_of(raw: Mapping[str, Any] | None) -> CaseJob:
    """A job with `subGroups` (name → minAvailable, tasks) and perhaps `subGroupTree`."""
    raw = raw or {}
    leaves = raw.get("subGroups") or {}
    tree = raw.get("subGroupTree") or {"podSets": sorted(leaves)}

    def member(node: Any) -> Member:
        if isinstance(node, str):
            return PodSet(node, leaves[node].get("minAvailable", 0), -1)
        below = [member(child) for child in (*node.get("groups", ()), *node.get("podSets", ()))]
        below.sort(key=lambda child: child.name)
        return SubGroupSet(node.get("name", ""), tuple(below), node.get("minSubGroup"))

    root = member(tree)
    assert isinstance(root, SubGroupSet)
    return _with_tasks(root, {name: leaf.get("tasks") or () for name, leaf in leaves.items()})


def tree_of_case(raw: Mapping[str, Any]) -> CaseJob:
    """A tree given on its own, leaves in full. Leaves without a name get one by place."""
    tasks: dict[str, Sequence[Mapping[str, Any]]] = {}
    raw_leaves: dict[str, Mapping[str, Any]] = {}

    def member(node: Mapping[str, Any], path: str, *, is_leaf: bool) -> Member:
        name, topology = node.get("name", path), constraint_of(node.get("topologyConstraint"))
        if is_leaf:
            tasks[name] = node.get("tasks") or ()
            raw_leaves[name] = node
            return PodSet(name, node.get("minAvailable", 0), -1, topology)
        below = [
            member(child, f"{path}/{n}{kind}", is_leaf=kind == "p")
            for kind, children in (("g", "groups"), ("p", "podSets"))
            for n, child in enumerate(node.get(children, ()))
        ]
        below.sort(key=lambda child: child.name)
        return SubGroupSet(node.get("name", ""), tuple(below), node.get("minSubGroup"), topology)

    root = member(raw, "", is_leaf=False)
    assert isinstance(root, SubGroupSet)
    job = _with_tasks(root, tasks)
    job.raw_leaves = raw_leaves
    return job


def leaf_of_case(raw: Mapping[str, Any]) -> CaseJob:
    """One pod set as the only leaf of a job."""
    name = raw.get("name", "default")
    leaf = PodSet(
        name, raw.get("minAvailable", 0), -1, constraint_of(raw.get("topologyConstraint"))
    )
    return _with_tasks(SubGroupSet("", (leaf,)), {name: raw.get("tasks") or ()})


def _with_tasks(root: SubGroupSet, raw: Mapping[str, Sequence[Mapping[str, Any]]]) -> CaseJob:
    tree = number_leaves(root)
    tasks = (
        sorted((task_of(task, leaf.name) for task in raw.get(leaf.name, ())), key=_uid)
        for leaf in tree.leaves
    )
    return CaseJob(tree, tuple(tuple(leaf) for leaf in tasks))


def _uid(task: CaseTask) -> str:
    return task.uid
