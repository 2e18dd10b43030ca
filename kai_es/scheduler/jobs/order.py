"""Orders of jobs, of tasks within a pod set, and of members within a sub-group set.

Each order of the reference's comparators is given as a sort key: computed once, compared by the
machine. Where the reference asks several plugins in turn, the core joins their keys in that turn
and ends with the fallback.

Reference: pkg/scheduler/plugins/{priority,elastic,kubeflow,ray,taskorder,subgrouporder}
(scheduler-core §6.4, plugins §11).
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from kai_es.kube.labels import TASK_PRIORITY_LABEL
from kai_es.scheduler.flags import TASK_PRIORITY_BOTH_BAD, Flags
from kai_es.scheduler.jobs.tree import Counts, Member, PodSet, held_members

Labels: TypeAlias = Mapping[str, str]
Key: TypeAlias = tuple[float | str, ...]
MemberKey: TypeAlias = Callable[[Member, Counts], Key]

KUBEFLOW_ROLE: Final = "training.kubeflow.org/job-role"
KUBEFLOW_LEADERS: Final = frozenset({"master", "launcher"})
RAY_TYPE: Final = "ray.io/node-type"
RAY_LEADER: Final = "head"

_PRESENT, _UNREADABLE, _ABSENT = range(3)


def kubeflow_key(labels: Labels) -> int:
    """Leaders of a Kubeflow job first."""
    return 0 if labels.get(KUBEFLOW_ROLE) in KUBEFLOW_LEADERS else 1


def ray_key(labels: Labels) -> int:
    """The head of a Ray cluster first."""
    return 0 if labels.get(RAY_TYPE) == RAY_LEADER else 1


def task_priority_key(labels: Labels) -> tuple[int, int]:
    """Pods with a readable task priority first, the larger number before the smaller.

    An unreadable one is behind every readable one, and before a pod without the label.
    """
    text = labels.get(TASK_PRIORITY_LABEL)
    if text is None:
        return _ABSENT, 0
    number = _integer(text)
    return (_UNREADABLE, 0) if number is None else (_PRESENT, -number)


def compare_task_priority(left: Labels, right: Labels, flags: Flags) -> int:
    """−1 left first, 1 right first, 0 equal.

    Equal to comparing `task_priority_key`, save for two unreadable values under compat.
    """
    mine, other = task_priority_key(left), task_priority_key(right)
    if mine[0] == other[0] == _UNREADABLE and TASK_PRIORITY_BOTH_BAD in flags:
        return 1  # compat: task_order.go looks at the left side first
    return (mine > other) - (mine < other)


def _integer(text: str) -> int | None:
    """As Go's strconv.Atoi: a sign and ASCII digits, within 64 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 64:
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


def member_by_name(member: Member, counts: Counts) -> Key:
    """Members of a set by name: the order without the plugin `subgrouporder`."""
    return (member.name,)


def member_by_need(member: Member, counts: Counts) -> Key:
    """Order of the plugin `subgrouporder`, then the name.

    Members below what they need first, all alike; then those with a need, the lower have/need
    first; then those without a need, the fewer the first.

    Args:
        member: a pod set or a sub-group set.
        counts: active-allocated tasks.
    """
    if isinstance(member, PodSet):
        have, need = counts[member.leaf], member.min_available
    else:
        have, need = held_members(member, counts), member.needed
    if have < need:
        return (0, 0.0, member.name)
    if need > 0:
        return (1, have / need, member.name)
    return (2, have, member.name)
