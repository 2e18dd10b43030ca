"""A hypothetical set of evictions, and how it grows.

Reference: pkg/scheduler/actions/common/solvers/scenario, …/accumulation (scheduler-core §10.2).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work, rest_of
from kai_es.scheduler.jobs.order import member_by_name
from kai_es.scheduler.jobs.select import tasks_to_evict
from kai_es.scheduler.jobs.walk import QueueWalk
from kai_es.scheduler.solve.room import Room


class Batch(NamedTuple):
    """Tasks of one job that are given up together."""

    job: Job
    tasks: tuple[int, ...]


class Scenario(NamedTuple):
    """What is to be tried: evict all, recorded ones first, then place the pending job.

    recorded:  victims of the last solved probe, taken as given.
    potential: further ones.
    """

    recorded: tuple[Batch, ...]
    potential: tuple[Batch, ...]

    def batches(self) -> tuple[Batch, ...]:
        """All of them, in the order of eviction."""
        return self.recorded + self.potential


def tasks_to_give(session: Session, work: Work) -> tuple[tuple[int, ...], bool]:
    """What a victim gives up next, and whether it would have more after that (§5.14)."""
    status = session.status

    def take(leaf: int, n: int) -> list[int]:
        found: list[int] = []
        for task in reversed(session.work_tasks(work, leaf)):
            if status[task] in IS_ACTIVE:
                found.append(task)
                if len(found) == n:
                    break
        return found

    active = session.tally(work, IS_ACTIVE)
    tree = work.tree
    if len(active) == 1 and active[0] <= max(tree.leaves[0].min_available, 1):
        return tuple(take(0, active[0])), False  # equal to the walk below: no surplus to give
    order = session.ext.member_key or member_by_name
    tasks, more = tasks_to_evict(tree, active, take, order=order)
    return tuple(tasks), more


class Accumulation:
    """Adds victims to a scenario batch by batch, as long as there are any.

    Args:
        session: the session.
        walk: a fresh walk over the victims.
        recorded: victims taken as given.
        room: what is free in the scenario; grows with it.
    """

    def __init__(
        self,
        session: Session,
        walk: QueueWalk[Work],
        recorded: Sequence[Batch],
        room: Room,
    ) -> None:
        self._session = session
        self._walk = walk
        self.recorded = tuple(recorded)
        self.potential: list[Batch] = []
        self.newest: Work | None = None
        self.room = room
        self._recorded_tasks = {task for batch in recorded for task in batch.tasks}
        for batch in recorded:
            room.add(batch.tasks)

    def scenarios(self) -> Iterator[None]:
        """Stops at every stage of growth that passes the filters."""
        while True:
            if self.room.possible():
                yield
            if not self._advance():
                return

    def _advance(self) -> bool:
        """One more batch; False = no victims left."""
        session, recorded = self._session, self._recorded_tasks
        while (work := self._walk.pop()) is not None:
            tasks, more = tasks_to_give(session, work)
            if not tasks:
                continue
            if recorded and not recorded.isdisjoint(tasks):
                self._push_rest(work, recorded)
                continue
            if more:
                self._push_rest(work, set(tasks))
            self.newest = work
            self.potential.append(Batch(work.job, tasks))
            self.room.add(tasks)
            return True
        return False

    def _push_rest(self, work: Work, without: set[int]) -> None:
        session = self._session
        leaves = [
            [
                task
                for task in session.work_tasks(work, leaf)
                if task not in without and session.status[task] in IS_ACTIVE
            ]
            for leaf in range(len(work.tree.leaves))
        ]
        if any(leaves):
            self._walk.push(work.job.queue, rest_of(work.job, leaves))


def nodes_of(session: Session, tasks: Sequence[int]) -> list[int]:
    """Rows of the nodes that tasks are on, each once, in the order of the tasks."""
    found = dict.fromkeys(session.node_of(task) for task in tasks)
    found.pop(NO_ROW, None)
    return list(found)
