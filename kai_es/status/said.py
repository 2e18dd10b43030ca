"""What a cycle says of a pod group, in the reference's words: conditions and events.

Reference: pkg/scheduler/cache/status_updater (scheduler-core §11.4, §12.3, apis §8.6, §8.7).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.conditions import json_text
from kai_es.kube.labels import DEFAULT_NODE_POOL, DEFAULT_POD_SET
from kai_es.kube.objects import PodGroup
from kai_es.scheduler.jobs.tree import PodSet
from kai_es.scheduler.reasons import codes, fit, render
from kai_es.scheduler.reasons.fit import JobError
from kai_es.scheduler.reasons.quota import Asked
from kai_es.snapshot.status import ACTIVE_ALLOCATED, ACTIVE_USED, TaskStatus
from kai_es.status.conditions import UNSCHEDULABLE

Details: TypeAlias = Callable[[Asked], Mapping[str, object] | None]

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

_OF_A_TASK: Final = frozenset(
    {codes.TASK_NOT_PLACED, codes.GANG_NOT_PLACED, codes.SUB_GROUP_NOT_PLACED}
)
"""Reasons of a group that say which of its tasks found no node, and why."""

_WAITING: Final = frozenset({TaskStatus.PENDING, TaskStatus.GATED})
_SINGLE_TRY: Final = 1
"""The one `schedulingBackoff` with which messages name the node pool."""


class Said(NamedTuple):
    """What the reasons of one group come to.

    errors:    those that the reference has words for.
    tasks:     by `namespace/name` of a pod, its own text.
    not_ready: text of the event, "" = the group is ready.
    """

    errors: tuple[JobError, ...] = ()
    tasks: Mapping[str, str] = {}
    not_ready: str = ""


class Task(NamedTuple):
    """A pod of a group. `pod`: `namespace/name`; stranger: its sub-group does not exist."""

    uid: str
    pod: str
    status: TaskStatus
    stranger: str = ""


class Event(NamedTuple):
    """What is told of a pod group (uid "") or of one of its pods."""

    uid: str
    type: str
    reason: str
    message: str


class Words(NamedTuple):
    """Everything that is to be written of one group.

    events:    as a set.
    pods:      uid -> message of the condition `PodScheduled` of a pod that cannot be scheduled.
    condition: message and reasons (JSON) of the scheduling condition, None = it is not touched.
    """

    events: tuple[Event, ...] = ()
    pods: Mapping[str, str] = {}
    condition: tuple[str, str] | None = None


def said_by(reasons: Iterable[Reason]) -> Said:
    """What the reasons of a cycle come to."""
    reasons = tuple(reasons)
    tasks: dict[str, str] = {}
    not_ready = ""
    for reason in reasons:
        if reason.code in _OF_A_TASK and reason.parts:
            pod = render.text_of(reason.args, "pod")
            tasks.setdefault(pod, render.task_message(reason.parts[0], pod))
        elif reason.code == codes.NOT_READY:
            not_ready = render.not_ready_message(reason)
    return Said(tuple(render.job_errors(reasons)), tasks, not_ready)


def words_of(
    group: PodGroup,
    tasks: Sequence[Task],
    said: Said,
    *,
    pool: str,
    detailed: bool = False,
    details: Details = lambda _: None,
) -> Words:
    """What is to be written of a group at the end of a cycle.

    Args:
        group: the pod group.
        tasks: its pods, strangers among them.
        said: what the cycle says.
        pool: name of its node pool.
        detailed: errors of groups in the long form.
        details: what a condition shows of a queue that refused the group, None = nothing.
    """
    events = [Event(one.uid, WARNING, UNSCHEDULABLE, one.stranger) for one in tasks if one.stranger]
    pods = {one.uid: one.stranger for one in tasks if one.stranger}
    own = [one for one in tasks if not one.stranger]
    if not any(one.status in _WAITING for one in own):
        return Words(tuple(events), pods)
    if said.not_ready:
        return Words((*events, Event("", NORMAL, "NotReady", said.not_ready)), pods)
    head = f"Node-Pool '{pool}': " if group.scheduling_backoff == _SINGLE_TRY else ""
    short = fit.job_text(said.errors)
    message = head + (fit.job_detailed_text(said.errors) if detailed else short)
    for one in own:
        if one.status is not TaskStatus.PENDING:
            continue
        text = head + (said.tasks.get(one.pod) or (short if said.errors else fit.NO_POD))
        events.append(Event(one.uid, WARNING, UNSCHEDULABLE, text))
        if group.mark_unschedulable:
            pods[one.uid] = text
    events.append(Event("", NORMAL, UNSCHEDULABLE, message))
    if any(one.status in ACTIVE_ALLOCATED for one in own):
        return Words(tuple(events), pods)
    return Words(tuple(events), pods, (message, json_text(_reasons(said.errors, details))))


def unknown_sub_group(group: PodGroup, sub_group: str) -> str:
    """That a pod names a sub-group which is not there."""
    args: dict[str, Arg] = {
        "sub_group": sub_group or DEFAULT_POD_SET,
        "group": f"{group.namespace}/{group.name}",
    }
    return render.general_text(Reason(code=codes.UNKNOWN_SUB_GROUP, args=args), "")


def stale_text(leaves: Iterable[tuple[PodSet, Iterable[TaskStatus]]]) -> str:
    """That a gang has lost members.

    Args:
        leaves: its pod sets with the statuses of their tasks.
    """
    active = minimum = 0
    short = ""
    for leaf, statuses in leaves:
        n_active = sum(status in ACTIVE_USED for status in statuses)
        active += n_active
        minimum += leaf.min_available
        if n_active < leaf.min_available and leaf.name != DEFAULT_POD_SET:
            short += (
                f", subGroup {leaf.name} minMember is {leaf.min_available} and {n_active} pods are "
                "active"
            )
    return f"Job is stale. {active} pods are active, minMember is {minimum}{short}"


def pool_of(group: PodGroup, pool_key: str) -> str:
    """Name of a group's node pool."""
    return group.labels.get(pool_key) or DEFAULT_NODE_POOL


def _reasons(errors: Iterable[JobError], details: Details) -> list[dict[str, Any]]:
    found = []
    for one in errors:
        raw: dict[str, Any] = {"reason": one.reason, "message": ", ".join(one.messages)}
        more = details(one.asked) if one.asked is not None else None
        found.append(raw | ({} if more is None else {"details": more}))
    return found
