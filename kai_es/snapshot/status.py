"""Status of a task. Reference: pkg/scheduler/api/pod_status/pod_status.go (scheduler-core §5.4)."""

import enum
from typing import Final


class TaskStatus(enum.IntEnum):
    """Where a pod stands, as `decide` sees it. Values are stored in int8 columns."""

    PENDING = 0
    GATED = 1
    ALLOCATED = 2
    PIPELINED = 3
    BINDING = 4
    BOUND = 5
    RUNNING = 6
    RELEASING = 7
    STUCK_IN_RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11
    DELETED = 12


_S = TaskStatus
ALLOCATED: Final = frozenset({_S.ALLOCATED, _S.BINDING, _S.BOUND, _S.RUNNING})
ACTIVE_ALLOCATED: Final = ALLOCATED | {_S.PIPELINED}
ACTIVE_USED: Final = ACTIVE_ALLOCATED | {_S.RELEASING, _S.STUCK_IN_RELEASING}
ALIVE: Final = ACTIVE_ALLOCATED | {_S.PENDING, _S.GATED}
BOUND: Final = frozenset({_S.ALLOCATED, _S.BOUND, _S.RUNNING, _S.RELEASING, _S.STUCK_IN_RELEASING})
