"""What conditions of nodes and pod groups say.

Reference: pkg/scheduler/scheduler_util, pkg/scheduler/utils (scheduler-core §9.2, §4.10).
"""

from collections.abc import Sequence
from typing import Final

from kai_es.kube.objects import Node, SchedulingCondition

NO_BACKOFF: Final = -1
"""Effective `spec.schedulingBackoff` of a group that is never left out."""

_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def node_ready(node: Node) -> bool:
    """Whether a node takes part: not cordoned, `Ready` if it says so, under no pressure.

    A node without any condition counts as ready.
    """
    if node.unschedulable or node.conditions.get("Ready", "True") != "True":
        return False
    return all(node.conditions.get(kind, "False") == "False" for kind in _PRESSURES)


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
