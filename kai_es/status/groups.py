"""What is to be written of one pod group.

Reference: pkg/podgroupcontroller, pkg/scheduler/cache/status_updater (apis §3.7, §3.8).
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from kai_es.kube.labels import AS_OF
from kai_es.kube.objects import PodGroup
from kai_es.kube.parse import KINDS
from kai_es.ports.cluster import Resource
from kai_es.scheduler.columns.jobs import Priorities, is_preemptible
from kai_es.snapshot.status import TaskStatus
from kai_es.status.amounts import quantities
from kai_es.status.conditions import (
    Marks,
    as_of_condition,
    changed_annotations,
    cleared,
    mark_annotations,
    raw_conditions,
    unschedulable,
    with_condition,
)
from kai_es.status.patch import Patch, decoded, difference
from kai_es.status.tally import Sums

POD_GROUPS: Final = Resource("PodGroup", KINDS["PodGroup"].api_version, "podgroups")

Resources = dict[str, dict[str, str]]


class GroupSeen(NamedTuple):
    """A pod group as its row is, and what its status is made from.

    sums:      of its pods, None = they ask for nothing.
    fixed:     nobody may take the place of its pods.
    statuses:  of its pods.
    condition: message and reasons of its scheduling condition, None = it is left alone.
    pool:      name of its node pool.
    """

    group: PodGroup
    sums: Sums | None
    fixed: bool
    marks: Marks
    statuses: Iterable[TaskStatus]
    condition: tuple[str, str] | None
    pool: str


def is_fixed(group: PodGroup, priorities: Priorities) -> bool:
    """Whether nobody may take the place of a group's pods."""
    return not is_preemptible(group.preemptibility, priorities.of(group.priority_class))


def resources_of(sums: Sums | None, *, fixed: bool) -> Resources:
    """`status.resourcesStatus`; what would be empty is left out.

    What a preemptible group holds is never non-preemptible: the reference leaves there what a group
    held before it became preemptible (docs/statuses.md).
    """
    if sums is None:
        return {}
    allocated = quantities(sums.allocated)
    found = {"requested": quantities(sums.requested), "allocated": allocated}
    if fixed:
        found["allocatedNonPreemptible"] = allocated
    return {name: amounts for name, amounts in found.items() if amounts}


def resources_patch(former: str, now: Resources) -> dict[str, Any] | None:
    """The change of `status.resourcesStatus`, None = there is none.

    Args:
        former: as the row keeps it.
        now: as it should be.
    """
    return difference(decoded(former), now) or None


def patches(seen: GroupSeen, *, offset: int, now_ms: int) -> list[Patch]:
    """What is to be written, nothing if everything says so already.

    Args:
        seen: the group.
        offset: what it is computed from.
        now_ms: time of a transition.
    """
    group = seen.group
    found = []
    status = _status(seen, now_ms)
    if status:
        conditions = as_of_condition(group.conditions, offset)
        changes = {"status": {**status, "conditions": conditions}}
        found.append(Patch(POD_GROUPS, group.namespace, group.name, changes, "status"))
    annotations = _annotations(seen)
    if annotations:
        changes = {"metadata": {"annotations": {**annotations, AS_OF: str(offset)}}}
        found.append(Patch(POD_GROUPS, group.namespace, group.name, changes))
    return found


def _status(seen: GroupSeen, now_ms: int) -> dict[str, Any]:
    group = seen.group
    status: dict[str, Any] = {}
    resources = resources_patch(group.resources, resources_of(seen.sums, fixed=seen.fixed))
    if resources is not None:
        status["resourcesStatus"] = resources
    old = group.scheduling_conditions
    new = old
    if seen.condition is not None:
        new = with_condition(old, unschedulable(seen.pool, *seen.condition), now_ms)
    elif old:
        new = cleared(old, seen.statuses)
    if new != old:
        status["schedulingConditions"] = raw_conditions(new) or None
    return status


def _annotations(seen: GroupSeen) -> dict[str, str | None]:
    """Marks that the annotations do not say; a row keeps those as times."""
    group = seen.group
    written = Marks(group.stale_since_ms, group.last_start_ms, group.last_eviction_ms)
    texts = {name: text for name, text in mark_annotations(written).items() if text}
    return changed_annotations(seen.marks, texts, mark_annotations(seen.marks))
