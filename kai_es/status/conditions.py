"""Scheduling conditions of a pod group, and the annotations that mirror its marks.

Reference: pkg/scheduler/cache/status_updater (scheduler-core §11.4, apis §3.8).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from kai_es.kube.conditions import last_condition
from kai_es.kube.labels import AS_OF, LAST_EVICTION, LAST_START, STALE_SINCE
from kai_es.kube.objects import SchedulingCondition
from kai_es.kube.times import rfc3339
from kai_es.snapshot.status import TaskStatus

UNSCHEDULABLE_ON_POOL: Final = "UnschedulableOnNodePool"
UNSCHEDULABLE: Final = "Unschedulable"

Conditions = tuple[SchedulingCondition, ...]

_UNDECIDED: Final = frozenset(
    {
        TaskStatus.PENDING,
        TaskStatus.GATED,
        TaskStatus.ALLOCATED,
        TaskStatus.PIPELINED,
        TaskStatus.BINDING,
    }
)
"""A group with such a task keeps its conditions: it may not get what it waits for."""


class Marks(NamedTuple):
    """Marks of a pod group, ms, 0 = none."""

    stale_since_ms: int
    last_start_ms: int
    last_eviction_ms: int


def unschedulable(pool: str, message: str, reasons: str) -> SchedulingCondition:
    """That a group waits in its node pool; `reasons`: JSON, "" = none."""
    return SchedulingCondition(
        type=UNSCHEDULABLE_ON_POOL,
        node_pool=pool,
        reason=UNSCHEDULABLE,
        message=message,
        status="True",
        reasons=reasons,
    )


def with_condition(old: Conditions, new: SchedulingCondition, now_ms: int) -> Conditions:
    """The list with a condition of one node pool, the newest last; unchanged if it says so already.

    The id is one above the highest, whatever the new condition brings along.
    """
    last = last_condition(old)
    if (
        last is not None
        and _says(last) == _says(new)
        and old[-1].node_pool == new.node_pool
        and sum(one.node_pool == new.node_pool for one in old) == 1
    ):
        return old
    number = max(_number(last.transition_id), 0) if last is not None else 0
    entered = msgspec.structs.replace(
        new, transition_id=str(number + 1), since=rfc3339(now_ms) if now_ms else ""
    )
    return (*(one for one in old if one.node_pool != new.node_pool), entered)


def cleared(old: Conditions, statuses: Iterable[TaskStatus]) -> Conditions:
    """The list of a group with tasks in these statuses: none, once nothing of it waits."""
    return old if any(status in _UNDECIDED for status in statuses) else ()


def raw_conditions(conditions: Sequence[SchedulingCondition]) -> list[dict[str, Any]]:
    """As a status has them."""
    found = []
    for one in conditions:
        raw: dict[str, Any] = {
            "type": one.type,
            "nodePool": one.node_pool,
            "reason": one.reason,
            "message": one.message,
            "transitionID": one.transition_id,
            "lastTransitionTime": one.since,
            "status": one.status,
            "reasons": msgspec.json.decode(one.reasons) if one.reasons else None,
        }
        found.append({name: value for name, value in raw.items() if value})
    return found


def mark_annotations(marks: Marks) -> dict[str, str | None]:
    """The annotations that mirror marks; None = it is to go."""
    return {
        STALE_SINCE: _time(marks.stale_since_ms),
        LAST_START: _time(marks.last_start_ms),
        LAST_EVICTION: _time(marks.last_eviction_ms),
    }


def changed_annotations(
    marks: Marks, annotations: Mapping[str, str], names: Iterable[str]
) -> dict[str, str | None]:
    """Those of the named annotations that say something else than the marks."""
    wanted = mark_annotations(marks)
    return {name: wanted[name] for name in names if annotations.get(name) != wanted[name]}


def as_of_condition(others: str, offset: int) -> list[dict[str, Any]]:
    """`status.conditions` with what others wrote there and the offset that a status is of.

    The status subresource of a custom resource takes no annotations, and a field of its own would
    be pruned by the definitions of an installed KAI.
    """
    ours = {"type": AS_OF, "status": "True", "reason": "Computed", "message": str(offset)}
    return [*(msgspec.json.decode(others) if others else ()), ours]


def _time(ms: int) -> str | None:
    return rfc3339(ms) if ms else None


def _says(one: SchedulingCondition) -> tuple[str, ...]:
    return (one.type, one.node_pool, one.reason, one.message, one.status)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0
