"""Jobs that have not run long enough yet are not taken from.

Reference: pkg/scheduler/plugins/minruntime/*.go (fairness §8).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.fairness.minruntime import (
    ResolveMethod,
    RunTimes,
    argument_ms,
    is_protected,
    keeps_minimum,
    may_be_victim,
)
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_USED
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.jobs.gang import elastic
from kai_es.scheduler.solve.simulate import Trial

RunTimeOf = Callable[[Job], int]


def open_minruntime(session: Session, arguments: Mapping[str, str]) -> None:
    """Register, if any queue or argument says anything."""
    queues = session.columns.queues.queues
    times = RunTimes(
        preempt=[queue.preempt_min_runtime_ms for queue in queues],
        reclaim=[queue.reclaim_min_runtime_ms for queue in queues],
        default_preempt=argument_ms(arguments.get("defaultPreemptMinRuntime")),
        default_reclaim=argument_ms(arguments.get("defaultReclaimMinRuntime")),
        method=ResolveMethod.of(arguments.get("reclaimResolveMethod", "")),
    )
    plugin = MinRuntime(session, times)
    if times.default_preempt or any(times.preempt):
        session.ext.preempt_victims.append(plugin.preempt_filter)
        session.ext.preempt_validators.append(plugin.preempt_is_valid)
    if times.default_reclaim or any(times.reclaim):
        session.ext.reclaim_victims.append(plugin.reclaim_filter)
        session.ext.reclaim_validators.append(plugin.reclaim_is_valid)


class MinRuntime:
    """The plugin in one session."""

    def __init__(self, session: Session, times: RunTimes) -> None:
        self._session = session
        self._times = times
        self._path = session.columns.queues.path

    def preempt_filter(self, work: Work) -> Callable[[Job], bool]:
        """Whether a job may be a victim of preemption."""
        del work
        return self._filter(self._of_preempt)

    def reclaim_filter(self, work: Work) -> Callable[[Job], bool]:
        """Whether a job may be a victim of this reclaimer."""
        return self._filter(self._of_reclaim(work.job))

    def preempt_is_valid(self, trial: Trial, pending: Sequence[int]) -> bool:
        """Whether protected victims keep their minimum."""
        del pending
        return self._is_valid(trial, self._of_preempt)

    def reclaim_is_valid(self, trial: Trial, pending: Sequence[int]) -> bool:
        """Whether protected victims keep their minimum."""
        job = self._session.job(pending[0])
        return self._is_valid(trial, self._of_reclaim(job))

    def _of_preempt(self, victim: Job) -> int:
        return self._times.of_preempt(self._path[victim.queue])

    def _of_reclaim(self, job: Job) -> RunTimeOf:
        mine = self._path[job.queue]
        known: dict[int, int] = {}

        def run_time(victim: Job) -> int:
            found = known.get(victim.queue)
            if found is None:
                found = known[victim.queue] = self._times.of_reclaim(mine, self._path[victim.queue])
            return found

        return run_time

    def _filter(self, run_time: RunTimeOf) -> Callable[[Job], bool]:
        def passes(victim: Job) -> bool:
            protected = self._is_protected(victim, run_time)
            total = [len(leaf) for leaf in victim.tasks]
            return may_be_victim(protected=protected, elastic=elastic(victim.tree, total))

        return passes

    def _is_protected(self, victim: Job, run_time: RunTimeOf) -> bool:
        return is_protected(
            last_start_ms=self._session.ledger.marks(victim).last_start_ms,
            min_runtime_ms=run_time(victim),
            now_ms=self._session.now_ms,
        )

    def _is_valid(self, trial: Trial, run_time: RunTimeOf) -> bool:
        session = self._session
        evicted: dict[Job, Counter[str]] = {}
        for task in trial.tasks:
            job = session.job(task)
            name = job.tree.leaves[session.columns.leaf_of[task]].name
            evicted.setdefault(job, Counter())[name] += 1
        for job, taken in evicted.items():
            if not self._is_protected(job, run_time):
                continue
            used = session.tally(Work(job), IS_USED)
            names = [leaf.name for leaf in job.tree.leaves]
            minimum = {leaf.name: leaf.min_available for leaf in job.tree.leaves}
            if not keeps_minimum(taken, dict(zip(names, used, strict=True)), minimum):
                return False
        return True
