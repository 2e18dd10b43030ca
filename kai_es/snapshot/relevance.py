"""Which changes can change a decision, and so start a cycle (architecture §4)."""

import msgspec

from kai_es.kube.objects import (
    ClusterObject,
    Pod,
    PodGroup,
    Queue,
    QueueStatus,
    SchedulingCondition,
)
from kai_es.snapshot.effective import TaskState


def matters(former: ClusterObject | None, now: ClusterObject, *, has_marks: bool) -> bool:
    """Whether a new version says something else in a field that `decide` reads.

    Patches of our own status writer and binder say nothing: statuses, the annotations that mirror
    a group's marks, conditions that only a back-off reads, the id of a closed request.

    Args:
        former: the version before, None = there was none.
        now: the version in force.
        has_marks: a cycle of ours has marked this group, so its annotations are not read.
    """
    if former is None:
        return True
    if former == now:
        return False
    return read_part(former, has_marks=has_marks) != read_part(now, has_marks=has_marks)


def read_part(obj: ClusterObject, *, has_marks: bool) -> ClusterObject:
    """An object without what `decide` does not read; see `matters`."""
    match obj:
        case Pod():
            return msgspec.structs.replace(obj, closed_request="", scheduled="", bound="")
        case Queue():
            return msgspec.structs.replace(obj, status=QueueStatus())
        case PodGroup():
            obj = msgspec.structs.replace(obj, resources="", conditions="", as_of=0)
            if has_marks:
                obj = msgspec.structs.replace(
                    obj, stale_since_ms=0, last_start_ms=0, last_eviction_ms=0
                )
            if obj.scheduling_backoff in (None, -1):
                return msgspec.structs.replace(obj, scheduling_conditions=())
            conditions = tuple(
                SchedulingCondition(node_pool=one.node_pool, transition_id=one.transition_id)
                for one in obj.scheduling_conditions
            )
            return msgspec.structs.replace(obj, scheduling_conditions=conditions)
        case _:
            return obj


def same_task(former: TaskState, now: TaskState) -> bool:
    """Whether two effective states of a pod are one to `decide`; the request's id is history."""
    return former == now or former == msgspec.structs.replace(now, request_id=former.request_id)
