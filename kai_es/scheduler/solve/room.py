"""What a growing scenario frees, and whether that can be enough.

Equal to the reference's accumulated-scenario filters (`filters.IdleGpuFilter`, the page word for
word), kept up batch by batch (`tests/property/test_room.py`): it only saves simulations that could
not work.

Reference: pkg/scheduler/actions/common/solvers/accumulated_scenario_filters (scheduler-core §10.4).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve.filters import NodeAffinityFilter, greedy_fit
from kai_es.scheduler.solve.node_affinity import required_nodes
from kai_es.scheduler.solve.topology_room import TopologyRoom


def gpu_room(session: Session) -> NDArray[np.int64]:
    """int64 [N], idle and releasing GPUs of each node, gpu_micro; a new array."""
    gpus: NDArray[np.int64] = session.nodes.rooms()[0]
    return gpus.copy()


class Room:
    """GPUs free in a scenario, against what the pending tasks need.

    Args:
        session: the session.
        pending: the tasks to be placed.
        feasible: bool [N], nodes of the search.
        work: the part of the job that they belong to, None = it has no topology constraint.

    gpus: int64 [N], free in the scenario, gpu_micro.
    """

    def __init__(
        self,
        session: Session,
        pending: Sequence[int],
        feasible: NDArray[np.bool_],
        work: Work | None = None,
    ) -> None:
        self._session = session
        self.gpus = gpu_room(session)
        self._seen: set[int] = set()
        needs = sorted((session.row(task).shape.quota for task in pending), reverse=True)
        self._needs = [need for need in needs if need > 0]
        self._all_alike = bool(self._needs) and self._needs[0] == self._needs[-1]
        self._places = 0
        if self._all_alike:
            self._places = int(np.maximum(self.gpus // self._needs[0], 0).sum())
        self._affinity = self._affinity_filter(pending, feasible)
        self._new_nodes: set[int] = set()
        self._topology: TopologyRoom | None = None
        if work is not None and work.job.constrained:
            self._topology = TopologyRoom(session, work, pending, self.gpus)

    def _affinity_filter(
        self, pending: Sequence[int], feasible: NDArray[np.bool_]
    ) -> NodeAffinityFilter | None:
        session = self._session
        shapes = {session.row(task).shape for task in pending}
        required = [found for shape in shapes if (found := required_nodes(shape.spec)) is not None]
        if not required:
            return None
        labels = session.columns.labels()
        return NodeAffinityFilter([one.mask(labels) for one in required], feasible)

    def add(self, tasks: Iterable[int]) -> None:
        """These victims are evicted too; each counts once."""
        session = self._session
        for task in tasks:
            if task in self._seen:
                continue
            self._seen.add(task)
            n = session.node_of(task)
            if n == NO_ROW:
                continue
            self._new_nodes.add(n)
            gpus = session.fair(task, n)[2]
            if not gpus:
                continue
            before = int(self.gpus[n])
            self.gpus[n] = before + gpus
            if self._topology is not None:
                self._topology.add(n, gpus)
            if self._all_alike:
                need = self._needs[0]
                self._places += max((before + gpus) // need, 0) - max(before // need, 0)

    def possible(self) -> bool:
        """Whether the scenario may work."""
        if self._affinity is not None:
            if not self._affinity.possible(self._new_nodes):
                return False
            self._new_nodes.clear()
        if self._topology is not None and not self._topology.possible():
            return False
        if not self._needs:
            return True
        if self._all_alike:
            return self._places >= len(self._needs)
        n_needs = len(self._needs)
        gpus = self.gpus
        if n_needs < len(gpus):
            gpus = np.partition(gpus, len(gpus) - n_needs)[len(gpus) - n_needs :]
        return greedy_fit(self._needs, gpus.tolist())
