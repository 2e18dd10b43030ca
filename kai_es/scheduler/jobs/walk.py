"""Jobs in the order in which the queue tree serves them.

A leaf queue holds its jobs in job order; every level above holds its queues in queue order. What
an allocation changes is the share of a queue, so a queue is sorted anew only when it comes up
next: the walk is lazy in exactly the way of the reference, because the order of queues deeper in
a heap shows in its results.

Reference: pkg/scheduler/actions/utils/job_order_by_queue.go,
pkg/scheduler/scheduler_util/priority_queue.go (scheduler-core §6.1, §6.2, fairness §4.2).
"""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler.fairness.vectors import NOTHING, Vector, added
from kai_es.scheduler.flags import QUEUE_DEPTH_SLOT, Flags

J = TypeVar("J")
E = TypeVar("E")

Key: TypeAlias = Any  # whatever orders by `<`: tuples, mostly
QueueKey: TypeAlias = Callable[[int, J | None, Vector], Key]
"""`key(queue row, next job or None, resources of its victims so far)`; the lowest is served first.

It is asked anew at every comparison, since shares move; whoever owns the shares caches it.
"""


@dataclass(frozen=True, slots=True)
class WalkRules(Generic[J]):
    """How a walk orders.

    queue_key: order of sibling queues.
    job_key:   order of jobs in a leaf; total, so it ends in an identity.
    victims:   the other way round: who is to give up first.
    freed:     what a victim job would free; asked when it is pushed.
    depth:     most jobs that a leaf holds; `UNLIMITED` = all, below 1 = none.
    flags:     rule flags in force.
    """

    queue_key: QueueKey[J]
    job_key: Callable[[J], Key]
    victims: bool = False
    freed: Callable[[J], Vector] = lambda _job: NOTHING
    depth: int = UNLIMITED
    flags: Flags = frozenset()


class QueueWalk(Generic[J]):
    """Pops the best job of the best queue; jobs may be pushed again at any time.

    Args:
        parents: by queue row, the row of its parent, a negative number at a root. No cycles.
        rules: how to order.
        jobs: (queue row of a leaf, job), in any order.
        leaves: leaf queues that are filled already, none of them empty.
    """

    def __init__(
        self,
        parents: Sequence[int],
        rules: WalkRules[J],
        jobs: Iterable[tuple[int, J]] = (),
        leaves: Mapping[int, "Leaf[J]"] | None = None,
    ) -> None:
        self._parents = parents
        self._rules = rules
        self._nodes: dict[int, _Node[J]] = {}
        self._roots: list[_Node[J]] = []
        self._freed: dict[int, Vector] = {}
        for queue, leaf in (leaves or {}).items():
            self._nodes[queue] = _Node(queue, rules, leaf, self._freed)
        if rules.depth >= 1:
            self._fill(jobs)

    def __bool__(self) -> bool:
        """Whether a job is left."""
        return bool(self._roots)

    def push(self, queue: int, job: J) -> None:
        """Add a job to a leaf queue."""
        if self._rules.depth < 1:
            return
        node = self._nodes.get(queue)
        if node is None:
            node = self._nodes[queue] = self._new(queue)
            node.add(job)
            self._link(node)
        else:
            node.add(job)
        self._flag(node)

    def pop(self) -> J | None:
        """Take out the next job; None = none left."""
        if not self._roots:
            return None
        node = self._top(self._roots)
        while node.children:
            node = self._top(node.children)
        job = node.take()
        self._drop_or_flag(node)
        return job

    def _fill(self, jobs: Iterable[tuple[int, J]]) -> None:
        """Equal to a push per job, save that no heap is built before its queues are complete."""
        for queue, job in jobs:
            node = self._nodes.get(queue)
            if node is None:
                node = self._nodes[queue] = self._new(queue)
            node.add(job)
        by_depth: dict[int, list[_Node[J]]] = {}
        for queue in sorted(self._nodes):
            path = self._ancestors(queue)
            by_depth.setdefault(len(path), []).append(self._nodes[queue])
        for depth in range(max(by_depth, default=-1), 0, -1):
            for node in by_depth[depth]:
                row = self._parents[node.queue]
                parent = self._nodes.get(row)
                if parent is None:
                    parent = self._nodes[row] = self._new(row)
                    by_depth.setdefault(depth - 1, []).append(parent)
                node.parent = parent
                self._enter(parent.children, node)
        for node in by_depth.get(0, ()):
            self._enter(self._roots, node)

    def _ancestors(self, queue: int) -> list[int]:
        path: list[int] = []
        while (queue := self._parents[queue]) >= 0:
            path.append(queue)
        return path

    def _new(self, queue: int) -> "_Node[J]":
        slots = QUEUE_DEPTH_SLOT in self._rules.flags and self._rules.depth < UNLIMITED
        jobs: Leaf[J] = _SlotJobs(self._rules) if slots else SortedJobs(self._rules)
        return _Node(queue, self._rules, jobs, self._freed)

    def _link(self, node: "_Node[J]") -> None:
        """Puts a new node below its parent, creating the ancestors that are missing."""
        while (row := self._parents[node.queue]) >= 0:
            parent = self._nodes.get(row)
            if parent is not None:
                node.parent = parent
                self._enter(parent.children, node)
                return
            node.parent = self._nodes[row] = self._new(row)
            node.parent.children.append(node)
            node = node.parent
        self._enter(self._roots, node)

    def _drop_or_flag(self, node: "_Node[J]") -> None:
        while node.is_empty():  # the node came up as the top of its heap, so it leaves as such
            del self._nodes[node.queue]
            heap = self._roots if node.parent is None else node.parent.children
            last = heap.pop()
            if heap:
                heap[0] = last
                _sink(heap, len(heap), victims=self._rules.victims)
            if node.parent is None:
                return
            node = node.parent
        self._flag(node)

    def _flag(self, node: "_Node[J] | None") -> None:
        while node is not None:
            node.moved = True
            node = node.parent

    def _top(self, heap: list["_Node[J]"]) -> "_Node[J]":
        while heap[0].moved:
            heap[0].moved = False
            if len(heap) > 1:
                _sink(heap, len(heap), victims=self._rules.victims)
        return heap[0]

    def _enter(self, heap: list["_Node[J]"], node: "_Node[J]") -> None:
        heap.append(node)
        _sift_up(heap, self._before)

    def _before(self, one: "_Node[J]", other: "_Node[J]") -> bool:
        if self._rules.victims:
            one, other = other, one
        return bool(one.key() < other.key())


class Leaf(Protocol[J]):
    """The jobs of a leaf queue in the order in which they leave it."""

    def __len__(self) -> int: ...

    def add(self, job: J) -> None:
        """Put a job in its place."""

    def top(self) -> J:
        """The next job; there is one."""

    def take(self) -> J:
        """Take the next job out."""


class _Node(Generic[J]):
    """A queue that holds a job somewhere below it.

    moved: its share may have changed since it was sorted in.
    freed: by queue row, what the victims already popped from a leaf would free; it outlives the
           node, which goes when it is empty and may come back.
    """

    __slots__ = ("_rules", "children", "freed", "jobs", "moved", "parent", "queue")

    def __init__(
        self, queue: int, rules: WalkRules[J], jobs: Leaf[J], freed: dict[int, Vector]
    ) -> None:
        self._rules = rules
        self.queue = queue
        self.parent: _Node[J] | None = None
        self.children: list[_Node[J]] = []
        self.jobs = jobs
        self.moved = False
        self.freed = freed

    def is_empty(self) -> bool:
        return not self.children and not self.jobs

    def add(self, job: J) -> None:
        self.jobs.add(job)

    def take(self) -> J:
        job = self.jobs.take()
        if self._rules.victims:
            before = self.freed.get(self.queue, NOTHING)
            self.freed[self.queue] = added(before, self._rules.freed(job))
        return job

    def key(self) -> Key:
        """Place among its siblings, by the best job that is reachable from it."""
        leaf = self
        while leaf.children:
            leaf = leaf.children[0]
        job = leaf.jobs.top()
        if self._rules.victims:
            freed = added(leaf.freed.get(leaf.queue, NOTHING), self._rules.freed(job))
            return self._rules.queue_key(self.queue, None, freed)
        return self._rules.queue_key(self.queue, job, NOTHING)


class SortedJobs(Generic[J]):
    """The jobs of a leaf in order; beyond the depth the worst one goes."""

    __slots__ = ("_depth", "_entries", "_head", "_is_sorted", "_key", "_n", "_victims")

    def __init__(self, rules: WalkRules[J]) -> None:
        self._entries: list[tuple[Key, int, J]] = []  # rising key; the number keeps jobs apart
        self._head = 0
        self._is_sorted = True
        self._n = 0
        self._key = rules.job_key
        self._victims = rules.victims
        self._depth = rules.depth

    def __len__(self) -> int:
        return len(self._entries) - self._head

    def add(self, job: J) -> None:
        """See `Leaf`."""
        entry = (self._key(job), self._n, job)
        self._n += 1
        if self._head == 0 and len(self._entries) < self._depth:
            self._entries.append(entry)  # sorted at the first look
            self._is_sorted = False
            return
        self._sort()
        insort(self._entries, entry, lo=self._head)
        if len(self) > self._depth:
            del self._entries[self._head if self._victims else -1]

    def top(self) -> J:
        """See `Leaf`."""
        self._sort()
        return self._entries[-1 if self._victims else self._head][2]

    def take(self) -> J:
        """See `Leaf`."""
        self._sort()
        if self._victims:
            return self._entries.pop()[2]
        job = self._entries[self._head][2]
        self._head += 1
        return job

    def _sort(self) -> None:
        if not self._is_sorted:
            self._entries.sort()
            self._is_sorted = True


class _SlotJobs(Generic[J]):
    """compat: a bounded binary heap that drops its last slot (Q-6)."""

    __slots__ = ("_depth", "_entries", "_key")

    def __init__(self, rules: WalkRules[J]) -> None:
        self._entries: list[tuple[Key, J]] = []
        self._key = rules.job_key
        self._depth = rules.depth

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, job: J) -> None:
        self._entries.append((self._key(job), job))
        _sift_up(self._entries, _key_before)
        del self._entries[self._depth :]

    def top(self) -> J:
        return self._entries[0][1]

    def take(self) -> J:
        return _pop_top(self._entries, _key_before)[1]


def _key_before(one: tuple[Key, Any], other: tuple[Key, Any]) -> bool:
    return bool(one[0] < other[0])


# -- the binary heap of the reference's language, step for step: what it leaves where is visible


def _sift_up(heap: list[E], before: Callable[[E, E], bool]) -> None:
    at = len(heap) - 1
    while at and before(heap[at], heap[(at - 1) // 2]):
        above = (at - 1) // 2
        heap[at], heap[above] = heap[above], heap[at]
        at = above


def _sink(heap: list[_Node[J]], size: int, *, victims: bool) -> None:
    """Equal to `_sift_down` with the order of nodes; each key is asked for once."""
    at, node = 0, heap[0]
    key = node.key()
    while (below := 2 * at + 1) < size:
        child_key = heap[below].key()
        if below + 1 < size:
            other_key = heap[below + 1].key()
            if child_key < other_key if victims else other_key < child_key:
                below, child_key = below + 1, other_key
        if not (key < child_key if victims else child_key < key):
            break
        heap[at], at = heap[below], below
    heap[at] = node


def _sift_down(heap: list[E], size: int, before: Callable[[E, E], bool]) -> None:
    at = 0
    while (below := 2 * at + 1) < size:
        if below + 1 < size and before(heap[below + 1], heap[below]):
            below += 1
        if not before(heap[below], heap[at]):
            return
        heap[at], heap[below] = heap[below], heap[at]
        at = below


def _pop_top(heap: list[E], before: Callable[[E, E], bool]) -> E:
    last = len(heap) - 1
    heap[0], heap[last] = heap[last], heap[0]
    _sift_down(heap, last, before)
    return heap.pop()
