"""Places pending jobs on what is idle, or lets them wait for what is being released.

The only action that binds.

Reference: pkg/scheduler/actions/allocate/allocate.go (scheduler-core §9.1).
"""

from typing import Final

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
from kai_es.scheduler.solve.worklist import placing_works

NAME: Final = "allocate"


def run(session: Session) -> None:
    """Try every pending job once, and again as long as it grows."""
    works = placing_works(session, NAME)
    while (work := works.pop()) is not None:
        if _allocate(session, work) and session.has(work.job, IS_PENDING):
            works.push(work.job.queue, work)


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
    if not waits and not had_any:
        session.ledger.marks(job).last_start_ms = session.now_ms
    return True
