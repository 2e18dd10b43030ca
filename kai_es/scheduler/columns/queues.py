"""The queue tree of a shard and what each queue uses and wants.

Reference: pkg/scheduler/cache/cluster_info/queue.go (scheduler-core §4.8, fairness §2.2).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kai_es.kube.objects import Queue, QueueShare
from kai_es.scheduler.columns.lens import Lens

Fair = tuple[int, int, int]
"""CPU millicores, memory bytes, GPUs in gpu_micro."""

NOTHING: Final[Fair] = (0, 0, 0)
NO_QUEUE: Final = -1
FLAT_ROOT: Final = "default"
"""The one parent of all queues while the hierarchy is off."""

_FREE: Final = QueueShare(quota=-1, limit=-1, weight=1)


def plus(left: Fair, right: Fair) -> Fair:
    """Sum by resource."""
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def minus(left: Fair, right: Fair) -> Fair:
    """Difference by resource."""
    return left[0] - right[0], left[1] - right[1], left[2] - right[2]


class Uses:
    """What one job, or all jobs below a queue, use and want.

    allocated:   of tasks that are allocated, binding, bound or running.
    fixed:       the part of it that belongs to non-preemptible jobs.
    requested:   allocated and pending.
    memory_mib:  device memory of pending requests by memory, which weigh by the smallest device.
    """

    __slots__ = ("allocated", "fixed", "memory_mib", "requested")

    def __init__(
        self,
        allocated: Fair = NOTHING,
        fixed: Fair = NOTHING,
        requested: Fair = NOTHING,
        memory_mib: int = 0,
    ) -> None:
        self.allocated = allocated
        self.fixed = fixed
        self.requested = requested
        self.memory_mib = memory_mib

    def add(self, other: "Uses") -> None:
        """Count another's amounts in."""
        self.allocated = plus(self.allocated, other.allocated)
        self.fixed = plus(self.fixed, other.fixed)
        self.requested = plus(self.requested, other.requested)
        self.memory_mib += other.memory_mib

    def take(self, other: "Uses") -> None:
        """Count another's amounts out."""
        self.allocated = minus(self.allocated, other.allocated)
        self.fixed = minus(self.fixed, other.fixed)
        self.requested = minus(self.requested, other.requested)
        self.memory_mib -= other.memory_mib


class QueueColumns:
    """Queues of the shard, one row each, in byte order of the name. Q queues.

    names, queues: length Q.
    row:      name -> row.
    parent:   row of the parent, NO_QUEUE for a root.
    children: rows of the children, in name order; a leaf has none.
    path:     rows from a queue up to its root, itself first.
    uses:     sums over the jobs below each queue.
    broken:   names that lie on or below a cycle of parents.
    """

    def __init__(self, queues: Iterable[Queue], lens: Lens) -> None:
        found = {queue.name: queue for queue in queues if lens.selects(queue.labels)}
        if not lens.full_hierarchy:
            found = _flattened(found)
        kept, self.broken = _rooted(found)
        self.names = sorted(kept)
        self.queues = [kept[name] for name in self.names]
        self.row: Mapping[str, int] = {name: row for row, name in enumerate(self.names)}
        self.parent = [self.row.get(queue.parent, NO_QUEUE) for queue in self.queues]
        self.children: list[tuple[int, ...]] = [()] * len(self.names)
        for row, parent in enumerate(self.parent):
            if parent != NO_QUEUE:
                self.children[parent] += (row,)
        self.roots = tuple(row for row, parent in enumerate(self.parent) if parent == NO_QUEUE)
        self.path = [self._path(row) for row in range(len(self.names))]
        self.uses = [Uses() for _ in self.names]

    def __len__(self) -> int:
        return len(self.names)

    def _path(self, row: int) -> tuple[int, ...]:
        path = [row]
        while (row := self.parent[row]) != NO_QUEUE:
            path.append(row)
        return tuple(path)

    def is_leaf(self, row: int) -> bool:
        """Whether a queue may hold jobs."""
        return not self.children[row]

    def count_in(self, row: int, uses: Uses) -> None:
        """A job of this queue uses that much."""
        for queue in self.path[row]:
            self.uses[queue].add(uses)

    def count_out(self, row: int, uses: Uses) -> None:
        """A job of this queue no longer uses that much."""
        for queue in self.path[row]:
            self.uses[queue].take(uses)


def _flattened(found: Mapping[str, Queue]) -> dict[str, Queue]:
    """Queues that have a parent, all below one root without quota or limit."""
    root = Queue(uid="", name=FLAT_ROOT, gpu=_FREE, cpu=_FREE, memory=_FREE)
    flat = {
        name: _below(queue, FLAT_ROOT)
        for name, queue in found.items()
        if queue.parent and name != FLAT_ROOT
    }
    return {**flat, FLAT_ROOT: root}


def _below(queue: Queue, parent: str) -> Queue:
    return msgspec.structs.replace(queue, parent=parent)


def _rooted(found: Mapping[str, Queue]) -> tuple[dict[str, Queue], frozenset[str]]:
    """The queues whose ancestors all exist, and the names that a cycle cuts off.

    The reference never ends on a cycle; here its queues count as missing, with a reason.
    """
    kept: dict[str, Queue] = {}
    broken: set[str] = set()
    verdict: dict[str, bool] = {}
    for start in sorted(found):
        walked: list[str] = []
        name, rooted = start, True
        while name not in verdict:
            if name in walked:
                broken.update(walked)
                rooted = False
                break
            walked.append(name)
            parent = found[name].parent
            if not parent:
                break
            if parent not in found:
                rooted = False
                break
            name = parent
        else:
            rooted = verdict[name]
            if name in broken:
                broken.update(walked)
        verdict.update(dict.fromkeys(walked, rooted))
    kept = {name: queue for name, queue in found.items() if verdict[name]}
    return kept, frozenset(broken)
