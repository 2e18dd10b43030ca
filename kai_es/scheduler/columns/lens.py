"""What of the configuration decides which rows a shard sees and how it counts them."""

from collections.abc import Mapping
from dataclasses import dataclass

from kai_es.kube.labels import (
    CPU_WORKER_LABEL,
    GPU_WORKER_LABEL,
    MIG_WORKER_LABEL,
    NODE_POOL_LABEL,
    RESERVATION_APP,
    SCHEDULER_NAME,
)
from kai_es.kube.objects import Node, Pod


@dataclass(frozen=True, slots=True)
class Lens:
    """One shard's view; columns exist once per lens. Names as in scheduler-core §2.1.

    groups_by_name: `compat.Q1`, pod groups are told apart by name alone.
    foreign_pods:   `compat.C23`, pods of other schedulers take part.
    """

    pool_key: str = NODE_POOL_LABEL
    pool_value: str = ""
    restrict_nodes: bool = False
    cpu_worker_key: str = CPU_WORKER_LABEL
    gpu_worker_key: str = GPU_WORKER_LABEL
    mig_worker_key: str = MIG_WORKER_LABEL
    reservation_app: str = RESERVATION_APP
    scheduler_name: str = SCHEDULER_NAME
    stuck_after_ms: int = 120_000
    full_hierarchy: bool = True
    groups_by_name: bool = False
    foreign_pods: bool = False

    @property
    def pool(self) -> str:
        """The shard's name in messages."""
        return self.pool_value or "default"

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a node, pod group or queue with these labels belongs to the shard."""
        if not self.pool_key:
            return True
        if not self.pool_value:
            return self.pool_key not in labels
        return labels.get(self.pool_key) == self.pool_value

    def owns(self, pod: Pod) -> bool:
        """Whether a pod is ours to place and to evict; others only weigh on their nodes."""
        return self.foreign_pods or pod.spec.scheduler in ("", self.scheduler_name)

    def selects_node(self, node: Node) -> bool:
        """Whether a node takes part: in the pool, and a worker if only workers do."""
        labels = node.labels
        if not self.selects(labels):
            return False
        return not self.restrict_nodes or self.cpu_worker_key in labels or self.is_gpu_worker(node)

    def is_gpu_worker(self, node: Node) -> bool:
        """Whether the node carries the GPU worker label, whatever its value."""
        return self.gpu_worker_key in node.labels
