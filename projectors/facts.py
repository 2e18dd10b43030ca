"""What of the cluster's objects the books keep: values that hold from one change to the next."""

from typing import Final, NamedTuple

from kai_es.kube.labels import (
    CPU,
    DEFAULT_NODE_POOL,
    GPU,
    GPU_MICRO,
    GPU_PRODUCT_LABEL,
    MEMORY,
    MIG_PREFIX,
    NODE_POOL_LABEL,
    QUEUE_LABEL,
    USER_LABEL,
)
from kai_es.kube.objects import Node, Pod, PodGroup, Queue
from kai_es.snapshot.lifecycle import ENDED_PHASES
from kai_es.snapshot.ranking import node_standing
from kai_es.snapshot.shapes import HUNDREDTH, mig_slices, portion_hundredths

BOOKED: Final = (CPU, MEMORY, GPU)
"""Resources that are accounted: millicores, bytes, gpu_micro."""

Amounts = tuple[int, int, int]
"""Of `BOOKED`, in that order."""

MEGABYTE: Final = 1_000_000  # unit of memory in a Queue object


class Belongs(NamedTuple):
    """Whose a pod is: the columns that usage is grouped by."""

    queue_path: tuple[str, ...]
    namespace: str
    pod: str
    user: str
    kind: str
    gang: str
    gang_uid: str


class Allocation(NamedTuple):
    """A pod on a node."""

    amounts: Amounts
    node: str
    node_pool: str
    gpu_type: str
    belongs: Belongs


class Request(NamedTuple):
    """A pod that waits; pool and GPU type as asked for, "" = any."""

    amounts: Amounts
    node_pool: str
    gpu_type: str
    belongs: Belongs


class Capacity(NamedTuple):
    """A node's allocatable. state: up | drained (takes no new pods) | down."""

    amounts: Amounts
    state: str
    node_uid: str
    node_pool: str
    gpu_type: str


class NodeVersion(NamedTuple):
    """What a node is."""

    uid: str
    node_pool: str
    gpu_type: str
    state: str


class QueueVersion(NamedTuple):
    """What a queue is. quota, limit: amounts of `BOOKED`, None = unlimited."""

    uid: str
    parent: str
    path: tuple[str, ...]
    priority: int
    quota: tuple[int | None, int | None, int | None]
    limit: tuple[int | None, int | None, int | None]
    weight: tuple[float, float, float]


class NodeFacts(NamedTuple):
    """What pods take from their node. gpu_memory_mib: per device."""

    capacity: Capacity
    gpu_memory_mib: int


class GroupFacts(NamedTuple):
    """What pods take from their pod group."""

    uid: str
    queue: str
    user: str
    kind: str


NO_NODE: Final = NodeFacts(Capacity((0, 0, 0), "down", "", "", ""), 0)
NO_GROUP: Final = GroupFacts("", "", "", "")


def is_allocated(pod: Pod) -> bool:
    """Whether a pod holds its node's resources: seen bound and not yet ended."""
    return pod.node != "" and pod.phase not in ENDED_PHASES


def is_waiting(pod: Pod) -> bool:
    """Whether a pod asks for resources and has none."""
    return not (pod.node or pod.gated or pod.deleted_ms or pod.phase in ENDED_PHASES)


def held(pod: Pod, node: NodeFacts) -> Amounts:
    """What a bound pod holds.

    A share counts portion × devices, MIG instances count their slices, DRA devices count one each.
    Reference: fairness.md §2.5, "allocated pod".
    """
    requests = pod.spec.requests
    return (
        requests.get(CPU, 0),
        requests.get(MEMORY, 0),
        _gpu_held(pod, gpu_memory_mib=node.gpu_memory_mib),
    )


def asked(pod: Pod, *, gpu_memory_min_mib: int) -> Amounts:
    """What a waiting pod asks for.

    Args:
        pod: the pod.
        gpu_memory_min_mib: smallest memory per device of any node, 0 = not known; a request by
            memory is a share of that. Reference: fairness.md §2.5, "pending pod".
    """
    requests = pod.spec.requests
    gpu = pod.spec.gpu
    if gpu.memory_mib:
        devices = max(gpu.count, 1)
        micro = devices * gpu.memory_mib * GPU_MICRO
        amount = -(-micro // gpu_memory_min_mib) if gpu_memory_min_mib else 0
    else:
        amount = _gpu_held(pod, gpu_memory_mib=0)
    return (requests.get(CPU, 0), requests.get(MEMORY, 0), amount)


def belongs(pod: Pod, group: GroupFacts, path: tuple[str, ...]) -> Belongs:
    """Whose a pod is. `path`: from the top queue to the one it is charged to, () = none."""
    return Belongs(
        queue_path=path,
        namespace=pod.namespace,
        pod=pod.name,
        user=pod.labels.get(USER_LABEL, "") or group.user,
        kind=group.kind or pod.owner[0] or "Pod",
        gang=pod.group,
        gang_uid=group.uid or pod.group_uid,
    )


def queue_of(pod: Pod, group: GroupFacts) -> str:
    """Name of the queue that a pod is charged to, "" = none."""
    return group.queue or pod.labels.get(QUEUE_LABEL, "")


def wanted_place(pod: Pod) -> tuple[str, str]:
    """Node pool and GPU type that a waiting pod asks for, "" = any."""
    return pod.labels.get(NODE_POOL_LABEL, ""), pod.spec.node_selector.get(GPU_PRODUCT_LABEL, "")


def group_facts(group: PodGroup) -> GroupFacts:
    """What pods take from this pod group."""
    return GroupFacts(
        uid=group.uid,
        queue=group.queue,
        user=group.labels.get(USER_LABEL, ""),
        kind=group.owner[0],
    )


def node_facts(node: Node) -> NodeFacts:
    """What the books keep of this node.

    MIG instances count their slices, as in fairness.md §2.5, "node allocatable".
    """
    offered = node.allocatable
    gpu = offered.get(GPU, 0)
    for name, instances in offered.items():
        if name.startswith(MIG_PREFIX):
            gpu += _mig_micro(name, instances)
    capacity = Capacity(
        amounts=(offered.get(CPU, 0), offered.get(MEMORY, 0), gpu),
        state=node_standing(node),
        node_uid=node.uid,
        node_pool=node.labels.get(NODE_POOL_LABEL, "") or DEFAULT_NODE_POOL,
        gpu_type=node.labels.get(GPU_PRODUCT_LABEL, ""),
    )
    return NodeFacts(capacity, node.gpu_memory_mib if node.gpu_memory_synced else 0)


def queue_version(queue: Queue, path: tuple[str, ...]) -> QueueVersion:
    """What the books keep of this queue."""
    shares = (queue.cpu, queue.memory, queue.gpu)
    return QueueVersion(
        uid=queue.uid,
        parent=queue.parent,
        path=path,
        priority=queue.priority,
        quota=_amounts(*(share.quota for share in shares)),
        limit=_amounts(*(share.limit for share in shares)),
        weight=(queue.cpu.weight, queue.memory.weight, queue.gpu.weight),
    )


def _gpu_held(pod: Pod, *, gpu_memory_mib: int) -> int:
    gpu = pod.spec.gpu
    micro = 0
    if pod.reserves_device:
        return micro  # it only marks a device as shared; its sharers hold it
    for name, instances in gpu.mig.items():
        micro += _mig_micro(name, instances)
    if gpu.memory_mib:
        if gpu_memory_mib:
            hundredths = -(-100 * gpu.memory_mib // gpu_memory_mib)
            micro += max(gpu.count, 1) * hundredths * HUNDREDTH
    elif 0 < gpu.portion < 1:
        return micro + max(gpu.count, 1) * portion_hundredths(gpu.portion) * HUNDREDTH
    else:
        micro += pod.spec.requests.get(GPU, 0)
    return micro + sum(gpu.dra.values()) * GPU_MICRO


def _mig_micro(profile: str, instances: int) -> int:
    slices = mig_slices(profile)
    return slices[0] * instances * GPU_MICRO if slices is not None else 0


def _amounts(cpu: float, memory: float, gpu: float) -> tuple[int | None, int | None, int | None]:
    """Queue numbers as amounts. −1 is unlimited, for memory every negative number."""
    return (
        None if cpu == -1 else max(round(cpu), 0),
        None if memory < 0 else round(memory * MEGABYTE),
        None if gpu == -1 else max(round(gpu * GPU_MICRO), 0),
    )
