"""Groups of task statuses, as integers for columns.

Reference: pkg/scheduler/api/pod_status/pod_status.go (scheduler-core §5.4).
"""

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Final

from kai_es.snapshot import status as groups
from kai_es.snapshot.status import TaskStatus


class Statuses(frozenset[int]):
    """Some statuses; `count` adds up how many tasks of a pod set are in one of them."""

    def __new__(cls, statuses: Iterable[TaskStatus]) -> "Statuses":
        """The group of these."""
        return super().__new__(cls, (int(status) for status in statuses))

    def __init__(self, statuses: Iterable[TaskStatus]) -> None:
        del statuses
        rows = sorted(self)
        assert rows, "a group of no status"
        self._only = rows[0] if len(rows) == 1 else -1
        self._pick = itemgetter(*rows)

    def count(self, counts: Sequence[int]) -> int:
        """Tasks in one of these, from the numbers of tasks by status."""
        if self._only >= 0:
            return counts[self._only]
        return sum(self._pick(counts))


PENDING: Final = int(TaskStatus.PENDING)
GATED: Final = int(TaskStatus.GATED)
ALLOCATED: Final = int(TaskStatus.ALLOCATED)
PIPELINED: Final = int(TaskStatus.PIPELINED)
BINDING: Final = int(TaskStatus.BINDING)
RELEASING: Final = int(TaskStatus.RELEASING)
SUCCEEDED: Final = int(TaskStatus.SUCCEEDED)

IS_PENDING: Final = Statuses((TaskStatus.PENDING,))
IS_RELEASING: Final = Statuses((TaskStatus.RELEASING,))
IS_PIPELINED: Final = Statuses((TaskStatus.PIPELINED,))
IS_ALLOCATED: Final = Statuses(groups.ALLOCATED)
IS_ACTIVE: Final = Statuses(groups.ACTIVE_ALLOCATED)
IS_USED: Final = Statuses(groups.ACTIVE_USED)
IS_ALIVE: Final = Statuses(groups.ALIVE)
IS_UNGATED: Final = Statuses(groups.ALIVE - {TaskStatus.GATED})
