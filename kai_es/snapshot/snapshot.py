"""The live rows of one snapshot, indexed by identity and by what they name.

`kai_es.snapshot.world` ranks what the log says and calls the mutators here; a conformance runner
calls them directly. Rows name their referents and are never dropped because the other is missing:
a pod may come before its group, its node or its queue. What a cycle reads are the columns of one
shard (`kai_es.snapshot.columns`), which follow the rows by their marks of change.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from kai_es.kube.devices import DeviceClass, ResourceClaim, ResourceSlice
from kai_es.kube.objects import (
    Namespace,
    Node,
    Pod,
    PodGroup,
    PodSpec,
    PriorityClass,
    Queue,
    ShardConfig,
    kind_of,
)
from kai_es.kube.topologies import NumaNode, Topology
from kai_es.kube.volumes import Claim, ConfigMap, CsiDriver, StorageCapacity, StorageClass, Volume
from kai_es.snapshot.device_rows import DeviceRows
from kai_es.snapshot.effective import GroupState, TaskState
from kai_es.snapshot.relevance import read_part
from kai_es.snapshot.shapes import Shape, Shapes
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.table import Table

GroupKey = tuple[str, str]
"""Namespace and name of a pod group, as pods refer to it."""


class PodRow:
    """One pod: its object, version, effective state, shape and place in the pod columns."""

    __slots__ = ("pod", "row", "rv", "shape", "state")

    def __init__(self, pod: Pod, *, rv: int, state: TaskState, row: int, shape: Shape) -> None:
        self.pod = pod
        self.rv = rv
        self.state = state
        self.row = row
        self.shape = shape


class NodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One node; `closed` says why nothing may be placed on it (`unaccounted-pod`)."""

    node: Node
    rv: int
    closed: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What pods refer to it by."""
        return self.node.name


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One pod group."""

    group: PodGroup
    rv: int
    state: GroupState

    @property
    def name(self) -> GroupKey:
        """What pods refer to it by."""
        return (self.group.namespace, self.group.name)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """One queue."""

    queue: Queue
    rv: int

    @property
    def name(self) -> str:
        """What pod groups and child queues refer to it by."""
        return self.queue.name


class ClassRow(msgspec.Struct, frozen=True, kw_only=True):
    """One priority class."""

    priority_class: PriorityClass
    rv: int

    @property
    def name(self) -> str:
        """What pod groups refer to it by."""
        return self.priority_class.name


PlainObject: TypeAlias = (
    Namespace
    | Topology
    | NumaNode
    | ConfigMap
    | Claim
    | Volume
    | StorageClass
    | CsiDriver
    | StorageCapacity
)
"""Objects that columns look up by name and nothing else refers to. A new kind is one more here."""


class PlainRow(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a kind that needs no row of its own."""

    obj: PlainObject
    rv: int

    @property
    def name(self) -> Hashable:
        """What others refer to it by: its name, with the namespace if it has one."""
        obj = self.obj
        if isinstance(obj, Claim | ConfigMap | StorageCapacity):
            return (obj.namespace, obj.name)
        return obj.name


class Follower(Protocol):
    """Derived columns that are told what changed; they look at it when they are next read."""

    def node_changed(self, name: str) -> None:
        """The row that a node name means, or its pods, changed."""

    def group_changed(self, key: GroupKey) -> None:
        """A pod group, or its pods, changed."""

    def queues_changed(self) -> None:
        """Some queue or priority class changed: rare, everything derived from them is redone."""

    def object_changed(self, kind: str, name: Hashable) -> None:
        """An object of `Snapshot.plain` changed."""


class Snapshot:
    """All live rows at one offset of the topic `snapshot`.

    offset:  the last accepted batch, −1 before the first.
    time_ms: the log's clock at that batch.
    resume:  by shard the group uid at which its next cycle goes on after a cut, "" = not cut.
    plain:   by kind, rows of kinds that need none of their own.
    """

    def __init__(self) -> None:
        self.offset = -1
        self.time_ms = 0
        self.resume: Mapping[str, str] = {}
        self.pods: dict[str, PodRow] = {}
        self.nodes: Table[NodeRow] = Table()
        self.groups: Table[GroupRow] = Table()
        self.queues: Table[QueueRow] = Table()
        self.classes: Table[ClassRow] = Table()
        self.configs: dict[str, ShardConfig] = {}
        self.devices = DeviceRows()
        self.plain: dict[str, Table[PlainRow]] = {}
        self.pods_of_group: dict[GroupKey, dict[str, PodRow]] = {}
        self.pods_of_node: dict[str, dict[str, PodRow]] = {}
        self.pod_rows: list[PodRow | None] = []
        self._free_rows: list[int] = []
        self.shapes = Shapes()
        self.followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        """Tell this follower of every later change."""
        self.followers.append(follower)

    # -- mutators

    def set_node(self, node: Node, *, rv: int, closed: tuple[str, ...] = ()) -> None:
        """Store a node. `closed`: reasons why it takes no pod now."""
        old = self.nodes.put(node.uid, NodeRow(node=node, rv=rv, closed=closed))
        if old is not None and old.name != node.name:
            self._node_changed(old.name)
        self._node_changed(node.name)

    def remove_node(self, uid: str) -> None:
        """Drop a node; its pods keep naming it. Unknown uids are of no account."""
        old = self.nodes.pop(uid)
        if old is not None:
            self._node_changed(old.name)

    def set_pod(self, pod: Pod, *, rv: int, task: TaskState) -> None:
        """Store a pod with where it stands."""
        old = self.pods.get(pod.uid)
        if old is None:
            row = self._take_row()
        else:
            row = old.row
            self._unlink_pod(old)
        spec = self._counted(pod) if self.devices.concerns(pod) else pod.spec
        shape = self.shapes.take(spec)
        if old is not None:
            self.shapes.drop(old.shape)
        if spec is pod.spec:
            # equal value, one object: replicas share their spec instead of keeping a copy each
            msgspec.structs.force_setattr(pod, "spec", shape.spec)
        if pod.spec.resource_claims or pod.spec.extended:
            self.devices.link(pod, task, is_there=True)
        new = PodRow(pod, rv=rv, state=task, row=row, shape=shape)
        self.pods[pod.uid] = new
        self.pod_rows[row] = new
        if pod.group:
            key = (pod.namespace, pod.group)
            self.pods_of_group.setdefault(key, {})[pod.uid] = new
            self._group_changed(key)
        if task.node:
            self.pods_of_node.setdefault(task.node, {})[pod.uid] = new
            self._node_changed(task.node)

    def remove_pod(self, uid: str) -> None:
        """Drop a pod. Unknown uids are of no account."""
        old = self.pods.pop(uid, None)
        if old is not None:
            self._unlink_pod(old)
            self.shapes.drop(old.shape)
            self.pod_rows[old.row] = None
            self._free_rows.append(old.row)

    def _counted(self, pod: Pod) -> PodSpec:
        """The spec with the GPUs of the pod's claims."""
        spec = pod.spec
        dra = self.devices.gpus_of_pod(pod)
        if dra == spec.gpu.dra:
            return spec
        gpu = msgspec.structs.replace(spec.gpu, dra=dra)
        return msgspec.structs.replace(spec, gpu=gpu)

    def set_group(self, group: PodGroup, *, rv: int, state: GroupState) -> None:
        """Store a pod group with its marks."""
        row = GroupRow(group=group, rv=rv, state=state)
        old = self.groups.put(group.uid, row)
        if old is not None and old.name != row.name:
            self._group_changed(old.name)
        is_contested = len(self.groups.uids(row.name)) > 1  # a higher rv may win the name
        if is_contested or old is None or old.state != state or _differ(old.group, group):
            self._group_changed(row.name)

    def remove_group(self, uid: str) -> None:
        """Drop a pod group; its pods keep naming it. Unknown uids are of no account."""
        old = self.groups.pop(uid)
        if old is not None:
            self._group_changed(old.name)

    def set_queue(self, queue: Queue, *, rv: int) -> None:
        """Store a queue."""
        old = self.queues.put(queue.uid, QueueRow(queue=queue, rv=rv))
        is_contested = len(self.queues.uids(queue.name)) > 1
        if is_contested or old is None or _differ(old.queue, queue):
            self._queues_changed()

    def remove_queue(self, uid: str) -> None:
        """Drop a queue. Unknown uids are of no account."""
        if self.queues.pop(uid) is not None:
            self._queues_changed()

    def set_priority_class(self, pc: PriorityClass, *, rv: int) -> None:
        """Store a priority class."""
        old = self.classes.put(pc.uid, ClassRow(priority_class=pc, rv=rv))
        if old is None or old.priority_class != pc:
            self._queues_changed()

    def remove_priority_class(self, uid: str) -> None:
        """Drop a priority class. Unknown uids are of no account."""
        if self.classes.pop(uid) is not None:
            self._queues_changed()

    def set_config(self, config: ShardConfig) -> None:
        """Store the configuration of a shard; it takes effect at the next cycle."""
        self.configs[config.uid] = config

    def remove_config(self, uid: str) -> None:
        """Drop a configuration. Unknown uids are of no account."""
        self.configs.pop(uid, None)

    def set_claim(self, claim: ResourceClaim, *, rv: int) -> None:
        """Store a claim on devices; its pods ask for them."""
        self._again(self.devices.set_claim(claim, rv=rv))

    def remove_claim(self, uid: str) -> None:
        """Drop a claim. Unknown uids are of no account."""
        self._again(self.devices.remove_claim(uid))

    def set_slice(self, found: ResourceSlice, *, rv: int) -> None:
        """Store devices on offer."""
        for node in self.devices.set_slice(found, rv=rv):
            self._node_changed(node)

    def remove_slice(self, uid: str) -> None:
        """Drop devices on offer. Unknown uids are of no account."""
        for node in self.devices.remove_slice(uid):
            self._node_changed(node)

    def set_device_class(self, found: DeviceClass, *, rv: int) -> None:
        """Store a class of devices."""
        self.devices.set_class(found, rv=rv)

    def remove_device_class(self, uid: str) -> None:
        """Drop a class of devices. Unknown uids are of no account."""
        self.devices.remove_class(uid)

    def _again(self, pods: Iterable[str]) -> None:
        """Store pods anew: their claims changed."""
        for uid in pods:
            row = self.pods.get(uid)
            if row is not None:
                self.set_pod(row.pod, rv=row.rv, task=row.state)

    def set_object(self, obj: PlainObject, *, rv: int) -> None:
        """Store an object of a plain kind."""
        kind = kind_of(obj)
        row = PlainRow(obj=obj, rv=rv)
        old = self.plain.setdefault(kind, Table()).put(obj.uid, row)
        if old is None or old.obj != obj:
            if old is not None and old.name != row.name:
                self._object_changed(kind, old.name)
            self._object_changed(kind, row.name)

    def remove_object(self, kind: str, uid: str) -> None:
        """Drop an object of a plain kind. Unknown uids are of no account."""
        table = self.plain.get(kind)
        old = None if table is None else table.pop(uid)
        if old is not None:
            self._object_changed(kind, old.name)

    # -- reading

    @property
    def has_pod_affinity(self) -> bool:
        """Whether any live pod has a rule about what other pods are near."""
        return self.shapes.n_social > 0

    def objects(self, kind: str) -> Iterator[PlainObject]:
        """The objects of a plain kind that names mean, in no particular order."""
        table = self.plain.get(kind)
        return iter(()) if table is None else (row.obj for row in table.live())

    def object(self, kind: str, name: Hashable) -> PlainObject | None:
        """The object of a plain kind that a name means; of namespaced ones (namespace, name)."""
        table = self.plain.get(kind)
        row = None if table is None else table.get(name)
        return None if row is None else row.obj

    def config(self, shard: str) -> ShardConfig | None:
        """The configuration of a shard by name; of several the one with the greatest uid."""
        found = [c for c in self.configs.values() if c.name == shard]
        return max(found, key=lambda c: c.uid) if found else None

    def pods_with(self, statuses: frozenset[TaskStatus]) -> Iterator[PodRow]:
        """Pods in one of these statuses, in no particular order."""
        return (row for row in self.pods.values() if row.state.status in statuses)

    # -- private

    def _take_row(self) -> int:
        if self._free_rows:
            return self._free_rows.pop()
        self.pod_rows.append(None)
        return len(self.pod_rows) - 1

    def _unlink_pod(self, old: PodRow) -> None:
        pod = old.pod
        if pod.spec.resource_claims or pod.spec.extended:
            self.devices.link(pod, old.state, is_there=False)
        if pod.group:
            key = (pod.namespace, pod.group)
            _drop(self.pods_of_group, key, pod.uid)
            self._group_changed(key)
        if old.state.node:
            _drop(self.pods_of_node, old.state.node, pod.uid)
            self._node_changed(old.state.node)

    def _node_changed(self, name: str) -> None:
        for follower in self.followers:
            follower.node_changed(name)

    def _group_changed(self, key: GroupKey) -> None:
        for follower in self.followers:
            follower.group_changed(key)

    def _queues_changed(self) -> None:
        for follower in self.followers:
            follower.queues_changed()

    def _object_changed(self, kind: str, name: Hashable) -> None:
        for follower in self.followers:
            follower.object_changed(kind, name)


def _differ(old: PodGroup | Queue, new: PodGroup | Queue) -> bool:
    """Whether columns look different; a group's annotations are in its state."""
    if old == new:
        return False
    return read_part(old, has_marks=True) != read_part(new, has_marks=True)


KeyT = TypeVar("KeyT")


def _drop(index: dict[KeyT, dict[str, PodRow]], key: KeyT, uid: str) -> None:
    rows = index[key]
    del rows[uid]
    if not rows:
        del index[key]
