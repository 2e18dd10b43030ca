"""Evicts what is left of gangs that have stayed below their minimum for too long.

Reference: pkg/scheduler/actions/stalegangeviction/stalegangeviction.go (scheduler-core §9.6).
"""

from typing import Final

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.framework.ledger import Cause
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import IS_ACTIVE, IS_USED, SUCCEEDED
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.gang import stale_leaves
from kai_es.scheduler.solve import eviction_texts

NAME: Final = "stalegangeviction"


def run(session: Session) -> None:
    """Mark stale gangs, clear the marks of others, evict those beyond their grace period."""
    for job in session.doubtful_jobs():
        _look_at(session, job)


def _look_at(session: Session, job: Job) -> None:
    counts = session.counts(job)
    leaves = stale_leaves(
        job.tree,
        session.tally(Work(job), IS_USED),
        succeeded=any(leaf[SUCCEEDED] for leaf in counts),
        flags=session.flags,
    )
    marks = session.ledger.marks(job)
    if not leaves:
        marks.stale_since_ms = 0
        return
    if not marks.stale_since_ms:
        marks.stale_since_ms = session.now_ms
    grace = job.group.staleness_grace_ms
    if grace is None:
        grace = session.config.staleness_grace_ms
    if grace < 0 or session.now_ms - marks.stale_since_ms < grace or session.may_not_evict:
        return
    _evict(session, job, leaves)


def _evict(session: Session, job: Job, leaves: tuple[int, ...]) -> None:
    """Evict every active task of these pod sets."""
    tasks = [
        task
        for leaf in leaves
        for task in session.ordered(job, leaf)
        if session.status[task] in IS_ACTIVE and session.node_of(task) >= 0
    ]
    statement = Statement(session)
    for task in tasks:
        statement.evict(task)
    cause = _Stale(session, job, len(tasks))
    eviction = session.ledger.marks(job).last_eviction_ms
    session.ledger.record(statement.commit(), NAME, cause)
    session.ledger.marks(job).last_eviction_ms = eviction  # only searches for victims set it


class _Stale(Cause):
    def __init__(self, session: Session, job: Job, gang_size: int) -> None:
        super().__init__(gang_size=gang_size)
        self._session = session
        self._job = job

    def message(self, task: int) -> str:
        return eviction_texts.stale(self._session, task, self._job)
