"""Limits, and the quota of jobs that nobody may displace.

Both checks walk from the job's queue to its root and stop at the first queue that has no room. A
resource that is not asked for is never a reason, even where the queue is over already.

Reference: pkg/scheduler/plugins/proportion/capacity_policy/*.go (fairness §5).
"""

import enum
from collections.abc import Callable, Iterable
from typing import NamedTuple

from kai_es.scheduler.fairness.vectors import RESOURCES, Resource, Vector


class Rule(enum.Enum):
    """Which check failed; the value is the reference's word for it."""

    OVER_LIMIT = "OverLimit"
    OVER_QUOTA = "NonPreemptibleOverQuota"


class QueueRoom(NamedTuple):
    """What the checks look at of one queue."""

    deserved: Vector
    limit: Vector
    allocated: Vector
    non_preemptible: Vector


class Refusal(NamedTuple):
    """The first queue and resource without room.

    queue:    row of the queue.
    bound:    its limit or quota of the resource.
    used:     what counts against it: allocated, or allocated to non-preemptible jobs.
    requested: by the job.
    """

    rule: Rule
    queue: int
    resource: Resource
    bound: int
    used: int
    requested: int


def over(bound: Vector, used: Vector, requested: Vector) -> Resource | None:
    """The first resource in which a request does not fit below a bound; None = it fits."""
    for resource in RESOURCES:
        if requested[resource] and bound[resource] < used[resource] + requested[resource]:
            return resource
    return None


def over_limit(
    path: Iterable[int], room: Callable[[int], QueueRoom], requested: Vector
) -> Refusal | None:
    """Whether a request takes a queue above its limit.

    Args:
        path: rows of the job's queue and its ancestors, upwards.
        room: of a queue row.
        requested: by the job.
    """
    for row in path:
        queue = room(row)
        resource = over(queue.limit, queue.allocated, requested)
        if resource is not None:
            return _refusal(Rule.OVER_LIMIT, row, resource, queue.limit, queue.allocated, requested)
    return None


def non_preemptible_over_quota(
    path: Iterable[int], room: Callable[[int], QueueRoom], requested: Vector
) -> Refusal | None:
    """Whether a job that nobody may displace takes a queue above its quota; not for others.

    Args: as of `over_limit`.
    """
    for row in path:
        queue = room(row)
        used = queue.non_preemptible
        resource = over(queue.deserved, used, requested)
        if resource is not None:
            return _refusal(Rule.OVER_QUOTA, row, resource, queue.deserved, used, requested)
    return None


def over_capacity(
    path: tuple[int, ...],
    room: Callable[[int], QueueRoom],
    requested: Vector,
    *,
    preemptible: bool,
) -> Refusal | None:
    """The check at the start of every attempt to place a job, and of a task on a node."""
    refusal = over_limit(path, room, requested)
    if refusal is None and not preemptible:
        refusal = non_preemptible_over_quota(path, room, requested)
    return refusal


def _refusal(
    rule: Rule, row: int, resource: Resource, bound: Vector, used: Vector, requested: Vector
) -> Refusal:
    return Refusal(rule, row, resource, bound[resource], used[resource], requested[resource])
