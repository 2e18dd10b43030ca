"""Moves running pods together to make room for a pending job; every moved pod gets a new place.

Reference: pkg/scheduler/actions/consolidation/consolidation.go (scheduler-core §9.2).
"""

from collections.abc import Sequence
from typing import Final

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.flags import CONSOLIDATION_ANY_VICTIMS
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import RELEASING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve import eviction_texts
from kai_es.scheduler.solve.evicting import feasible_nodes, run_evicting
from kai_es.scheduler.solve.movable import Movable
from kai_es.scheduler.solve.search import Outcome, Result, Search, Victims
from kai_es.scheduler.solve.simulate import Trial
from kai_es.scheduler.solve.victims import Candidates
from kai_es.snapshot.shapes import mig_slices

NAME: Final = "consolidation"
CHOICES: Final = 3
"""Sets of jobs that are tried for one pending job; each leaves out the nodes of those before."""


def run(session: Session) -> None:
    """Consolidate for every pending preemptible job."""
    if session.config.max_consolidation_preemptees != 0:
        run_evicting(session, _Consolidation(session))


class _Consolidation:
    name = NAME

    def __init__(self, session: Session) -> None:
        self._session = session

    def wants(self, job: Job) -> bool:
        return job.preemptible

    def table_of(self, job: Job) -> object:
        del job
        return NAME

    def check(self, work: Work) -> Reason | None:
        del work
        return None

    def search(self, search: Search, candidates: Candidates, work: Work) -> Outcome:
        session = self._session
        if not self._is_room(work):
            return Outcome(Result.EXHAUSTED)
        bound = session.config.max_consolidation_preemptees
        if bound < 0:
            return self._search(search, candidates, work, self._all(candidates, work.job))
        if CONSOLIDATION_ANY_VICTIMS in session.flags:  # compat: consolidation.go
            victims = self._all(candidates, work.job)
            victims.sort(key=lambda victim: victim.order)
            return self._search(search, candidates, work, victims[: bound + 1])
        tasks = session.next_tasks(work, real=False)
        tried: list[int] = []
        for _ in range(CHOICES):
            movable = Movable(session, work.job, tried)
            victims = movable.choose(tasks, bound)
            if not victims:
                break
            outcome = self._search(search, candidates, work, victims)
            if outcome.result is not Result.EXHAUSTED:
                return outcome
            tried += movable.nodes
        return Outcome(Result.EXHAUSTED)

    def _search(
        self, search: Search, candidates: Candidates, work: Work, victims: list[Job]
    ) -> Outcome:
        session, chosen = self._session, set(victims)

        def valid(trial: Trial, _pending: Sequence[int]) -> bool:
            return all(session.status[task] != RELEASING for task in trial.tasks)

        queues = sorted({victim.queue for victim in victims})
        return search.solve(
            work,
            Victims(candidates, queues, chosen.__contains__),
            feasible_nodes(session, work.job),
            valid,
        )

    def _all(self, candidates: Candidates, job: Job) -> list[Job]:
        """Every job that may be moved."""
        return [
            work.job
            for queue in candidates.queues()
            for _, work in candidates.leaf(queue)
            if work.job is not job
        ]

    def _is_room(self, work: Work) -> bool:
        """Whether all ready nodes together have the GPUs and the GPU memory (§9.2)."""
        session = self._session
        gpus = memory = 0
        for task in session.next_tasks(work, real=False):
            shape = session.row(task).shape
            gpus += shape.quota
            memory += shape.spec.gpu.memory_mib if shape.memory_mib else 0
            for profile, n in shape.spec.gpu.mig.items():
                memory += (mig_slices(profile) or (0, 0))[1] * n
        state = session.nodes
        has_gpus, has_memory = state.rooms()[:, state.columns.ready].sum(axis=1)
        return bool(has_gpus >= gpus and has_memory >= memory)

    def text(self, task: int, job: Job) -> str:
        del job
        return eviction_texts.moved(self._session, task)
