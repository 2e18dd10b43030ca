"""Places pending jobs on what is idle, or lets them wait for what is being released.

The only action that binds.

Reference: pkg/scheduler/actions/allocate/allocate.go (scheduler-core §9.1).
"""

from typing import Final

from kai_es.scheduler.flags import ROOM_IS_FOR_ALL
from kai_es.scheduler.framework.fit import ALL_NODES
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import (
    IS_ACTIVE,
    IS_ALLOCATED,
    IS_PENDING,
    IS_PIPELINED,
)
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.gang import should_pipeline
from kai_es.scheduler.solve.attempt import Attempt
from kai_es.scheduler.solve.worklist import may_be_placed, placing_works

NAME: Final = "allocate"

ROOM_KEPT_MS: Final = 600_000
"""How long a job is served first in room that was made for it: longer than pods take to end."""


def run(session: Session) -> None:
    """Try every pending job once, and again as long as it grows."""
    for awaited in _awaited(session):
        if not _allocate(session, awaited):
            session.failures.forget(awaited.job)  # it is tried again in its turn
    works = placing_works(session, NAME)
    while (work := works.pop()) is not None:
        if _allocate(session, work) and session.has(work.job, IS_PENDING):
            works.push(work.job.queue, work)


def _awaited(session: Session) -> list[Work]:
    """Jobs for which pods were evicted in a former cycle, the longest waiting first.

    Unless they come first, the pods that gave way may come back before them and take the same
    room again, for ever.
    """
    if ROOM_IS_FOR_ALL in session.flags:  # compat: a cycle knows nothing of the one before
        return []
    since = max(session.now_ms - ROOM_KEPT_MS, 1)  # 0 = never
    found = [
        Work(job)
        for job in session.pending_jobs()
        if job.state.room_made_ms >= since and may_be_placed(session, job)
    ]
    return sorted(found, key=lambda work: (work.job.state.room_made_ms, work.job.order))


def _allocate(session: Session, work: Work) -> bool:
    """Whether tasks of the job were placed."""
    job = work.job
    had_any = session.has(job, IS_ALLOCATED)
    statement = Statement(session)
    attempt = Attempt(session, statement, ALL_NODES, pipeline_only=False)
    if not attempt.place(work):
        statement.discard()
        return False
    waits = session.has(job, IS_PIPELINED) and should_pipeline(
        work.tree, session.tally(work, IS_ACTIVE), session.tally(work, IS_PIPELINED)
    )
    if waits:
        statement.all_to_pipelined(job)
    session.ledger.record(statement.commit(), NAME)
    if not waits:
        marks = session.ledger.marks(job)
        marks.room_made_ms = 0
        if not had_any:
            marks.last_start_ms = session.now_ms
    return True
