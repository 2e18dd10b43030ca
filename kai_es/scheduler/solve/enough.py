"""Whether what a scenario frees can hold the pending tasks at all, before it is simulated.

A necessary condition, in every resource: each task shape, taken alone, finds as many places on
allowed nodes as it has tasks. It only skips simulations that would end without a place, so the
result of a search is that of simulating everything.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.columns.resources import Vector
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.victims import Candidates, freed_by
from kai_es.snapshot.shapes import Shape

Amounts = NDArray[np.int64]


class _Need:
    """Tasks of one shape: how many, and where."""

    __slots__ = ("allowed", "n_tasks", "request", "rows")

    def __init__(self, session: Session, task: int, n_tasks: int) -> None:
        fit = session.fits.of(task)
        self.n_tasks = n_tasks
        self.allowed = fit.allowed
        self.request: list[int] = fit.demand.request.tolist()
        self.rows = [row for row, amount in enumerate(self.request) if amount > 0]

    def places(self, free: Amounts) -> Amounts:
        """int64 [N]: tasks that each node has room for."""
        found = np.full(free.shape[1], self.n_tasks, np.int64)
        for row in self.rows:
            np.minimum(found, free[row] // self.request[row], out=found)
        found[(free < 0).any(axis=0) | ~self.allowed] = 0
        return np.maximum(found, 0, out=found)

    def places_on(self, free: list[int]) -> int:
        """The same of one node."""
        found = self.n_tasks
        for row, amount in enumerate(free):
            if amount < 0:
                return 0
            need = self.request[row]
            if need:
                found = min(found, amount // need)
        return found


def _needs(session: Session, tasks: Iterable[int]) -> list[_Need]:
    """By shape; shapes that share devices are not looked at."""
    counts: dict[Shape, list[int]] = {}
    for task in tasks:
        shape = session.row(task).shape
        if not shape.shared:
            counts.setdefault(shape, []).append(task)
    return [_Need(session, found[0], len(found)) for found in counts.values()]


class Bound:
    """What all victims of a search together could free."""

    def __init__(self, session: Session, candidates: Candidates, queues: Iterable[int]) -> None:
        free = session.nodes.free.copy()
        self.spread = False
        for queue in queues:
            free += candidates.freed(queue)
            self.spread = self.spread or candidates.is_spread(queue)
        self._free = free

    def places(self, need: _Need) -> Amounts:
        """int64 [N]: tasks that each node has room for once every victim is gone."""
        return need.places(self._free)


class Enough:
    """The condition for one probe.

    Args:
        session: the session.
        tasks: to be placed.
        feasible: bool [N], nodes of the probe.
        recorded: victims taken as given.
    """

    def __init__(
        self,
        session: Session,
        tasks: Iterable[int],
        feasible: NDArray[np.bool_],
        recorded: Iterable[int],
    ) -> None:
        self._session = session
        self._free = session.nodes.free
        self._given = dict.fromkeys(recorded)
        if self._given:
            self._free = self._free.copy()
            for task in self._given:
                n = session.node_of(task)
                if n != NO_ROW:
                    self._free[:, n] += freed_by(session, task)
        self._needs = [
            (need, np.where(feasible, need.places(self._free), 0))
            for need in _needs(session, tasks)
        ]
        self._totals = [int(now.sum()) for _, now in self._needs]

    def ever(self, bound: Bound) -> bool:
        """Whether it holds when every victim is evicted."""
        return all(int(bound.places(need).sum()) >= need.n_tasks for need, _ in self._needs)

    def ever_on_one_node(self, bound: Bound) -> bool:
        """Whether it can hold with the recorded victims and all victims of one more node."""
        if bound.spread:
            return self.ever(bound)
        return all(
            total + int((bound.places(need) - now).max(initial=0)) >= need.n_tasks
            for (need, now), total in zip(self._needs, self._totals, strict=True)
        )

    def holds(self, potential: Iterable[int]) -> bool:
        """Whether it holds for the recorded and these further victims."""
        session = self._session
        more: dict[int, Vector] = {}
        for task in potential:
            n = session.node_of(task)
            if n != NO_ROW and task not in self._given:
                before = more.get(n)
                freed = freed_by(session, task)
                more[n] = freed if before is None else before + freed
        free = {n: (self._free[:, n] + freed).tolist() for n, freed in more.items()}
        for (need, now), total in zip(self._needs, self._totals, strict=True):
            places = total
            for n, amounts in free.items():
                if need.allowed[n]:
                    places += need.places_on(amounts) - int(now[n])
            if places < need.n_tasks:
                return False
        return True
