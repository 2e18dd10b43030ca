"""Why a job waits at the end of a cycle, dominant reason first."""

from typing import TYPE_CHECKING

from kai_es.events.decisions import Arg, Reason
from kai_es.events.requests import BUDGET
from kai_es.scheduler.columns.queues import NO_QUEUE
from kai_es.scheduler.framework.statuses import GATED, IS_ALIVE, IS_UNGATED, PENDING
from kai_es.scheduler.framework.support import missing_feature
from kai_es.scheduler.framework.work import Work

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.session import Session


def why_waiting(session: "Session", job: "Job") -> tuple[Reason, ...]:
    """Reasons of a job with a pending or gated task; () = everything of it has a place."""
    if not any(leaf[PENDING] or leaf[GATED] for leaf in session.counts(job)):
        return ()
    reasons = [*_held(session, job), *_misplaced(session, job)]
    if not session.is_ready(job):
        reasons.append(_not_ready(session, job))
    reasons.extend(session.failures.jobs.get(job, ()))
    return tuple(reasons) or (Reason(code="not-tried"),)


def _held(session: "Session", job: "Job") -> list[Reason]:
    """What keeps the job from being tried at all."""
    found = [] if job.state.held is None else [job.state.held]
    for code, not_before, attempts in job.state.backoff:
        if not_before > session.now_ms and code != BUDGET:
            args: dict[str, Arg] = {"code": code, "until_ms": not_before, "attempts": attempts}
            found.append(Reason(code="bind-backoff", args=args))
    feature = missing_feature(session, job)
    if feature:
        found.append(Reason(code="not-yet-supported", args={"feature": feature}))
    return found


def _misplaced(session: "Session", job: "Job") -> list[Reason]:
    """A queue that cannot serve the job."""
    queues = session.columns.queues
    if job.queue == NO_QUEUE:
        code = "queue-cycle" if job.group.queue in queues.broken else "no-queue"
        return [Reason(code=code, args={"queue": job.group.queue})]
    if not queues.is_leaf(job.queue):
        return [Reason(code="queue-not-leaf", args={"queue": job.group.queue})]
    return []


def _not_ready(session: "Session", job: "Job") -> Reason:
    alive, ungated = (session.tally(Work(job), s) for s in (IS_ALIVE, IS_UNGATED))
    parts = tuple(
        Reason(
            code="too-few-pods",
            args={
                "sub_group": leaf.name,
                "needed": leaf.min_available,
                "exist": alive[leaf.leaf],
                "gated": alive[leaf.leaf] - ungated[leaf.leaf],
            },
        )
        for leaf in job.tree.leaves
        if ungated[leaf.leaf] < leaf.min_available
    )
    return Reason(code="not-ready", parts=parts)
