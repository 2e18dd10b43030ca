"""The order in which sibling queues are served.

A queue is represented by its next job, or, when victims are sought, by what its victims would
free. The order is a sort key, so a queue is looked at once and then compared by the machine.

Reference: pkg/scheduler/plugins/proportion/queue_order/queue_order.go (fairness §4.1).
"""

from typing import NamedTuple, TypeAlias

from kai_es.scheduler.fairness.shares import dominant_share
from kai_es.scheduler.fairness.vectors import Vector, added, fits, less_everywhere, subtracted
from kai_es.scheduler.flags import WEAKER_QUEUE_PARTIAL, Flags


class QueueStanding(NamedTuple):
    """What of a queue stays the same while a session lasts.

    allocatable: `shares.allocatable_share` of the next three.
    identity:    decides last: its name, or its row where rows are in name order.
    """

    deserved: Vector
    fair_share: Vector
    allocatable: Vector
    priority: int
    created_ms: int
    identity: str | int


class _Weaker:
    """compat: comparable only if one vector is nowhere above the other, else equal."""

    __slots__ = ("vector",)

    def __init__(self, vector: Vector) -> None:
        self.vector = vector

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, _Weaker)
        return not self < other and not other < self

    def __lt__(self, other: "_Weaker") -> bool:
        return self.vector != other.vector and fits(self.vector, other.vector)

    __hash__ = None  # type: ignore[assignment]


QueueKey: TypeAlias = tuple[bool, bool, int, bool, float, float, Vector | _Weaker, int, str | int]


def queue_key(
    queue: QueueStanding,
    allocated: Vector,
    wanted: Vector,
    freed: Vector,
    total: Vector,
    flags: Flags,
) -> QueueKey:
    """Place of a queue among its siblings; the lowest key is served first.

    Args:
        queue: the queue.
        allocated: what it uses now.
        wanted: what its next job would take, zero without one.
        freed: what its victims would give back.
        total: of the cluster.
        flags: rule flags in force.

    Returns:
        In order of weight: above its fair share in every resource; not starved (with the job it
        would leave its quota); priority, higher first; would use what it has no share of;
        dominant share with job and without victims; dominant share now; allocatable share, the
        smaller first; age; identity.
    """
    after = added(allocated, wanted)
    share = queue.allocatable
    zero_share = (
        (share[0] == 0 and after[0] > 0)
        or (share[1] == 0 and after[1] > 0)
        or (share[2] == 0 and after[2] > 0)
    )
    weaker: Vector | _Weaker = (share[2], share[0], share[1])
    if WEAKER_QUEUE_PARTIAL in flags:  # compat: queue_order.go; the order then has cycles
        weaker = _Weaker(share)
    return (
        less_everywhere(queue.fair_share, allocated),
        not fits(after, queue.deserved),
        -queue.priority,
        zero_share,
        dominant_share(subtracted(after, freed), share, total),
        dominant_share(allocated, share, total),
        weaker,
        queue.created_ms,
        queue.identity,
    )
