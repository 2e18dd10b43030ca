"""Why victims of a search are evicted: for whom, and what it does to the shares."""

from collections.abc import Callable

from kai_es.events.decisions import ShareAt
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.queues import NO_QUEUE
from kai_es.scheduler.framework.ledger import Cause
from kai_es.scheduler.framework.session import Session


class GaveWay(Cause):
    """Victims of one job. Made before the search, closed before the commit."""

    def __init__(self, session: Session, text: Callable[[int, Job], str], job: Job) -> None:
        super().__init__(beneficiary=job.uid)
        self._session = session
        self._text = text
        self._job = job
        shares = session.shares
        self._was = None if shares is None else list(shares.allocated)
        self._is = self._was

    def close(self) -> None:
        """Take down the shares as the statement leaves them."""
        shares = self._session.shares
        self._is = None if shares is None else list(shares.allocated)

    def message(self, task: int) -> str:
        """What the pod's owner is told."""
        return self._text(task, self._job)

    def before(self, task: int) -> tuple[ShareAt, ...]:
        """Shares of the victim's and the beneficiary's queue before the statement."""
        return self._at(task, self._was)

    def after(self, task: int) -> tuple[ShareAt, ...]:
        """The same after it."""
        return self._at(task, self._is)

    def _at(self, task: int, allocated: list[tuple[int, int, int]] | None) -> tuple[ShareAt, ...]:
        session = self._session
        if allocated is None or session.shares is None:
            return ()
        rows = dict.fromkeys((session.job(task).queue, self._job.queue))
        return tuple(
            ShareAt(
                queue=session.columns.queues.names[row],
                allocated=allocated[row],
                fair_share=session.shares.fair_share[row],
            )
            for row in rows
            if row != NO_QUEUE
        )
