"""Batches to usage: who held, asked for and offered how much, from when to when.

State is a function of the objects in force; the books are its run-length encoding over the log's
clock. Nothing but `snapshot` is read, so a rebuild gives the same rows.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar, get_args

from kai_es.events.catalogue import OBJECTS
from kai_es.events.snapshot import AliveSeen, Batch, Origin, Removed, Row, Upserted
from kai_es.kube.objects import Node, Pod, PodGroup, Queue
from kai_es.snapshot.observed import GAP_MS, Since, observed_ms
from kai_es.snapshot.ranking import TOMBSTONE_KEEP_MS, Live, Objects, Rank
from projectors.facts import (
    NO_GROUP,
    NO_NODE,
    Allocation,
    Capacity,
    GroupFacts,
    NodeFacts,
    NodeVersion,
    QueueVersion,
    Request,
    asked,
    belongs,
    group_facts,
    held,
    is_allocated,
    is_waiting,
    node_facts,
    queue_of,
    queue_version,
    wanted_place,
)
from projectors.names import Names
from projectors.runs import Moment, RunRows, Runs

ALIVE_COVERS_MS: Final = GAP_MS
"""An `Alive` (one every 2 s) vouches that what the watch delivered since is seen at once."""
_FORGET_EVERY_MS: Final = 60_000
QUEUE_DEPTH_MAX: Final = 64
"""Deeper paths are cut at the top; nobody nests queues so far, but a cycle would never end."""

Kept: TypeAlias = Pod | Node | PodGroup | Queue
"""Objects that usage depends on."""

KINDS: Final = frozenset(kind.__name__ for kind in get_args(Kept))
GroupKey = tuple[str, str]
K = TypeVar("K")


class UsageRows(NamedTuple):
    """Changes of the tables of the usage projection since the last `take`."""

    allocations: RunRows[Allocation]
    requests: RunRows[Request]
    capacities: RunRows[Capacity]
    nodes: RunRows[NodeVersion]
    queues: RunRows[QueueVersion]

    def n_rows(self) -> int:
        """Rows to be written."""
        return sum(len(table) for table in self)

    def first_ms(self) -> int | None:
        """Earliest time from which usage is other than before; None = nothing changed."""
        times = [t for table in self if (t := table.first_ms()) is not None]
        return min(times, default=None)


class Stored(NamedTuple):
    """Open intervals in the database: key -> (start in ms, start offset)."""

    allocations: Mapping[str, tuple[int, int]] = {}
    requests: Mapping[str, tuple[int, int]] = {}
    capacities: Mapping[str, tuple[int, int]] = {}
    nodes: Mapping[str, tuple[int, int]] = {}
    queues: Mapping[str, tuple[int, int]] = {}


class Usage:
    """The fold. Feed every accepted batch in order, collect the rows with `take`."""

    def __init__(self) -> None:
        self.allocations: Runs[Allocation] = Runs()
        self.requests: Runs[Request] = Runs()
        self.capacities: Runs[Capacity] = Runs()
        self.nodes: Runs[NodeVersion] = Runs()
        self.queues: Runs[QueueVersion] = Runs()
        self.objects = Objects()
        self.alive: dict[int, int] = {}
        self._time_ms = 0
        self._forgot = 0
        self._node_names: Names[str, NodeFacts] = Names()
        self._group_names: Names[GroupKey, GroupFacts] = Names()
        self._queue_names: Names[str, Queue] = Names()
        self._paths: dict[str, tuple[str, ...]] = {}
        self._by_node: dict[str, dict[str, None]] = {}
        self._by_group: dict[GroupKey, dict[str, None]] = {}
        self._by_queue: dict[str, dict[str, None]] = {}
        self._queue_of_pod: dict[str, str] = {}
        self._memory_min: int | None = None

    def fold(self, offset: int, batch: Batch) -> None:
        """Fold an accepted batch."""
        prev, time = self._time_ms, batch.time
        self._time_ms = time
        if prev and time - prev > GAP_MS:
            for moment, row in self._in_gap(prev, offset, batch):
                self._row(row, moment)
        else:
            at = Moment(time, offset)
            for row in batch.rows:
                if type(row) is AliveSeen:
                    self._alive(row)
                else:
                    self._row(row, at)
        if time // _FORGET_EVERY_MS > self._forgot:
            self._forgot = time // _FORGET_EVERY_MS
            for _ in self.objects.forget(before_ms=time - TOMBSTONE_KEEP_MS):
                pass

    def take(self) -> UsageRows:
        """The changes since the last call."""
        return UsageRows(
            self.allocations.take(),
            self.requests.take(),
            self.capacities.take(),
            self.nodes.take(),
            self.queues.take(),
        )

    def n_changes(self) -> int:
        """About how much `take` would return."""
        return len(self.allocations) + len(self.requests) + len(self.capacities)

    def restore(
        self, objects: Objects, *, alive: Mapping[int, int], at: Moment, stored: Stored
    ) -> None:
        """Take up the fold after a batch, with the open intervals that are stored.

        An object in force without a stored interval (somebody deleted rows) gets one from the time
        it was first seen so; a stored interval without such an object is closed now.

        Args:
            objects: all objects in force after that batch; they are copied.
            alive: time of the newest `Alive` by partition of `objects`, ms.
            at: time and offset of that batch.
            stored: open intervals of each table.
        """
        assert self._time_ms == 0, "restored into a fold that has begun"
        self._time_ms, self._forgot = at.time_ms, at.time_ms // _FORGET_EVERY_MS
        self.alive = dict(alive)
        self.objects = objects.copy(sorted(KINDS))
        self._restore_names()
        for entry in self._entries("Pod"):
            assert isinstance(entry.obj, Pod)
            self._link(entry.obj)
            since = entry.bound if entry.obj.node else entry.pending
            self._judge(entry.obj, _moment(since or entry.seen))
        self.allocations.align(stored.allocations, at)
        self.requests.align(stored.requests, at)
        self.capacities.align(stored.capacities, at)
        self.nodes.align(stored.nodes, at)
        self.queues.align(stored.queues, at)

    def _restore_names(self) -> None:
        for entry in self._entries("Node"):
            assert isinstance(entry.obj, Node)
            facts = node_facts(entry.obj)
            self._node_names.put(entry.obj.name, entry.obj.uid, entry.rank, facts)
        for entry in self._entries("PodGroup"):
            assert isinstance(entry.obj, PodGroup)
            key = (entry.obj.namespace, entry.obj.name)
            self._group_names.put(key, entry.obj.uid, entry.rank, group_facts(entry.obj))
        for entry in self._entries("Queue"):
            assert isinstance(entry.obj, Queue)
            self._queue_names.put(entry.obj.name, entry.obj.uid, entry.rank, entry.obj)
        for entry in self._entries("Node"):
            assert isinstance(entry.obj, Node)
            self._set_node(entry.obj.name, _moment(entry.stood or entry.seen))
        for entry in self._entries("Queue"):
            assert isinstance(entry.obj, Queue)
            self._set_queue(entry.obj.name, _moment(entry.seen))

    def _entries(self, kind: str) -> Iterable[Live]:
        return self.objects.live.get(kind, {}).values()

    def _in_gap(self, prev: int, offset: int, batch: Batch) -> Iterator[tuple[Moment, Row]]:
        """Rows of a batch after a gap, each at its own time within the gap, in order of time."""
        rows: list[tuple[int, int, Row, Origin]] = []
        for n, (row, origin) in enumerate(zip(batch.rows, batch.origins, strict=True)):
            ms = observed_ms(prev_time=prev, time=batch.time, ingest_ms=origin.ingest_ms)
            rows.append((ms, n, row, origin))
        rows.sort(key=lambda entry: entry[:2])
        for ms, _, row, origin in rows:
            if isinstance(row, AliveSeen):
                self._alive(row)
                continue
            source = batch.cursors[origin.source]
            alive = self.alive.get(source.partition, 0) if source.topic == OBJECTS else 0
            covered = origin.ingest_ms - ALIVE_COVERS_MS <= alive
            yield Moment(ms, offset, not covered), row

    def _alive(self, row: AliveSeen) -> None:
        self.alive[row.partition] = max(self.alive.get(row.partition, 0), row.time)

    def _row(self, row: Row, at: Moment) -> None:
        if isinstance(row, Upserted):
            self._upserted(row, at)
        elif isinstance(row, Removed) and row.kind in KINDS:
            rank = Rank(row.incarnation, row.rv)
            entry = self.objects.remove(row.kind, row.uid, rank=rank, time_ms=at.time_ms)
            if entry is not None:
                assert isinstance(entry.obj, Kept)
                self._changed(entry.obj, None, rank, at)

    def _upserted(self, row: Upserted, at: Moment) -> None:
        obj = row.obj
        if not isinstance(obj, Kept):
            return
        former = self.objects.get(type(obj).__name__, obj.uid)
        old = former.obj if former is not None else None
        assert old is None or isinstance(old, Kept)
        rank = Rank(row.incarnation, row.rv)
        since = Since(at.time_ms, at.offset)
        if self.objects.upsert(obj, rank=rank, since=since) is not None:
            self._changed(old, obj, rank, at)

    def _changed(self, old: Kept | None, new: Kept | None, rank: Rank, at: Moment) -> None:
        """One object is other than before. `rank`: of its version in force, or of its delete."""
        match new or old:
            case Pod():
                assert old is None or isinstance(old, Pod)
                assert new is None or isinstance(new, Pod)
                self._pod(old, new, at)
            case Node() as node:
                self._node(node, rank, at, gone=new is None)
            case PodGroup() as group:
                self._group(group, rank, at, gone=new is None)
            case Queue() as queue:
                self._queue(queue, rank, at, gone=new is None)

    # -- pods

    def _pod(self, old: Pod | None, new: Pod | None, at: Moment) -> None:
        stays = (
            old is not None and new is not None and (old.node, old.group) == (new.node, new.group)
        )
        if old is not None and not stays:
            _unlink(self._by_node, old.node, old.uid)
            _unlink(self._by_group, (old.namespace, old.group), old.uid)
        if new is None:
            assert old is not None
            self._gone(old.uid, at)
            return
        if not stays:
            self._link(new)
        self._judge(new, at)

    def _link(self, pod: Pod) -> None:
        if pod.node:
            self._by_node.setdefault(pod.node, {})[pod.uid] = None
        if pod.group:
            self._by_group.setdefault((pod.namespace, pod.group), {})[pod.uid] = None

    def _gone(self, uid: str, at: Moment) -> None:
        _unlink(self._by_queue, self._queue_of_pod.pop(uid, ""), uid)
        self.allocations.set(uid, None, at)
        self.requests.set(uid, None, at)

    def _judge(self, pod: Pod, at: Moment) -> None:
        """Set what a pod holds and asks for."""
        uid = pod.uid
        if is_allocated(pod):
            group = self._group_of(pod)
            node = self._node_names.get(pod.node) or NO_NODE
            place = node.capacity
            allocation = Allocation(
                amounts=held(pod, node),
                node=pod.node,
                node_pool=place.node_pool,
                gpu_type=place.gpu_type,
                belongs=belongs(pod, group, self._charge(pod, group)),
            )
            self.requests.set(uid, None, at)
            self.allocations.set(uid, allocation, at)
        elif is_waiting(pod):
            group = self._group_of(pod)
            pool, gpu_type = wanted_place(pod)
            minimum = self._gpu_memory_min() if pod.spec.gpu.memory_mib else 0
            request = Request(
                amounts=asked(pod, gpu_memory_min_mib=minimum),
                node_pool=pool,
                gpu_type=gpu_type,
                belongs=belongs(pod, group, self._charge(pod, group)),
            )
            self.allocations.set(uid, None, at)
            self.requests.set(uid, request, at)
        else:
            self._gone(uid, at)

    def _group_of(self, pod: Pod) -> GroupFacts:
        return self._group_names.get((pod.namespace, pod.group)) or NO_GROUP

    def _charge(self, pod: Pod, group: GroupFacts) -> tuple[str, ...]:
        """Path of the queue that a pod is charged to; keeps the index of pods by queue."""
        queue = queue_of(pod, group)
        former = self._queue_of_pod.get(pod.uid)
        if former != queue:
            if former is not None:
                _unlink(self._by_queue, former, pod.uid)
            self._queue_of_pod[pod.uid] = queue
            self._by_queue.setdefault(queue, {})[pod.uid] = None
        return self._path(queue)

    def _judge_all(self, uids: Iterable[str], at: Moment) -> None:
        for uid in tuple(uids):
            entry = self.objects.get("Pod", uid)
            assert entry is not None, f"index names pod {uid}, which is gone"
            assert isinstance(entry.obj, Pod)
            self._judge(entry.obj, at)

    # -- nodes

    def _node(self, node: Node, rank: Rank, at: Moment, *, gone: bool) -> None:
        before = self._node_names.get(node.name)
        if gone:
            self._node_names.pop(node.name, node.uid)
        else:
            self._node_names.put(node.name, node.uid, rank, node_facts(node))
        now = self._node_names.get(node.name)
        if now == before:
            return
        self._memory_min = None
        self._set_node(node.name, at)
        self._judge_all(self._by_node.get(node.name, ()), at)

    def _set_node(self, name: str, at: Moment) -> None:
        facts = self._node_names.get(name)
        if facts is None:
            self.capacities.set(name, None, at)
            self.nodes.set(name, None, at)
            return
        place = facts.capacity
        version = NodeVersion(place.node_uid, place.node_pool, place.gpu_type, place.state)
        self.capacities.set(name, place, at)
        self.nodes.set(name, version, at)

    def _gpu_memory_min(self) -> int:
        """Smallest known memory per device over all nodes, MiB, 0 = none is known."""
        if self._memory_min is None:
            known = (facts.gpu_memory_mib for facts in self._node_names.values())
            self._memory_min = min((mib for mib in known if mib), default=0)
        return self._memory_min

    # -- groups and queues

    def _group(self, group: PodGroup, rank: Rank, at: Moment, *, gone: bool) -> None:
        key = (group.namespace, group.name)
        before = self._group_names.get(key)
        if gone:
            self._group_names.pop(key, group.uid)
        else:
            self._group_names.put(key, group.uid, rank, group_facts(group))
        if self._group_names.get(key) != before:
            self._judge_all(self._by_group.get(key, ()), at)

    def _queue(self, queue: Queue, rank: Rank, at: Moment, *, gone: bool) -> None:
        before = self._queue_names.get(queue.name)
        if gone:
            self._queue_names.pop(queue.name, queue.uid)
        else:
            self._queue_names.put(queue.name, queue.uid, rank, queue)
        now = self._queue_names.get(queue.name)
        if now == before:
            return
        if now is None or before is None or now.parent != before.parent:
            self._repath(at)
        self._set_queue(queue.name, at)

    def _set_queue(self, name: str, at: Moment) -> None:
        queue = self._queue_names.get(name)
        version = queue_version(queue, self._path(name)) if queue is not None else None
        self.queues.set(name, version, at)

    def _path(self, queue: str) -> tuple[str, ...]:
        """Names from the top queue to this one; () for no queue."""
        path = self._paths.get(queue)
        if path is None:
            path = self._paths[queue] = self._walk(queue)
        return path

    def _walk(self, queue: str) -> tuple[str, ...]:
        names: list[str] = []
        while queue and queue not in names and len(names) < QUEUE_DEPTH_MAX:
            names.append(queue)
            known = self._queue_names.get(queue)
            queue = known.parent if known is not None else ""
        return tuple(reversed(names))

    def _repath(self, at: Moment) -> None:
        """The tree changed: whoever has another path now is judged anew."""
        before, self._paths = self._paths, {}
        for queue, path in before.items():
            if self._path(queue) == path:
                continue
            self._set_queue(queue, at)
            self._judge_all(self._by_queue.get(queue, ()), at)


def _unlink(index: dict[K, dict[str, None]], key: K, uid: str) -> None:
    uids = index.get(key)
    if uids is not None:
        uids.pop(uid, None)
        if not uids:
            del index[key]


def _moment(since: Since) -> Moment:
    return Moment(since.time_ms, since.offset)
