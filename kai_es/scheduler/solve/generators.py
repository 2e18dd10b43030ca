"""Which scenarios to try: the two generators of the reference.

Generators only propose; whether a scenario works is decided by simulating it.

Reference: pkg/scheduler/plugins/{nodelocalgreedy,multinodegang} (scheduler-core §10.2).
"""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.scenario import Accumulation, Batch, Scenario, nodes_of


class Probe:
    """What a generator knows of the search it works for.

    pending:  tasks to be placed.
    feasible: bool [N], nodes of the search and of recorded victims.
    """

    __slots__ = ("feasible", "growth", "pending", "session")

    def __init__(
        self,
        session: Session,
        growth: Accumulation,
        pending: Sequence[int],
        feasible: NDArray[np.bool_],
    ) -> None:
        self.session = session
        self.growth = growth
        self.pending = pending
        self.feasible = feasible


class Generator(Protocol):
    """Derives scenarios from the accumulated one, stage by stage of its growth."""

    def stage(self) -> Iterator[Scenario]:
        """Scenarios of the present stage."""


class NodeLocalGreedy:
    """All victims that touch one node of the newest victim."""

    ONE_NODE: Final = True
    """Its scenarios add the victims of one node to the recorded ones."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._n_seen = 0
        self._jobs_on: dict[int, dict[Job, None]] = {}
        self._batches_of: dict[Job, list[Batch]] = {}

    def stage(self) -> Iterator[Scenario]:
        """One scenario per node of the newest victim, by node name."""
        growth = self._probe.growth
        self._follow(growth)
        if not growth.potential:
            if growth.recorded:
                yield Scenario(growth.recorded, ())
            return
        seen: list[set[Job]] = []
        for n in self._newest_nodes(growth):
            jobs = self._jobs_on.get(n, {})
            if not jobs or set(jobs) in seen:
                continue
            seen.append(set(jobs))
            batches = tuple(batch for job in jobs for batch in self._batches_of[job])
            yield Scenario(growth.recorded, batches)

    def _newest_nodes(self, growth: Accumulation) -> list[int]:
        session, work = self._probe.session, growth.newest
        assert work is not None, "a potential victim was popped"
        tasks = [
            task for leaf in range(len(work.tree.leaves)) for task in session.work_tasks(work, leaf)
        ]
        return sorted(nodes_of(session, tasks))  # rows are in name order

    def _follow(self, growth: Accumulation) -> None:
        session = self._probe.session
        for batch in growth.potential[self._n_seen :]:
            self._batches_of.setdefault(batch.job, []).append(batch)
            for n in nodes_of(session, batch.tasks):
                self._jobs_on.setdefault(n, {})[batch.job] = None
        self._n_seen = len(growth.potential)


class MultiNodeGang:
    """Growing sets of nodes, the emptiest after eviction last, with all victims that touch them."""

    ONE_NODE: Final = False

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        quotas = [probe.session.row(task).shape.quota for task in probe.pending]
        self._demand = sum(quotas)
        self._smallest = min(quotas)
        self._n_seen = 0
        self._batches_on: dict[int, list[int]] = {}

    def stage(self) -> Iterator[Scenario]:
        """Prefixes of the candidate nodes, from the smallest that has the capacity."""
        growth = self._probe.growth
        if not growth.potential:
            yield Scenario(growth.recorded, ())
            return
        self._follow(growth)
        gpus = growth.room.gpus
        nodes = np.fromiter(self._batches_on, np.intp, len(self._batches_on))
        capacity = gpus[nodes]
        outside = self._probe.feasible.copy()
        outside[nodes] = False
        baseline = int(gpus[outside].sum())
        if self._smallest > 0:
            large = capacity >= self._smallest
            nodes, capacity = nodes[large], capacity[large]
        order = np.argsort(capacity, kind="stable")
        nodes = nodes[order]
        start = self._first_prefix(capacity[order], self._demand - baseline)
        if start is None:
            return
        size, step = start, 1
        while True:
            size = min(size, len(nodes))
            yield Scenario(growth.recorded, self._prefix(nodes[:size].tolist()))
            if size == len(nodes):
                return
            size += step
            step *= 2

    @staticmethod
    def _first_prefix(capacity: NDArray[np.int64], missing: int) -> int | None:
        """Smallest number of nodes whose capacity is enough; None = even all are not."""
        if missing <= 0:
            return 0
        reached = np.flatnonzero(np.cumsum(capacity) >= missing)
        return int(reached[0]) + 1 if len(reached) else None

    def _prefix(self, nodes: list[int]) -> tuple[Batch, ...]:
        potential = self._probe.growth.potential
        wanted = sorted({index for n in nodes for index in self._batches_on[n]})
        return tuple(potential[index] for index in wanted)

    def _follow(self, growth: Accumulation) -> None:
        session = self._probe.session
        for index in range(self._n_seen, len(growth.potential)):
            for task in growth.potential[index].tasks:
                n = session.node_of(task)
                if n != NO_ROW:
                    on_node = self._batches_on.setdefault(n, [])
                    if not on_node or on_node[-1] != index:
                        on_node.append(index)
        self._n_seen = len(growth.potential)
