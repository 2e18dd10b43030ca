"""Which running jobs are worth moving to make room for a pending one.

The reference looks at a bounded, arbitrary set of jobs (Q-13) and so seldom finds a move on a
large cluster. Here the set is chosen: for each pending task in turn the node that becomes free
with the fewest pods moved.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.resources import GPU_ROW, Vector
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.solve.victims import freed_by

NODES_MAX: Final = 64
"""Nodes looked at per task, those that lack least: the others would cost more moves."""


class Movable:
    """Chooses jobs to move, node by node.

    Args:
        session: the session.
        job: the pending job.
        skip: nodes that have been tried in vain.
    """

    def __init__(self, session: Session, job: Job, skip: Iterable[int] = ()) -> None:
        self._session = session
        self._job = job
        self._skip = set(skip)
        self._free = session.nodes.free.copy()
        self._gone: set[Job] = set()
        self.nodes: list[int] = []

    def choose(self, tasks: Sequence[int], most: int) -> list[Job]:
        """Jobs whose pods must move so that all tasks find room; [] if more than `most`."""
        chosen: list[Job] = []
        for task in tasks:
            found = self._cheapest(task)
            if found is None:
                return []
            n, jobs = found
            self.nodes.append(n)
            for job in jobs:
                self._take(job)
                chosen.append(job)
            if len(chosen) > most:
                return []
            self._free[:, n] -= self._session.demand(task).request
        return chosen

    def _take(self, job: Job) -> None:
        self._gone.add(job)
        for task in self._active(job):
            n = self._session.node_of(task)
            self._free[:, n] += freed_by(self._session, task)

    def _active(self, job: Job) -> list[int]:
        session = self._session
        return [
            task
            for leaf in job.tasks
            for task in leaf
            if session.status[task] in IS_ACTIVE and session.node_of(task) != NO_ROW
        ]

    def _cheapest(self, task: int) -> tuple[int, list[Job]] | None:
        """The node that takes the task with the fewest pods moved, and their jobs.

        Of several the one whose jobs have the lowest priority, then the youngest.
        """
        fit = self._session.fits.of(task)
        request = fit.demand.request
        lacking = np.maximum(request[:, None] - self._free, 0)
        order = np.lexsort((lacking.sum(axis=0), lacking[GPU_ROW]))
        order = order[fit.allowed[order]]
        best: tuple[tuple[object, ...], int, list[Job]] | None = None
        looked = 0
        for n in order.tolist():
            if n in self._skip:
                continue
            looked += 1
            if looked > NODES_MAX:
                break
            jobs = self._to_move(n, lacking[:, n])
            if jobs is None:
                continue
            if not jobs:
                return n, []
            cost = sum(len(self._active(job)) for job in jobs)
            merit = (-cost, *min((-job.priority, job.order) for job in jobs))
            if best is None or merit > best[0]:
                best = (merit, n, jobs)
        return None if best is None else (best[1], best[2])

    def _to_move(self, n: int, lacking: NDArray[np.int64]) -> list[Job] | None:
        """Jobs on a node that free what it lacks, the largest first; None = not enough of them."""
        if not lacking.any():
            return []
        gives = self._on_node(n)
        jobs = sorted(gives, key=lambda job: (-int(gives[job][GPU_ROW]), job.order))
        left = lacking.copy()
        found: list[Job] = []
        for job in jobs:
            if not np.minimum(gives[job], left).any():
                continue
            found.append(job)
            left = np.maximum(left - gives[job], 0)
            if not left.any():
                return found
        return None

    def _on_node(self, n: int) -> dict[Job, Vector]:
        """What each job that may move would free on a node."""
        session = self._session
        name = session.nodes.columns.facts[n].name
        found: dict[Job, Vector] = {}
        for row in session.columns.rows.pods_of_node.get(name, {}).values():
            job = session.columns.job_of[row.row] if row.pod.group else None
            if job is None or job is self._job or job in self._gone:
                continue
            if not session.gives_way(job):
                continue
            task = row.row
            if session.status[task] in IS_ACTIVE and session.node_of(task) == n:
                freed = freed_by(session, task)
                found[job] = found[job] + freed if job in found else freed
        return found
