"""Who may give way, in the order in which the queue tree gives them up.

The jobs of a leaf are sorted once and kept sorted; every probe of a search walks over them anew
from the end, which costs nothing but the jobs that it looks at.

Reference: pkg/scheduler/actions/utils/action.go, job_order_by_queue.go (scheduler-core §6.3).
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.resources import GPU_ROW, Vector
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules
from kai_es.scheduler.solve.worklist import queue_order

FORGET_SHARE: Final = 8
"""A leaf of which more than one job in so many has changed at once is made anew."""

Key = tuple[Any, ...]
Keep = Callable[[Job], bool]
Entry = tuple[Key, Work]


class Candidates:
    """Preemptible jobs with an active task by leaf queue, in job order, during one action."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._leaves: dict[int, list[Entry]] = {}
        self._keys: dict[Job, Key] = {}
        self._freed: dict[int, NDArray[np.int64]] = {}
        self._spread: dict[int, bool] = {}
        self._gives: dict[Job, list[tuple[int, Vector]]] = {}

    def leaf(self, queue: int) -> list[Entry]:
        """The jobs of a leaf queue, first served first. Do not change it."""
        found = self._leaves.get(queue)
        if found is None:
            session = self._session
            jobs = dict.fromkeys(session.columns.by_queue.get(queue, {}).values())
            moved = {job: None for job in session.touched() if job.queue == queue}
            jobs.update(moved)
            found = self._leaves[queue] = []
            keys, job_key = self._keys, session.job_key
            for job in jobs:
                if session.gives_way(job) and (job not in moved or session.has(job, IS_ACTIVE)):
                    work = Work(job)
                    key = keys[job] = job_key(work)
                    found.append((key, work))
            found.sort(key=_key)
        return found

    def changed(self, jobs: Iterable[Job]) -> None:
        """Tasks of these jobs were placed or evicted for good."""
        session, jobs = self._session, list(jobs)
        for queue, n in Counter(job.queue for job in jobs).items():
            if n * FORGET_SHARE > len(self._leaves.get(queue, ())):
                self._forget(queue)
        for job in jobs:
            leaf = self._leaves.get(job.queue)
            if leaf is None or not session.gives_way(job):
                continue
            old = self._keys.pop(job, None)
            if old is not None:
                del leaf[bisect_left(leaf, old, key=_key)]
            freed = self._freed.get(job.queue)
            if freed is not None:
                for n, amounts in self._gives.pop(job, ()):
                    freed[:, n] -= amounts
            work = Work(job)
            if session.has(job, IS_ACTIVE):
                key = self._keys[job] = session.job_key(work)
                insort(leaf, (key, work), key=_key)
                if freed is not None:
                    self._count(job, freed)

    def _forget(self, queue: int) -> None:
        """So many have changed that making the list anew, if it is needed, is less work."""
        for _, work in self._leaves.pop(queue, ()):
            self._keys.pop(work.job, None)
            self._gives.pop(work.job, None)
        self._freed.pop(queue, None)

    def freed(self, queue: int) -> NDArray[np.int64]:
        """int64 [R, N]: at most what all jobs of a leaf would free. Do not change it."""
        found = self._freed.get(queue)
        if found is None:
            found = self._freed[queue] = np.zeros_like(self._session.nodes.free)
            self._spread.setdefault(queue, False)
            for _, work in self.leaf(queue):
                self._count(work.job, found)
        return found

    def is_spread(self, queue: int) -> bool:
        """Whether a job of a leaf is on several nodes."""
        self.freed(queue)
        return self._spread[queue]

    def _count(self, job: Job, freed: NDArray[np.int64]) -> None:
        session = self._session
        gives = self._gives[job] = []
        for leaf in job.tasks:
            for task in leaf:
                if session.status[task] in IS_ACTIVE and (n := session.node_of(task)) != NO_ROW:
                    amounts = freed_by(session, task)
                    gives.append((n, amounts))
                    freed[:, n] += amounts
        if len({n for n, _ in gives}) > 1:
            self._spread[job.queue] = True

    def has_below(self, queue: int, priority: int) -> bool:
        """Whether a job of a leaf may be active and has a lower priority."""
        jobs = self._session.columns.by_queue.get(queue, {}).values()
        return any(job.preemptible and job.priority < priority for job in jobs) or any(
            job.queue == queue and job.priority < priority for job in self._session.touched()
        )

    def queues(self) -> list[int]:
        """Leaf queues that hold a job that may be active, in name order."""
        held = {queue for queue, jobs in self._session.columns.by_queue.items() if jobs}
        held |= self._session.touched_queues
        return sorted(queue for queue in held if queue >= 0)


def freed_by(session: Session, task: int) -> Vector:
    """At most what the eviction of a task frees on its node; a share may free its device."""
    tracked = session.demand(task).tracked
    shape = session.row(task).shape
    if not shape.shared:
        return tracked
    freed = tracked.copy()
    freed[GPU_ROW] += shape.spec.gpu.count * GPU_MICRO
    return freed


def _key(entry: Entry) -> Key:
    return entry[0]


def victim_walk(
    session: Session, candidates: Candidates, queues: Iterable[int], keep: Keep
) -> QueueWalk[Work]:
    """A fresh walk over the jobs that may give way.

    Args:
        session: the session.
        candidates: of the action.
        queues: leaf queues to take from.
        keep: whether a job of them may be a victim; asked when it comes up.
    """
    rules: WalkRules[Work] = WalkRules(
        queue_key=queue_order(session),
        job_key=session.job_key,
        victims=True,
        freed=session.allocated,
        flags=session.flags,
    )
    leaves = {
        queue: leaf
        for queue in queues
        if not (leaf := LazyLeaf(candidates.leaf(queue), session.job_key, keep)).is_empty()
    }
    return QueueWalk(session.columns.queues.parent, rules, leaves=leaves)


class LazyLeaf:
    """Jobs of a leaf from the last to the first, over a list that it does not change.

    Equal to a leaf filled with the jobs that pass `keep`, without filling it.
    """

    __slots__ = ("_base", "_extra", "_job_key", "_keep", "_left")

    def __init__(self, base: list[Entry], job_key: Callable[[Work], Key], keep: Keep) -> None:
        self._base = base
        self._left = len(base)
        self._extra: list[Entry] = []
        self._job_key = job_key
        self._keep = keep
        self._skip()

    def _skip(self) -> None:
        base, left, keep = self._base, self._left, self._keep
        while left and not keep(base[left - 1][1].job):
            left -= 1
        self._left = left

    def is_empty(self) -> bool:
        """Whether no job is left."""
        return not self._left and not self._extra

    def __len__(self) -> int:
        return self._left + len(self._extra)

    def add(self, job: Work) -> None:
        """Push a job back."""
        insort(self._extra, (self._job_key(job), job), key=_key)

    def _extra_is_next(self) -> bool:
        if not self._extra:
            return False
        return not self._left or self._extra[-1][0] >= self._base[self._left - 1][0]

    def top(self) -> Work:
        """The next job."""
        if self._extra_is_next():
            return self._extra[-1][1]
        return self._base[self._left - 1][1]

    def take(self) -> Work:
        """Take out the next job."""
        if self._extra_is_next():
            return self._extra.pop()[1]
        job = self._base[self._left - 1][1]
        self._left -= 1
        self._skip()
        return job
