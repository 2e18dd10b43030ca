"""Generated workloads: nodes, a tree of queues, jobs that come over time.

Pure: a seed and sizes in, plain API objects out. A job is a pod group and its pods; the loader
stamps the pods with the group they were created under (`loader.py`), as the pod grouper does.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from kai_es.kube.labels import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRODUCT_LABEL,
    POD_GROUP_ANNOTATION,
    QUEUE_LABEL,
    RECREATE,
    RUN_SECONDS,
    SCHEDULER_NAME,
)

Object = dict[str, Any]

GPU_RESOURCE: Final = "nvidia.com/gpu"
POD_LIMIT: Final = 110
"""Pods of a node, the kubelet's default."""

PRIORITY_CLASSES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
"""As the reference's chart makes them (apis §9.1)."""


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A model of node: GPUs, their product and memory (0 = not told), CPU and main memory."""

    n_gpus: int
    product: str
    gpu_memory_mib: int
    cpu_milli: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Job:
    """A pod group, its pods, and when they are created.

    at_ms: after the start of the workload.
    pods:  without stamp.
    """

    at_ms: int
    group: Object
    pods: tuple[Object, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """All that is to be created: cluster objects first, then jobs in order of `at_ms`."""

    nodes: tuple[Object, ...]
    queues: tuple[Object, ...]
    priority_classes: tuple[Object, ...]
    jobs: tuple[Job, ...]

    @property
    def n_pods(self) -> int:
        """Pods of all jobs."""
        return sum(len(job.pods) for job in self.jobs)

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces of the jobs, in order of first use."""
        return tuple(dict.fromkeys(str(job.group["metadata"]["namespace"]) for job in self.jobs))


# -- objects, also for importers of traces


def node(name: str, shape: NodeShape, *, labels: dict[str, str] | None = None) -> Object:
    """A ready node."""
    amounts = {
        "cpu": f"{shape.cpu_milli}m",
        "memory": f"{shape.memory_mib}Mi",
        "ephemeral-storage": "1Ti",
        "pods": str(POD_LIMIT),
    }
    known = {"kubernetes.io/hostname": name, **(labels or {})}
    if shape.n_gpus:
        amounts[GPU_RESOURCE] = str(shape.n_gpus)
        known |= {
            GPU_COUNT_LABEL: str(shape.n_gpus),
            GPU_PRODUCT_LABEL: shape.product,
        }
        if shape.gpu_memory_mib:
            known[GPU_MEMORY_LABEL] = str(shape.gpu_memory_mib)
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": known},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


def queue(
    name: str, *, parent: str = "", gpu_quota: float = -1, weight: float = 1, priority: int = 100
) -> Object:
    """A queue with a GPU quota (devices, −1 = unlimited), CPU and memory without limit."""
    free = {"quota": -1, "limit": -1, "overQuotaWeight": weight}
    spec: Object = {
        "displayName": name,
        "priority": priority,
        "resources": {"gpu": free | {"quota": gpu_quota}, "cpu": dict(free), "memory": dict(free)},
    }
    if parent:
        spec["parentQueue"] = parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def priority_classes() -> tuple[Object, ...]:
    """The priority classes of the reference."""
    return tuple(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in PRIORITY_CLASSES.items()
    )


def pod_group(
    name: str, *, namespace: str, queue_name: str, min_member: int, priority_class: str
) -> Object:
    """A pod group."""
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {QUEUE_LABEL: queue_name},
        },
        "spec": {
            "queue": queue_name,
            "minMember": min_member,
            "priorityClassName": priority_class,
        },
    }


def pod(
    name: str,
    group: Object,
    requests: dict[str, str],
    *,
    run_s: float | None,
    annotations: dict[str, str] | None = None,
    affinity: Object | None = None,
) -> Object:
    """A pod of a group; run_s None = runs for ever."""
    notes = {POD_GROUP_ANNOTATION: group["metadata"]["name"], **(annotations or {})}
    if run_s is not None:
        notes[RUN_SECONDS] = f"{run_s:.3f}"
    limits = {k: v for k, v in requests.items() if k == GPU_RESOURCE}
    resources: Object = {"requests": requests} | ({"limits": limits} if limits else {})
    spec: Object = {
        "schedulerName": SCHEDULER_NAME,
        "restartPolicy": "Never",
        "priorityClassName": group["spec"]["priorityClassName"],
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
    }
    if affinity:
        spec["affinity"] = affinity
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": group["metadata"]["namespace"],
            "labels": dict(group["metadata"]["labels"]),
            "annotations": notes,
        },
        "spec": spec,
    }


# -- the generator

SHAPES: Final = (
    NodeShape(8, "NVIDIA-H100-80GB-HBM3", 81_559, 128_000, 1_048_576),
    NodeShape(4, "NVIDIA-A100-SXM4-40GB", 40_960, 64_000, 524_288),
    NodeShape(8, "NVIDIA-H100-80GB-HBM3", 81_559, 128_000, 1_048_576),
    NodeShape(2, "Tesla-T4", 15_360, 32_000, 262_144),
    NodeShape(0, "", 0, 64_000, 262_144),
)
"""Models in turn, so that any number of nodes is a mix: on average 4.4 GPUs per node."""

ARRIVAL_S: Final = 25.0
"""Jobs come within this time; 400 jobs then make more than 50 cycles with a bind."""
RUN_S: Final = (2.0, 6.0)
"""How long a job runs. 400 jobs ask the 220 GPUs of 50 nodes for about 6,000 GPU-seconds: 30 s."""
QUOTA_SHARE: Final = 0.7
"""Part of the GPUs that is somebody's quota; the rest is over-quota for all."""
MEMORY_PER_CPU_MIB: Final = 2_048


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to generate; the defaults are those of the demo.

    prefix: of the names of jobs.
    """

    n_nodes: int = 50
    n_jobs: int = 400
    n_queues: int = 4
    arrival_s: float = ARRIVAL_S
    prefix: str = "job"

    def __post_init__(self) -> None:
        for field in ("n_nodes", "n_jobs", "n_queues"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}, want 1 or more")


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a job: pods, how many must run together, GPUs and CPU of each."""

    n_pods: int
    min_member: int
    n_gpus: int
    cpu_milli: int


def generate(seed: int, sizes: Sizes | None = None) -> Workload:
    """The workload of a seed: the same seed and sizes, the same workload.

    Every job fits into the empty cluster, and a job that cannot be preempted into the quota of
    its queue, so that all of them can end.
    """
    sizes = sizes or Sizes()
    chance = random.Random(seed)
    shapes = [SHAPES[i % len(SHAPES)] for i in range(sizes.n_nodes)]
    n_gpus = sum(shape.n_gpus for shape in shapes)
    queues, quotas = _queues(sizes.n_queues, n_gpus)
    times = sorted(chance.uniform(0, sizes.arrival_s) for _ in range(sizes.n_jobs))
    return Workload(
        nodes=tuple(node(f"node-{i:04d}", shape) for i, shape in enumerate(shapes)),
        queues=queues,
        priority_classes=priority_classes(),
        jobs=tuple(
            _job(chance, f"{sizes.prefix}-{i:05d}", int(at_s * 1000), shapes, quotas)
            for i, at_s in enumerate(times)
        ),
    )


def _queues(n_leaves: int, n_gpus: int) -> tuple[tuple[Object, ...], dict[str, int]]:
    """Departments of two teams each; quotas of the teams by name, in devices."""
    out, quotas = [], {}
    share = int(n_gpus * QUOTA_SHARE / n_leaves)
    for first in range(0, n_leaves, 2):
        department = f"department-{first // 2}"
        teams = range(first, min(first + 2, n_leaves))
        out.append(queue(department, gpu_quota=share * len(teams), weight=1 + first // 2))
        for i in teams:
            out.append(queue(f"team-{i}", parent=department, gpu_quota=share, weight=1 + i % 2))
            quotas[f"team-{i}"] = share
    return tuple(out), quotas


def _job(
    chance: random.Random,
    name: str,
    at_ms: int,
    shapes: Sequence[NodeShape],
    quotas: dict[str, int],
) -> Job:
    team = chance.choice(sorted(quotas))
    form = _fitting(_form(chance), shapes)
    priority_class = chance.choices(tuple(PRIORITY_CLASSES), weights=(70, 15, 10, 5))[0]
    if PRIORITY_CLASSES[priority_class] >= 100 and form.n_pods * form.n_gpus > quotas[team] // 2:
        priority_class = "train"  # what cannot be preempted must fit into the quota
    group = pod_group(
        name,
        namespace=team,
        queue_name=team,
        min_member=form.min_member,
        priority_class=priority_class,
    )
    requests = {
        "cpu": f"{form.cpu_milli}m",
        "memory": f"{form.cpu_milli * MEMORY_PER_CPU_MIB // 1000}Mi",
    }
    if form.n_gpus:
        requests[GPU_RESOURCE] = str(form.n_gpus)
    run_s = chance.uniform(*RUN_S)
    pods = tuple(
        pod(f"{name}-{i}", group, requests, run_s=run_s, annotations={RECREATE: "true"})
        for i in range(form.n_pods)
    )
    return Job(at_ms, group, pods)


def _form(chance: random.Random) -> _Form:
    kind = chance.choices(("single", "cpu", "gang", "elastic"), weights=(50, 10, 25, 15))[0]
    if kind == "single":
        n_gpus = chance.choices((1, 2, 4, 8), weights=(50, 25, 15, 10))[0]
        return _Form(1, 1, n_gpus, 4_000 * n_gpus)
    n_pods = chance.choice((2, 3, 4, 8))
    if kind == "cpu":
        return _Form(n_pods, 1, 0, chance.choice((2_000, 4_000, 8_000)))
    n_gpus = chance.choices((1, 2, 4), weights=(60, 30, 10))[0]
    # An elastic job above one pod's minimum can end up with fewer living pods than that, when the
    # surplus waits longer than the others run; such a rest is never scheduled (`not-ready`).
    minimum = n_pods if kind == "gang" else 1
    return _Form(n_pods, minimum, n_gpus, 4_000 * n_gpus)


def _fitting(form: _Form, shapes: Sequence[NodeShape]) -> _Form:
    """The form, made smaller until the empty cluster has room for all of it."""
    n_pods, n_gpus = form.n_pods, form.n_gpus
    while n_gpus and not any(shape.n_gpus >= n_gpus for shape in shapes):
        n_gpus //= 2
    cpu_milli = form.cpu_milli if n_gpus == form.n_gpus else 4_000 * max(1, n_gpus)
    room = sum(
        shape.n_gpus // n_gpus if n_gpus else shape.cpu_milli // cpu_milli for shape in shapes
    )
    n_pods = max(1, min(n_pods, room))
    return _Form(n_pods, min(form.min_member, n_pods), n_gpus, cpu_milli)
