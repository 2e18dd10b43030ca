"""The jobs that an action works on, in the order in which the queue tree serves them.

Reference: pkg/scheduler/actions/utils/input_jobs.go (scheduler-core §6.2).
"""

from collections.abc import Callable, Iterable, Iterator

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE, Fair
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules


def pending_works(
    session: Session, action: str, keep: Callable[[Job], bool] | None = None
) -> QueueWalk[Work]:
    """A walk over the jobs that have pending tasks, are ready and free, and pass `keep`."""
    depth = session.config.queue_depth.get(action, -1)
    queues = session.columns.queues
    rules = WalkRules(
        queue_key=queue_order(session),
        job_key=session.job_key,
        depth=UNLIMITED if depth < 0 else depth,
        flags=session.flags,
    )
    works = [
        (job.queue, Work(job))
        for job in session.pending_jobs()
        if job.queue != NO_QUEUE
        and queues.is_leaf(job.queue)
        and session.is_ready(job)
        and session.is_free(job)
        and (keep is None or keep(job))
    ]
    return QueueWalk(queues.parent, rules, works)


def queue_order(session: Session) -> Callable[[int, Work | None, Fair], object]:
    """The order of sibling queues; without a plugin that has one, by age and name."""
    if session.ext.queue_key is not None:
        return session.ext.queue_key
    queues = session.columns.queues.queues

    def by_age(row: int, _work: Work | None, _freed: Fair) -> object:
        return queues[row].created_ms, queues[row].name

    return by_age


class OrderOfPlacing:
    """In which order a simulation lets jobs ask for a place.

    All jobs with pending tasks stand in the queue tree, so that the order is the real one; only
    the victims and the pending job are let through.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._works: list[tuple[int, Work]] | None = None

    def changed(self) -> None:
        """Tasks were placed or evicted for good."""
        self._works = None

    def walk(self, victims: Iterable[Job], pending: Work) -> Iterator[Work]:
        """Victims and the pending job, in order."""
        session = self._session
        queues = session.columns.queues
        if self._works is None:
            self._works = [
                (job.queue, Work(job))
                for job in session.pending_jobs()
                if job.queue != NO_QUEUE and queues.is_leaf(job.queue)
            ]
        rules = WalkRules(
            queue_key=queue_order(session), job_key=session.job_key, flags=session.flags
        )
        mine = dict.fromkeys(victims)
        mine.pop(pending.job, None)
        works = [
            (queue, work)
            for queue, work in self._works
            if work.job is not pending.job and work.job not in mine
        ]
        works += [(job.queue, Work(job)) for job in mine if job.queue != NO_QUEUE]
        works.append((pending.job.queue, pending))
        walk = QueueWalk(queues.parent, rules, works)
        left = len(mine) + 1
        while left and (work := walk.pop()) is not None:
            if work is pending or work.job in mine:
                left -= 1
                yield work
