"""Builders of small clusters for tests of the scheduler: defaults and domain words."""

from collections.abc import Iterable
from typing import Any

from kai_es.events.decisions import CycleInputs
from kai_es.kube.labels import GPU_MICRO
from kai_es.kube.objects import GpuRequest, Node, Pod, PodGroup, PodSpec, Queue, QueueShare
from kai_es.scheduler.config import Config
from kai_es.scheduler.decide import open_session
from kai_es.scheduler.framework.session import Session
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.status import TaskStatus

NOW_MS = 1_780_000_000_000
FREE = QueueShare(quota=-1, limit=-1, weight=1)


def a_node(name: str, gpus: int = 8, **fields: Any) -> Node:
    """A node with 64 CPUs and 256 GiB."""
    amounts = {"cpu": 64_000, "memory": 2**38, "gpu": gpus * GPU_MICRO, "pods": 110}
    values: dict[str, Any] = {
        "allocatable": amounts | fields.pop("more", {}),
        "gpu_memory_mib": 40_000,
        "gpu_memory_synced": True,
        "gpu_count": gpus,
    }
    return Node(uid=f"uid-{name}", name=name, **(values | fields))


def a_queue(name: str, quota: float = -1, parent: str = "", **fields: Any) -> Queue:
    """A queue with a GPU quota and nothing else bounded."""
    values: dict[str, Any] = {
        "gpu": QueueShare(quota=quota, limit=fields.pop("limit", -1), weight=1),
        "cpu": FREE,
        "memory": FREE,
    }
    return Queue(uid=f"uid-{name}", name=name, parent=parent, **(values | fields))


def a_spec(gpus: float = 1, cpu: int = 1000, **fields: Any) -> PodSpec:
    """Whole devices, or a share of one below 1."""
    requests = {"cpu": cpu, "memory": 2**30, "pods": 1} | fields.pop("more", {})
    if gpus >= 1:
        requests["gpu"] = int(gpus) * GPU_MICRO
        fields["gpu"] = GpuRequest(count=int(gpus), portion=1.0)
    elif gpus > 0:
        fields["gpu"] = GpuRequest(count=1, portion=gpus)
        fields["request_type"] = "Fraction"
    return PodSpec(requests=requests, **fields)


class World:
    """A snapshot with short ways to fill it."""

    def __init__(self) -> None:
        self.snapshot = Snapshot()
        self.n_groups = 0

    def node(self, name: str, gpus: int = 8, **fields: Any) -> None:
        self.snapshot.set_node(a_node(name, gpus, **fields), rv=1)

    def queue(self, name: str, quota: float = -1, parent: str = "", **fields: Any) -> None:
        self.snapshot.set_queue(a_queue(name, quota, parent, **fields), rv=1)

    def group(
        self,
        name: str,
        *pods: str,
        queue: str = "q",
        spec: PodSpec | None = None,
        group: str = "",
        status: TaskStatus | None = None,
        labels: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        """A pod group; each of `pods` is the node that its pod runs on, "" = pending."""
        self.n_groups += 1
        values: dict[str, Any] = {
            "min_member": len(pods),
            "created_ms": NOW_MS - 100_000 + self.n_groups * 1000,
            "preemptibility": "preemptible",
        }
        state = fields.pop("state", GroupState())
        self.snapshot.set_group(
            PodGroup(
                uid=f"uid-{name}", namespace="ns", name=name, queue=queue, **(values | fields)
            ),
            rv=1,
            state=state,
        )
        spec = spec or a_spec()
        for number, node in enumerate(pods):
            self.pod(
                f"{name}-{number}",
                name,
                node,
                spec=spec,
                gpu_group=group,
                status=status,
                labels=labels or {},
            )

    def pod(
        self,
        name: str,
        group: str,
        node: str = "",
        *,
        spec: PodSpec,
        gpu_group: str = "",
        status: TaskStatus | None = None,
        **fields: Any,
    ) -> None:
        status = status or (TaskStatus.RUNNING if node else TaskStatus.PENDING)
        self.snapshot.set_pod(
            Pod(uid=name, namespace="ns", name=name, group=group, spec=spec, **fields),
            rv=1,
            task=TaskState(
                status=status, node=node, gpu_groups=(gpu_group,) if gpu_group and node else ()
            ),
        )

    def inputs(self, flags: Iterable[str] = (), **fields: Any) -> CycleInputs:
        values: dict[str, Any] = {"shard": "test", "cycle": 1, "now_ms": NOW_MS}
        return CycleInputs(**(values | fields), flags=tuple(sorted(flags)))

    def session(self, config: Config | None = None, **fields: Any) -> Session:
        config = config or Config(withheld=())
        return open_session(self.snapshot, config, self.inputs(**fields))
