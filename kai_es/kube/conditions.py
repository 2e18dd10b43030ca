"""What the conditions of pods, pod groups and queues say.

What does not look like a condition is passed over: statuses are read to know what is written
already, and an object does not become unreadable by them.

Reference: pkg/scheduler/utils, pkg/scheduler/cache/cluster_info (scheduler-core §4.10).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kai_es.kube.labels import AS_OF, DEFAULT_NODE_POOL
from kai_es.kube.objects import PodGroup, SchedulingCondition

TRUE: Final = "True"
"""`condition_text` of a condition that holds."""

_DIGITS_MAX: Final = 18  # within 64 bits
_json: Final = msgspec.json.Encoder(order="deterministic")

NO_BACKOFF: Final = -1
"""Effective `spec.schedulingBackoff` of a group that is never left out."""


def waits_for_another_pool(group: PodGroup, pool_key: str) -> bool:
    """Whether a group with back-off has failed in its node pool, so that nobody tries it here.

    It is left out until something moves it to another pool.

    Args:
        group: the pod group.
        pool_key: label key of node pools.
    """
    if scheduling_backoff(group.scheduling_backoff) == NO_BACKOFF:
        return False
    last = last_condition(group.scheduling_conditions)
    return last is not None and last.node_pool == group.labels.get(pool_key, DEFAULT_NODE_POOL)


def last_condition(conditions: Sequence[SchedulingCondition]) -> SchedulingCondition | None:
    """The condition with the highest transition id, the earlier one on a tie; None = none.

    An id that is no number counts as −1.
    """
    return max(conditions, key=_transition_id, default=None)


def condition_index(conditions: Sequence[SchedulingCondition], node_pool: str) -> int:
    """Place of a node pool's condition, −1 = it has none."""
    for at, condition in enumerate(conditions):
        if condition.node_pool == node_pool:
            return at
    return -1


def scheduling_backoff(value: int | None) -> int:
    """Effective value of `spec.schedulingBackoff`."""
    return NO_BACKOFF if value is None else value


def _transition_id(condition: SchedulingCondition) -> int:
    text = condition.transition_id
    digits = text[1:] if text[:1] in ("+", "-") else text
    readable = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
    return int(text) if readable else -1


def condition_text(conditions: object, kind: str) -> str:
    """A condition of a pod in one text: `True`, or status, reason and message, a line each.

    Equal texts say the same; what a condition that holds says besides is of no account. "" = there
    is no condition of this type.
    """
    for one in conditions if isinstance(conditions, list) else ():
        if isinstance(one, dict) and one.get("type") == kind:
            status = str(one.get("status", ""))
            if status == TRUE:
                return TRUE
            return said_condition(
                status, str(one.get("reason") or ""), str(one.get("message") or "")
            )
    return ""


def said_condition(status: str, reason: str, message: str) -> str:
    """`condition_text` of a condition that does not hold."""
    return f"{status}\n{reason}\n{message}"


def json_text(value: object) -> str:
    """A part of a status as JSON with sorted keys, "" = unset or empty."""
    return _json.encode(value).decode() if value else ""


def split_conditions(raw: object) -> tuple[str, int]:
    """`status.conditions` without the status writer's own (as JSON), and the offset in that."""
    others: list[Any] = []
    as_of = 0
    for one in raw if isinstance(raw, list) else ():
        if isinstance(one, Mapping) and one.get("type") == AS_OF:
            text = str(one.get("message", ""))
            is_offset = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
            as_of = int(text) if is_offset else 0
        else:
            others.append(one)
    return json_text(others), as_of
