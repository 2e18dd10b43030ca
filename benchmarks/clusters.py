"""Clusters of fixed shape, as rows: what one cycle of the scheduler is measured on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import (
    GpuRequest,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    Queue,
    QueueShare,
    TopologyConstraint,
)
from kai_es.kube.topologies import Topology, TopologyLevel
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

EPOCH_MS: Final = 1_760_000_000_000
NOW_MS: Final = EPOCH_MS + 3_600_000
GPUS: Final = 8
PRIORITIES: Final = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
_GIB: Final = 2**30
_MIB: Final = 2**20

LabelsOf = Callable[[int], dict[str, str]]


@dataclass(slots=True)
class Cluster:
    """Objects with where they stand; `load` stores them."""

    nodes: list[Node] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    groups: list[PodGroup] = field(default_factory=list)
    pods: list[tuple[Pod, TaskState]] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)

    def load(self) -> Snapshot:
        """A snapshot of it."""
        snapshot = Snapshot()
        for name, value in PRIORITIES.items():
            snapshot.set_priority_class(PriorityClass(uid=name, name=name, value=value), rv=1)
        for node in self.nodes:
            snapshot.set_node(node, rv=1)
        for topology in self.topologies:
            snapshot.set_object(topology, rv=1)
        for queue in self.queues:
            snapshot.set_queue(queue, rv=1)
        for group in self.groups:
            snapshot.set_group(group, rv=1, state=GroupState(last_start_ms=group.last_start_ms))
        for pod, task in self.pods:
            snapshot.set_pod(pod, rv=1, task=task)
        return snapshot


def add_nodes(cluster: Cluster, n_nodes: int, labels: LabelsOf = lambda _i: {}) -> None:
    """Nodes of 8 GPUs, 128 CPUs and 1 TiB; `labels` gives more labels by number."""
    allocatable = {"cpu": 128_000, "memory": 1024 * _GIB, "gpu": GPUS * GPU_MICRO, "pods": 110}
    for i in range(n_nodes):
        name = f"node-{i:04d}"
        cluster.nodes.append(
            Node(
                uid=f"uid-{name}",
                name=name,
                labels={
                    "kubernetes.io/hostname": name,
                    "nvidia.com/gpu.count": str(GPUS),
                    **labels(i),
                },
                allocatable=allocatable,
                capacity=allocatable,
                conditions={"Ready": "True"},
                gpu_memory_mib=40_900,
                gpu_memory_synced=True,
                gpu_count=GPUS,
            )
        )


def add_tree(cluster: Cluster, n_departments: int, n_teams: int, n_gpus: int) -> list[str]:
    """Two levels of queues that share the GPUs evenly; the names of the leaves."""
    leaves: list[str] = []
    for d in range(n_departments):
        add_queue(cluster, f"dep-{d}", "", n_gpus // n_departments)
        for t in range(n_teams):
            leaves.append(f"dep-{d}-team-{t}")
            add_queue(cluster, leaves[-1], f"dep-{d}", n_gpus // (n_departments * n_teams))
    return leaves


def add_queue(cluster: Cluster, name: str, parent: str, quota: int) -> None:
    """A queue with a GPU quota and nothing else bounded."""
    free = QueueShare(quota=-1, limit=-1, weight=1)
    cluster.queues.append(
        Queue(
            uid=f"uid-{name}",
            name=name,
            parent=parent,
            created_ms=EPOCH_MS + 1000 * len(cluster.queues),
            gpu=QueueShare(quota=quota, limit=-1, weight=1),
            cpu=free,
            memory=free,
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What the pods of a set of jobs have in common."""

    gpus: int = 1
    cpu_milli: int = 1000
    memory_mib: int = 1024
    priority: str = "train"

    def spec(self) -> PodSpec:
        """As a pod spec."""
        requests = {"cpu": self.cpu_milli, "memory": self.memory_mib * _MIB, "pods": 1}
        gpu = GpuRequest()
        if self.gpus:
            requests["gpu"] = self.gpus * GPU_MICRO
            gpu = GpuRequest(count=self.gpus, portion=1.0)
        return PodSpec(
            requests=requests,
            gpu=gpu,
            scheduler="kai-scheduler",
            priority=PRIORITIES[self.priority],
            priority_class=self.priority,
        )


def add_jobs(
    cluster: Cluster,
    prefix: str,
    n_jobs: int,
    queues: Sequence[str],
    *,
    size: int = 1,
    kind: Kind,
    hosts: Sequence[str] = (),
    topology: TopologyConstraint | None = None,
) -> None:
    """Jobs in turn for each queue; running, in turn on `hosts`, if there are any."""
    spec = kind.spec()
    for j in range(n_jobs):
        name, queue = f"{prefix}-{j:05d}", queues[j % len(queues)]
        cluster.groups.append(
            PodGroup(
                uid=f"uid-pg-{name}",
                namespace="default",
                name=name,
                created_ms=EPOCH_MS,
                queue=queue,
                min_member=size,
                priority_class=kind.priority,
                last_start_ms=EPOCH_MS + 1000 if hosts else 0,
                topology=topology,
            )
        )
        for t in range(size):
            host = hosts[(j * size + t) % len(hosts)] if hosts else ""
            cluster.pods.append(_pod(name, t, queue, spec, host))


def _pod(job: str, number: int, queue: str, spec: PodSpec, host: str) -> tuple[Pod, TaskState]:
    name = f"{job}-{number}"
    pod = Pod(
        uid=f"uid-{name}",
        namespace="default",
        name=name,
        created_ms=EPOCH_MS,
        phase="Running" if host else "Pending",
        node=host,
        group=job,
        labels={"kai.scheduler/queue": queue},
        spec=spec,
    )
    status = TaskStatus.RUNNING if host else TaskStatus.PENDING
    return pod, TaskState(status=status, node=host)


def hosts(n_nodes: int, times: int) -> list[str]:
    """Every node's name `times` over, node by node."""
    return [f"node-{i:04d}" for i in range(n_nodes) for _ in range(times)]


def fill(n_nodes: int, n_departments: int, n_teams: int) -> Cluster:
    """An empty cluster and as many one-GPU jobs as it takes."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, n_departments, n_teams, n_nodes * GPUS)
    add_jobs(cluster, "job", n_nodes * GPUS, leaves, kind=Kind())
    return cluster


def gang(n_nodes: int) -> Cluster:
    """Zones of 128 and racks of 16 nodes, and one gang that takes all and prefers racks."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes, lambda i: {"topo/zone": f"z{i // 128}", "topo/rack": f"r{i // 16}"})
    levels = ("topo/zone", "topo/rack", "kubernetes.io/hostname")
    topology = Topology(uid="uid-topo", name="net", levels=tuple(map(TopologyLevel, levels)))
    cluster.topologies.append(topology)
    leaves = add_tree(cluster, 1, 1, n_nodes * GPUS)
    together = TopologyConstraint(topology="net", preferred="topo/rack")
    kind = Kind(gpus=GPUS)
    add_jobs(cluster, "gang", 1, leaves, size=n_nodes, kind=kind, topology=together)
    return cluster


def hopeless(n_nodes: int) -> Cluster:
    """A full cluster and one gang of whole nodes in the same queue."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, 1, 1, n_nodes * GPUS)
    full = hosts(n_nodes, GPUS)
    add_jobs(cluster, "run", n_nodes * GPUS, leaves, kind=Kind(), hosts=full)
    add_jobs(cluster, "want", 1, leaves, size=10, kind=Kind(gpus=GPUS))
    return cluster


def reclaim(n_nodes: int, n_jobs: int, size: int, gpus: int) -> Cluster:
    """A cluster full of one queue's jobs, and jobs of its sibling."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, 1, 2, n_nodes * GPUS)
    full = hosts(n_nodes, GPUS)
    add_jobs(cluster, "run", n_nodes * GPUS, leaves[:1], kind=Kind(), hosts=full)
    add_jobs(cluster, "want", n_jobs, leaves[1:], size=size, kind=Kind(gpus=gpus))
    return cluster


def preempt(n_nodes: int, n_jobs: int) -> Cluster:
    """A full cluster, and jobs of higher priority in the same queue."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, 1, 1, n_nodes * GPUS)
    full = hosts(n_nodes, GPUS)
    add_jobs(cluster, "run", n_nodes * GPUS, leaves, kind=Kind(), hosts=full)
    add_jobs(cluster, "want", n_jobs, leaves, kind=Kind(priority="inference"))
    return cluster


def consolidate(n_nodes: int, n_jobs: int, size: int) -> Cluster:
    """Every node half used by one-GPU jobs, and gangs of whole nodes."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, 1, 2, n_nodes * GPUS)
    half = hosts(n_nodes, GPUS // 2)
    add_jobs(cluster, "run", n_nodes * GPUS // 2, leaves, kind=Kind(), hosts=half)
    add_jobs(cluster, "want", n_jobs, leaves, size=size, kind=Kind(gpus=GPUS))
    return cluster


def steady(n_nodes: int, per_node: int, n_pending: int) -> Cluster:
    """Nodes with 7 GPU pods and many small ones, and a few pending jobs."""
    cluster = Cluster()
    add_nodes(cluster, n_nodes)
    leaves = add_tree(cluster, 10, 5, n_nodes * GPUS)
    add_jobs(cluster, "gpu", n_nodes * 7, leaves, kind=Kind(), hosts=hosts(n_nodes, 7))
    small = Kind(gpus=0, cpu_milli=100, memory_mib=64)
    n_small = per_node - 7
    add_jobs(cluster, "cpu", n_nodes * n_small, leaves, kind=small, hosts=hosts(n_nodes, n_small))
    add_jobs(cluster, "want", n_pending, leaves, kind=Kind())
    return cluster


SHAPES: Final[dict[str, Callable[[], Cluster]]] = {
    "fill-500": lambda: fill(500, 1, 4),
    "fill-1000": lambda: fill(1000, 5, 10),
    "fill-4000": lambda: fill(4000, 10, 20),
    "gang-512": lambda: gang(512),
    "hopeless-500": lambda: hopeless(500),
    "reclaim-one": lambda: reclaim(500, 1, 1, 1),
    "reclaim-many": lambda: reclaim(500, 2000, 1, 1),
    "reclaim-large": lambda: reclaim(500, 1, 250, 8),
    "preempt-many": lambda: preempt(500, 1000),
    "consolidate-500": lambda: consolidate(500, 41, 2),
    "steady-35k": lambda: steady(1000, 35, 100),
    "steady-140k": lambda: steady(4000, 35, 100),
}
