"""GPUs free in the domains of a topology while a scenario grows.

Equal to `filters.TopologyGpuFilter` (the page word for word, `tests/property/test_room.py`), kept
up victim by victim. Domains are told apart by their whole path, not by one label's value.

Reference: …/accumulated_scenario_filters/idle_gpus/topology_aware_idle_gpus.go (plugins §8.2).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.topology import NO_DOMAIN
from kai_es.scheduler.flags import TOPOLOGY_COUNTS_RUNNING
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.framework.statuses import IS_ACTIVE
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.solve.filters import greedy_fit, required_levels


class _Level(NamedTuple):
    """A level that sub-groups require.

    domain:   int32 [N], each node's domain, NO_DOMAIN without one.
    capacity: int64 [D], GPUs free in each domain of the topology; of other levels 0.
    needs:    GPUs of each sub-group.
    """

    domain: NDArray[np.int32]
    capacity: NDArray[np.int64]
    needs: Sequence[int]


class TopologyRoom:
    """Whether each sub-group set with a required level can find a domain.

    Args:
        session: the session.
        work: the part of the job that is to be placed.
        pending: its tasks without a place.
        gpus: int64 [N], free GPUs by node, gpu_micro.
    """

    def __init__(
        self, session: Session, work: Work, pending: Sequence[int], gpus: NDArray[np.int64]
    ) -> None:
        self._levels: list[_Level] = []
        if not work.job.constrained:
            return
        leaf_of = session.columns.leaf_of
        waiting = [0] * len(work.tree.leaves)
        for task in pending:
            waiting[leaf_of[task]] += session.row(task).shape.quota
        running = [0] * len(work.tree.leaves)
        if TOPOLOGY_COUNTS_RUNNING in session.flags:
            for leaf in work.tree.leaves:
                for task in session.work_tasks(work, leaf.leaf):
                    if session.status[task] in IS_ACTIVE and (n := session.node_of(task)) != NO_ROW:
                        running[leaf.leaf] += session.fair(task, n)[2]
        needs = required_levels(work.tree, waiting, running, session.flags)
        for level in sorted(needs):
            tree = session.columns.topology(level.topology)
            at = None if tree is None else tree.level_of(level.label)
            if tree is None or at is None:
                continue  # the attempt to place it says what is wrong
            capacity = np.where(tree.level == at, tree.sums(gpus), 0)
            self._levels.append(_Level(tree.domain[at], capacity, needs[level]))

    def add(self, n: int, gpus: int) -> None:
        """A victim frees GPUs on a node."""
        for level in self._levels:
            domain = level.domain[n]
            if domain != NO_DOMAIN:
                level.capacity[domain] += gpus

    def possible(self) -> bool:
        """Whether the scenario may work."""
        return all(_fits(level) for level in self._levels)


def _fits(level: _Level) -> bool:
    if len(level.needs) == 1:
        return level.needs[0] <= int(level.capacity.max(initial=0))
    return greedy_fit(level.needs, level.capacity.tolist())
