"""Takes resources back from other queues.

Reference: pkg/scheduler/actions/reclaim/reclaim.go (scheduler-core §9.4, fairness §6.1).
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

NAME: Final = "reclaim"
_NOT_ABLE: Final = Reason(code="cannot-reclaim")


def run(session: Session) -> None:
    """Reclaim for every pending job whose queue may."""
    run_evicting(session, _Reclaim(session))


class _Reclaim:
    name = NAME

    def __init__(self, session: Session) -> None:
        self._session = session

    def wants(self, job: Job) -> bool:
        del job
        return True

    def table_of(self, job: Job) -> object:
        return job.queue

    def check(self, work: Work) -> Reason | None:
        able = self._session.ext.can_reclaim
        return _NOT_ABLE if able is None else able(work)

    def search(self, search: Search, candidates: Candidates, work: Work) -> Outcome:
        session, job, ext = self._session, work.job, self._session.ext
        for hook in ext.solution_start:
            hook(job)
        session.hooks.count("solver_attempts")
        queues, refused = self._queues(candidates, work)
        if not queues:
            return Outcome(Result.EXHAUSTED, why=refused)
        filters = [filter_of(work) for filter_of in ext.reclaim_victims]

        def keep(victim: Job) -> bool:
            return victim is not job and all(passes(victim) for passes in filters)

        def valid(trial: Trial, pending: Sequence[int]) -> bool:
            return all(test(trial, pending) for test in ext.reclaim_validators)

        return search.solve(
            work,
            Victims(candidates, queues, keep),
            feasible_nodes(session, job),
            valid,
        )

    def _queues(self, candidates: Candidates, work: Work) -> tuple[list[int], Reason | None]:
        """Leaf queues that the job may take from, and why it may not from the first other."""
        found, refused = [], None
        for queue in candidates.queues():
            if queue == work.job.queue:
                continue
            tests = (test(work, queue) for test in self._session.ext.reclaim_queues)
            objection = next((reason for reason in tests if reason is not None), None)
            if objection is None:
                found.append(queue)
            refused = refused or objection
        return found, refused

    def text(self, task: int, job: Job) -> str:
        return eviction_texts.reclaimed(self._session, task, job)
