"""The jobs that an action works on, in the order in which the queue tree serves them.

Reference: pkg/scheduler/actions/utils/input_jobs.go (scheduler-core §6.2).
"""

from collections.abc import Callable, Iterator

from kai_es.kube.labels import UNLIMITED
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE, NOTHING, Fair
from kai_es.scheduler.flags import WEAKER_QUEUE_PARTIAL
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.steady_walk import SteadyWalk
from kai_es.scheduler.jobs.walk import QueueWalk, WalkRules


def placing_works(session: Session, action: str) -> QueueWalk[Work] | SteadyWalk[Work]:
    """For an action that changes nothing but what it gives to the job popped last."""
    rules = _rules(session, action)
    works = ((work.job.queue, work) for work in ready_works(session))
    if rules.depth < UNLIMITED or WEAKER_QUEUE_PARTIAL in session.flags:
        return QueueWalk(session.columns.queues.parent, rules, works)
    return SteadyWalk(session.columns.queues.parent, rules, works)


def pending_works(session: Session, action: str, keep: Callable[[Job], bool]) -> QueueWalk[Work]:
    """A walk over the jobs that have pending tasks, are ready and free, and pass `keep`."""
    rules = _rules(session, action)
    works = ((work.job.queue, work) for work in ready_works(session) if keep(work.job))
    return QueueWalk(session.columns.queues.parent, rules, works)


def _rules(session: Session, action: str) -> WalkRules[Work]:
    depth = session.config.queue_depth.get(action, -1)
    return WalkRules(
        queue_key=queue_order(session),
        job_key=session.job_key,
        depth=UNLIMITED if depth < 0 else depth,
        flags=session.flags,
    )


def ready_works(session: Session) -> Iterator[Work]:
    """The jobs that have pending tasks, are ready and free, in a fixed order."""
    return (Work(job) for job in session.pending_jobs() if may_be_placed(session, job))


def may_be_placed(session: Session, job: Job) -> bool:
    """Whether a job is in a leaf queue, is ready and free."""
    return (
        job.queue != NO_QUEUE
        and session.columns.queues.is_leaf(job.queue)
        and session.is_ready(job)
        and session.is_free(job)
    )


def queue_order(session: Session) -> Callable[[int, Work | None, Fair], object]:
    """The order of sibling queues by their next job, or by what their victims would free."""
    order, next_amount = amount_order(session), session.next_amount

    def key(row: int, work: Work | None, freed: Fair) -> object:
        return order(row, NOTHING if work is None else next_amount(work), freed)

    return key


def amount_order(session: Session) -> Callable[[int, Fair, Fair], object]:
    """The order of sibling queues by what their next job asks for, and by what would be freed.

    Without a plugin that has one, by age and name.
    """
    if session.ext.queue_key is not None:
        return session.ext.queue_key
    queues = session.columns.queues.queues

    def by_age(row: int, _wanted: Fair, _freed: Fair) -> object:
        return queues[row].created_ms, queues[row].name

    return by_age
