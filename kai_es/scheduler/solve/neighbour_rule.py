"""Pod affinity and anti-affinity as rules of placing.

Reference: pkg/scheduler/k8s_internal/predicates (plugins §3.4).
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason
from kai_es.scheduler.flags import LEAVING_PODS_STAY, SKIPPED_FOR_GOOD
from kai_es.scheduler.framework.extensions import TaskMask
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.neighbours import Neighbours

Mask = NDArray[np.bool_]


class NeighbourRule:
    """The rule of one session."""

    def __init__(self, session: Session, neighbours: Neighbours) -> None:
        self._neighbours = neighbours
        self._stays = LEAVING_PODS_STAY in session.flags
        self._skips = SKIPPED_FOR_GOOD in session.flags
        self._skipped: set[int] = set()

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""
        if task in self._skipped:
            return None
        if self._neighbours.is_free(task):
            if self._skips:
                self._skipped.add(task)
            return None
        now = ~self._neighbours.refusals(task, leaving=True).any
        if self._stays:
            return TaskMask(now, now)
        return TaskMask(now, ~self._neighbours.refusals(task, leaving=False).any)

    def why(self, task: int) -> Iterable[tuple[Mask, Reason]]:
        """Nodes that are left out, by reason."""
        if task in self._skipped or self._neighbours.is_free(task):
            return ()
        found = self._neighbours.refusals(task, leaving=self._stays)
        reasons = (
            (found.unmet, "pod-affinity"),
            (found.apart, "pod-anti-affinity"),
            (found.unwanted, "pod-unwanted"),
        )
        return [(mask, Reason(code=code)) for mask, code in reasons]
