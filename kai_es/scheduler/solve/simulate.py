"""Tries a scenario: evict its victims, then let the queue order place everybody again.

Reference: pkg/scheduler/actions/common/solvers/by_pod_solver.go (scheduler-core §10.3).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.flags import VICTIMS_ON_FEASIBLE_NODES
from kai_es.scheduler.framework.fit import ALL_NODES, NodeSet
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statement import Statement
from kai_es.scheduler.framework.statuses import IS_USED, PIPELINED, RELEASING
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve.attempt import Attempt
from kai_es.scheduler.solve.placing import OrderOfPlacing
from kai_es.scheduler.solve.scenario import Batch, Scenario


class Trial:
    """A scenario that was simulated, with its statement still open.

    tasks: its victims in order of eviction.
    lost:  victims that found no new place, or another one; the rest kept theirs.
    """

    def __init__(self, session: Session, statement: Statement, scenario: Scenario) -> None:
        self.session = session
        self.statement = statement
        self.scenario = scenario
        self.tasks = evicted_tasks(session, scenario)

    @property
    def lost(self) -> list[int]:
        """Victims that are evicted or moved."""
        status = self.session.status
        return [task for task in self.tasks if status[task] in (RELEASING, PIPELINED)]

    def solution(self) -> tuple[Batch, ...]:
        """The scenario's batches with at least one lost task: whole ones, each once."""
        status = self.session.status
        seen: set[tuple[int, ...]] = set()
        found: list[Batch] = []
        for batch in self.scenario.batches():
            if batch.tasks in seen:
                continue
            seen.add(batch.tasks)
            if any(status[task] in (RELEASING, PIPELINED) for task in batch.tasks):
                found.append(batch)
        return tuple(found)


def evicted_tasks(session: Session, scenario: Scenario) -> list[int]:
    """Tasks of a scenario in order of eviction, each once.

    A task whose node is gone, or another shard's, is not evicted: that would make no room.
    """
    tasks = dict.fromkeys(task for batch in scenario.batches() for task in batch.tasks)
    return [task for task in tasks if session.node_of(task) != NO_ROW]


def simulate(
    session: Session,
    order: OrderOfPlacing,
    scenario: Scenario,
    pending: Work,
    feasible: NDArray[np.bool_],
) -> Trial | None:
    """Try a scenario.

    Args:
        session: without an open statement.
        order: of the jobs that ask for a place.
        scenario: what to evict.
        pending: the job, or the part of it, that is to be placed.
        feasible: bool [N], nodes that may be used besides those of the victims; victims may go
            anywhere, what the pending job cannot use included.

    Returns:
        None if the pending job finds no place; nothing is changed then.
    """
    tasks = evicted_tasks(session, scenario)
    if not tasks:
        return None
    statement = Statement(session)
    trial = Trial(session, statement, scenario)
    nodes = feasible.copy()
    for task in tasks:
        nodes[session.node_of(task)] = True
        statement.evict(task)
    attempt = again = Attempt(session, statement, NodeSet(nodes), pipeline_only=True)
    if VICTIMS_ON_FEASIBLE_NODES not in session.flags:
        again = Attempt(session, statement, ALL_NODES, pipeline_only=True)
    victims = dict.fromkeys(batch.job for batch in scenario.batches())
    for work in order.walk(victims, pending):
        placed = (attempt if work is pending else again).place(work)
        if work is pending and not placed:
            statement.discard()
            return None
    return trial


def victim_nodes(session: Session, batches: Iterable[Batch]) -> Sequence[int]:
    """Rows of the nodes of victims."""
    found = {session.node_of(task) for batch in batches for task in batch.tasks}
    found.discard(NO_ROW)
    return sorted(found)


def used_tasks(session: Session, job: Job) -> int:
    """Active-used tasks of a job."""
    return sum(session.tally(Work(job), IS_USED))
