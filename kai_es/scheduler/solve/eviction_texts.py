"""What the owner of an evicted pod is told, from a session. The words: `reasons.evictions`."""

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.reasons import evictions
from kai_es.scheduler.reasons.evictions import QueueLine


def reclaimed(session: Session, task: int, taker: Job) -> str:
    """A pod gave way to a job of another queue."""
    victim, mine = session.job(task).queue, taker.queue
    parents = session.columns.queues.parent
    if NO_QUEUE not in (victim, mine) and parents[victim] != parents[mine]:
        victim = parents[victim] if parents[victim] != NO_QUEUE else victim
        mine = parents[mine] if parents[mine] != NO_QUEUE else mine
    return evictions.reclaimed_text(
        _pod(session, task), _job(taker), _line(session, victim), _line(session, mine)
    )


def preempted(session: Session, task: int, taker: Job) -> str:
    """A pod gave way to a job of higher priority."""
    return evictions.preempted_text(_pod(session, task), _job(taker))


def moved(session: Session, task: int) -> str:
    """A pod was moved to make room."""
    return evictions.moved_text(_pod(session, task))


def stale(session: Session, task: int, job: Job) -> str:
    """A pod of a gang that has lost members."""
    leaf = job.tree.leaves[session.columns.leaf_of[task]]
    name = leaf.name if len(job.tree.leaves) > 1 else ""
    return evictions.stale_text(
        _pod(session, task), minimum=leaf.min_available, sub_group=name or leaf.name
    )


def _pod(session: Session, task: int) -> str:
    pod = session.row(task).pod
    return f"{pod.namespace}/{pod.name}"


def _job(job: Job) -> str:
    return f"{job.namespace}/{job.name}"


def _line(session: Session, row: int) -> QueueLine | None:
    shares = session.shares
    if shares is None or row == NO_QUEUE:
        return None
    queue = session.columns.queues.queues[row]
    return QueueLine(
        name=queue.display_name or queue.name,
        allocated=shares.allocated[row],
        deserved=shares.deserved[row],
        fair_share=shares.fair_share[row],
        priority=queue.priority,
    )
