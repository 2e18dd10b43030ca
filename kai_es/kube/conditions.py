"""What the scheduling conditions of a pod group say.

Reference: pkg/scheduler/utils, pkg/scheduler/cache/cluster_info (scheduler-core §4.10).
"""

from collections.abc import Sequence
from typing import Final

from kai_es.kube.labels import DEFAULT_NODE_POOL
from kai_es.kube.objects import PodGroup, SchedulingCondition

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
    readable = digits.isascii() and digits.isdigit() and len(digits) <= 18  # within 64 bits
    return int(text) if readable else -1
