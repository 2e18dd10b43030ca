"""Higher priority beats lower priority inside one leaf queue.

Reference: pkg/scheduler/actions/preempt/preempt.go (scheduler-core §9.5).
"""

from collections.abc import Sequence
from typing import Final

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve import eviction_texts
from kai_es.scheduler.solve.evicting import feasible_nodes, run_evicting
from kai_es.scheduler.solve.search import Outcome, Result, Search, Victims
from kai_es.scheduler.solve.simulate import Trial
from kai_es.scheduler.solve.victims import Candidates

NAME: Final = "preempt"


def run(session: Session) -> None:
    """Preempt for every pending job."""
    run_evicting(session, _Preempt(session))


class _Preempt:
    name = NAME

    def __init__(self, session: Session) -> None:
        self._session = session

    def wants(self, job: Job) -> bool:
        del job
        return True

    def table_of(self, job: Job) -> object:
        return job.queue

    def check(self, work: Work) -> Reason | None:
        del work
        return None

    def search(self, search: Search, candidates: Candidates, work: Work) -> Outcome:
        session, job, ext = self._session, work.job, self._session.ext
        if (
            ext.quota is not None
            and ext.quota(job, *session.asked_in_all(session.next_tasks(work, real=False)))
            is not None
        ):
            return Outcome(Result.EXHAUSTED)
        if not candidates.has_below(job.queue, job.priority):
            return Outcome(Result.EXHAUSTED)
        filters = [filter_of(work) for filter_of in ext.preempt_victims]

        def keep(victim: Job) -> bool:
            return (
                victim.priority < job.priority
                and victim is not job
                and all(passes(victim) for passes in filters)
            )

        def valid(trial: Trial, pending: Sequence[int]) -> bool:
            return all(test(trial, pending) for test in ext.preempt_validators)

        return search.solve(
            work,
            Victims(candidates, (job.queue,), keep),
            feasible_nodes(session, job),
            valid,
        )

    def text(self, task: int, job: Job) -> str:
        return eviction_texts.preempted(self._session, task, job)
