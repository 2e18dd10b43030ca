"""A number per node that tasks add to, as the session has them now.

Equal to adding up all pods of all nodes anew; only nodes that changed are looked at
(`tests/property/test_neighbours.py`).
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kai_es.scheduler.framework.session import Session

Count = tuple[int, int]
"""Now, and when all that leaves has left."""

_NOW: Final = (1, 1, 1, 0)
_LATER: Final = (0, 1, 1, 0)
"""By kind of entry (`columns.sharing`): leaving, waiting, there, absent."""
_ABSENT: Final = 3


class Tally:
    """One number.

    Args:
        session: the session.
        base: by node row, as the rows have it; zeros may be left out.
        weigh: what one task adds to its node.

    now:   by node row, with all that is there, leaves or waits; no zeros.
    later: the same without what leaves.
    """

    __slots__ = ("_base", "_seen", "_session", "_weigh", "_weights", "later", "now")

    def __init__(
        self, session: "Session", base: Mapping[int, Count], weigh: Callable[[int], int]
    ) -> None:
        self._session = session
        self._base = base
        self._weigh = weigh
        self._weights: dict[int, int] = {}
        self._seen = 0
        self.now = {n: now for n, (now, _) in base.items() if now}
        self.later = {n: later for n, (_, later) in base.items() if later}

    def update(self) -> "Tally":
        """Catch up with the nodes that changed since the last look."""
        changes = self._session.nodes.changes
        if self._seen < len(changes):
            for n in dict.fromkeys(changes[self._seen :]):
                self._recount(n)
            self._seen = len(changes)
        return self

    def _recount(self, n: int) -> None:
        session = self._session
        now, later = self._base.get(n, (0, 0))
        for task in session.visitors.get(n, ()):
            weight = self._weights.get(task)
            if weight is None:
                weight = self._weights[task] = self._weigh(task)
            if weight:
                entry, before = session.entry(task, n), session.entry_before(task, n)
                is_, was = (_ABSENT if e is None else e[0] for e in (entry, before))
                now += weight * (_NOW[is_] - _NOW[was])
                later += weight * (_LATER[is_] - _LATER[was])
        _put(self.now, n, now)
        _put(self.later, n, later)


def _put(amounts: dict[int, int], n: int, amount: int) -> None:
    if amount:
        amounts[n] = amount
    else:
        amounts.pop(n, None)
