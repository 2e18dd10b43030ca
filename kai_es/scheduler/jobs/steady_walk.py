"""The walk of the queue tree for an action that only gives to the job it popped last.

Equal to `walk.QueueWalk` as long as between two pops only the queues on the path of the last job
change their place, and the order of queues has no cycles: then every key kept in a heap is still
the present one, so the machine's heap serves, and a pop asks for one key per level
(`tests/property/test_steady_walk.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

from kai_es.scheduler.fairness.vectors import NOTHING
from kai_es.scheduler.jobs.walk import Leaf, SortedJobs, WalkRules

J = TypeVar("J")

_Heap = list[tuple[Any, int, "_Place[Any]"]]


class _Place(Generic[J]):
    """A queue that holds a job somewhere below it.

    heap: children with their keys; moved: its own key may have changed.
    jobs: of a leaf, None of any other queue.
    """

    __slots__ = ("heap", "jobs", "moved", "parent", "queue")

    def __init__(self, queue: int, parent: "_Place[J] | None") -> None:
        self.queue = queue
        self.parent = parent
        self.heap: _Heap = []
        self.jobs: Leaf[J] | None = None
        self.moved = False


class SteadyWalk(Generic[J]):
    """See the module; arguments as of `QueueWalk`, without victims and depth."""

    def __init__(
        self,
        parents: Sequence[int],
        rules: WalkRules[J],
        jobs: Iterable[tuple[int, J]] = (),
        leaves: Mapping[int, Leaf[J]] | None = None,
    ) -> None:
        self._parents = parents
        self._rules = rules
        self._places: dict[int, _Place[J]] = {}
        self._roots: _Heap = []
        for queue, leaf in (leaves or {}).items():
            self._place(queue).jobs = leaf
        for queue, job in jobs:
            self._leaf(self._place(queue)).add(job)
        self._build()

    def __bool__(self) -> bool:
        """Whether a job is left."""
        return bool(self._roots)

    def _leaf(self, place: _Place[J]) -> Leaf[J]:
        if place.jobs is None:
            place.jobs = SortedJobs(self._rules)
        return place.jobs

    def _place(self, queue: int) -> _Place[J]:
        found = self._places.get(queue)
        if found is None:
            parent = self._parents[queue]
            above = self._place(parent) if parent >= 0 else None
            found = self._places[queue] = _Place(queue, above)
        return found

    def _build(self) -> None:
        """Fill the heaps from the deepest level up."""
        depth = {queue: self._depth(place) for queue, place in self._places.items()}
        for queue in sorted(self._places, key=lambda queue: (-depth[queue], queue)):
            place = self._places[queue]
            heapify(place.heap)
            heap = self._roots if place.parent is None else place.parent.heap
            heap.append((self._key(place), queue, place))
        heapify(self._roots)

    def _depth(self, place: _Place[J]) -> int:
        depth = 0
        while place.parent is not None:
            place, depth = place.parent, depth + 1
        return depth

    def _key(self, place: _Place[J]) -> Any:
        leaf = place
        while leaf.heap:
            leaf = leaf.heap[0][2]
        assert leaf.jobs is not None, "every way down ends in a leaf"
        return self._rules.queue_key(place.queue, leaf.jobs.top(), NOTHING)

    def pop(self) -> J | None:
        """Take out the next job; None = none left."""
        heap = self._roots
        if not heap:
            return None
        while heap:
            place = heap[0][2]
            while place.moved:
                place.moved = False
                if len(heap) > 1:
                    heapreplace(heap, (self._key(place), place.queue, place))
                    place = heap[0][2]
            heap = place.heap
        assert place.jobs is not None, "every way down ends in a leaf"
        job: J = place.jobs.take()
        self._leave_or_flag(place)
        return job

    def _leave_or_flag(self, place: _Place[J] | None) -> None:
        while place is not None and not place.jobs and not place.heap:
            del self._places[place.queue]
            heappop(self._roots if place.parent is None else place.parent.heap)
            place = place.parent
        self._flag(place)

    def _flag(self, place: _Place[J] | None) -> None:
        while place is not None:
            place.moved = True
            place = place.parent

    def push(self, queue: int, job: J) -> None:
        """Add a job to a leaf queue; only the one that was popped last."""
        known = queue in self._places
        place = self._place(queue)
        self._leaf(place).add(job)
        if not known:
            self._enter(place)
        self._flag(place)

    def _enter(self, place: _Place[J]) -> None:
        """Put a new leaf, and those of its ancestors that are new, below what is there."""
        while True:
            parent = place.parent
            heap = self._roots if parent is None else parent.heap
            is_new = parent is not None and not heap
            heappush(heap, (self._key(place), place.queue, place))
            if parent is None or not is_new:
                return
            place = parent
