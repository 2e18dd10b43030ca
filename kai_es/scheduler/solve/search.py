"""The search for victims of one pending job.

Finds how many of the job's tasks can be placed at all, doubling and then bisecting, with the
victims of each success taken as given for the next; ends with one statement that places all.

Reference: pkg/scheduler/actions/common/solvers/job_solver.go (scheduler-core §10.1).
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.flags import GANG_EVERY_POD_SET
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE, IS_USED
from kai_es.scheduler.framework.work import Work, part_of
from kai_es.scheduler.jobs.gang import gang_satisfied
from kai_es.scheduler.jobs.walk import QueueWalk
from kai_es.scheduler.solve.budget import ActionBudget, Budget, JobBudget, Meter
from kai_es.scheduler.solve.enough import Bound, Enough
from kai_es.scheduler.solve.generators import Generator, Probe
from kai_es.scheduler.solve.placing import OrderOfPlacing
from kai_es.scheduler.solve.room import Room
from kai_es.scheduler.solve.scenario import Accumulation, Batch, Scenario
from kai_es.scheduler.solve.simulate import Trial, simulate, used_tasks, victim_nodes
from kai_es.scheduler.solve.victims import Candidates, victim_walk


class GeneratorOf(Protocol):
    """A class of generators."""

    ONE_NODE: bool

    def __call__(self, probe: Probe) -> Generator:
        """One for a probe."""


Validator = Callable[[Trial, Sequence[int]], bool]


@dataclass(frozen=True, slots=True)
class Victims:
    """Who may give way in a search.

    queues: leaf queues to take from.
    keep:   whether a job of them may be a victim.
    """

    candidates: Candidates
    queues: Sequence[int]
    keep: Callable[[Job], bool]

    def walk(self, session: Session) -> QueueWalk[Work]:
        """A fresh walk over them."""
        return victim_walk(session, self.candidates, self.queues, self.keep)


STAGES_BEFORE_BOUND: Final = 16
"""Stages of growth without success after which all victims together are looked at: that costs as
much as some stages, and most searches end earlier."""


class Result(enum.Enum):
    """How a search ended."""

    SOLVED = "solved"
    EXHAUSTED = "generators_exhausted"
    DEADLINE = "deadline_exhausted"
    NOT_ATTEMPTED = "not_attempted"
    NO_GENERATOR = "no_generator"


@dataclass(slots=True)
class Outcome:
    """Result of a search.

    trial: with the open statement, if it was solved.
    why:   a reason for not even trying.
    """

    result: Result
    trial: Trial | None = None
    why: Reason | None = None


class Search:
    """Looks for victims for the jobs of one action.

    Args:
        session: the session.
        action: its name.
        meter: counts the work.
        budget: of the action.
    """

    def __init__(self, session: Session, action: str, meter: Meter, budget: ActionBudget) -> None:
        self.session = session
        self.action = action
        self.meter = meter
        self.budget = budget
        self.order = OrderOfPlacing(session)

    def solve(
        self, work: Work, victims: Victims, feasible: NDArray[np.bool_], validator: Validator
    ) -> Outcome:
        """Search for one job.

        Args:
            work: the job.
            victims: who may give way.
            feasible: bool [N], nodes to place it on.
            validator: whether a simulated scenario may be done.
        """
        session = self.session
        tasks = session.next_tasks(work, real=False)
        if not tasks:
            return Outcome(Result.EXHAUSTED)
        job_budget = self.budget.begin_job()
        if job_budget.exhausted():
            return Outcome(Result.NOT_ATTEMPTED)
        generators = session.ext.generators
        if not generators:
            return Outcome(Result.NO_GENERATOR)
        before = used_tasks(session, work.job)
        search = _JobSearch(self, work.job, tasks, victims, feasible, validator, job_budget)
        outcome = Outcome(Result.EXHAUSTED)
        for name, generator in generators.items():
            outcome = search.run(name, generator)
            if outcome.result is not Result.EXHAUSTED:
                break
        if outcome.trial is not None and not self._is_success(work.job, before):
            if GANG_EVERY_POD_SET in session.flags:  # compat: its moves stay in the session
                session.journal.clear()
            else:
                outcome.trial.statement.discard()
            return Outcome(Result.EXHAUSTED)
        return outcome

    def _is_success(self, job: Job, before: int) -> bool:
        session = self.session
        used = session.tally(Work(job), IS_USED)
        return gang_satisfied(job.tree, used, session.flags) and sum(used) > before


class _JobSearch:
    """The search for one job, generator by generator."""

    def __init__(
        self,
        search: Search,
        job: Job,
        tasks: Sequence[int],
        victims: Victims,
        feasible: NDArray[np.bool_],
        validator: Validator,
        budget: JobBudget,
    ) -> None:
        self._search = search
        self._session = search.session
        self._job = job
        self._tasks = tasks
        self._victims = victims
        self._bound: Bound | None = None
        self._feasible = feasible
        self._validator = validator
        self._budget = budget
        self._failed: set[tuple[int, frozenset[int], frozenset[int]]] = set()
        self._deadline = False

    def run(self, name: str, generator: GeneratorOf) -> Outcome:
        """Search with one generator, from scratch."""
        budget = self._budget.begin_generator(name)
        n_tasks = len(self._tasks)
        recorded: tuple[Batch, ...] = ()
        solved, failed, k = 0, 0, 1
        while True:
            trial = self._probe(k, recorded, generator, budget)
            if self._deadline:
                return Outcome(Result.DEADLINE)
            if trial is not None:
                recorded, solved = trial.solution(), k
                if k == n_tasks and set(trial.tasks) == _tasks_of(recorded):
                    # equal to one more probe with the victims recorded: it would evict the same
                    # tasks and place the same ones
                    return Outcome(Result.SOLVED, trial)
                trial.statement.discard()
            else:
                failed = k
            k = _next(solved, failed, n_tasks)
            if k == 0:
                break
        if solved == 0:
            return Outcome(Result.EXHAUSTED)
        trial = self._probe(n_tasks, recorded, generator, budget)
        if self._deadline:
            return Outcome(Result.DEADLINE)
        return Outcome(Result.EXHAUSTED) if trial is None else Outcome(Result.SOLVED, trial)

    def _probe(
        self, k: int, recorded: tuple[Batch, ...], generator: GeneratorOf, budget: Budget
    ) -> Trial | None:
        """Whether the first k tasks can be placed; on success the statement stays open."""
        session = self._session
        pending = self._tasks[:k]
        work = self._part(pending)
        feasible = self._feasible
        if recorded:
            feasible = feasible.copy()
            feasible[victim_nodes(session, recorded)] = True
        needed = session.next_tasks(work, real=False)
        enough = Enough(session, needed, feasible, _tasks_of(recorded))
        room = Room(session, pending, feasible, work)
        growth = Accumulation(session, self._victims.walk(session), recorded, room)
        proposals = generator(Probe(session, growth, pending, feasible))
        for n_stages, _ in enumerate(growth.scenarios()):
            if n_stages == STAGES_BEFORE_BOUND and not self._can_ever(enough, generator):
                return None
            for scenario in proposals.stage():
                if self._budget.exhausted() or budget.exhausted():
                    self._deadline = self._budget.exhausted()
                    return None
                trial = self._try(k, scenario, work, feasible, enough)
                if trial is not None:
                    return trial
        return None

    def _can_ever(self, enough: Enough, generator: GeneratorOf) -> bool:
        """Whether any scenario that the generator may still propose can be enough."""
        if self._bound is None:
            victims = self._victims
            self._bound = Bound(self._session, victims.candidates, victims.queues)
        if generator.ONE_NODE:
            return enough.ever_on_one_node(self._bound)
        return enough.ever(self._bound)

    def _try(
        self,
        k: int,
        scenario: Scenario,
        work: Work,
        feasible: NDArray[np.bool_],
        enough: Enough,
    ) -> Trial | None:
        potential = _tasks_of(scenario.potential)
        if not enough.holds(potential):
            return None
        recorded = _tasks_of(scenario.recorded)
        key = (k, frozenset(recorded), frozenset(potential))
        if key in self._failed:
            return None
        search = self._search
        search.meter.simulation(len(recorded | potential) + k)
        self._session.hooks.count("scenarios")
        trial = simulate(self._session, search.order, scenario, work, feasible)
        if trial is None:
            self._failed.add(key)
            return None
        if not self._validator(trial, self._tasks[:k]):
            trial.statement.discard()
            self._failed.add(key)
            return None
        return trial

    def _part(self, pending: Sequence[int]) -> Work:
        """The job with its active tasks and only these pending ones (§10.1)."""
        session, job = self._session, self._job
        chosen = set(pending)
        leaves = [
            [t for t in session.ordered(job, leaf) if session.status[t] in IS_ACTIVE or t in chosen]
            for leaf in range(len(job.tree.leaves))
        ]
        return part_of(job, leaves)


def _next(solved: int, failed: int, n_tasks: int) -> int:
    """The next number of tasks to probe, 0 = done."""
    if failed == 0:
        return 0 if solved == n_tasks else min(max(2 * solved, 1), n_tasks)
    return (solved + failed) // 2 if failed - solved > 1 else 0


def _tasks_of(batches: Iterable[Batch]) -> set[int]:
    return {task for batch in batches for task in batch.tasks}
