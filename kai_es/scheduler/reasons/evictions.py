"""What a victim is told.

Reference: pkg/scheduler/plugins/proportion, pkg/scheduler/actions (scheduler-core §11.2,
fairness §6.5).
"""

from functools import lru_cache
from typing import NamedTuple

from kai_es.kube.labels import DEFAULT_POD_SET
from kai_es.scheduler.fairness.vectors import Vector
from kai_es.scheduler.reasons.amounts import CORE, GIGABYTE, humanized, whole_devices


class QueueLine(NamedTuple):
    """A queue as the reclaim message shows it."""

    name: str
    allocated: Vector
    deserved: Vector
    fair_share: Vector
    priority: int


def reclaimed_text(
    pod: str, taker: str, victim: QueueLine | None, reclaimer: QueueLine | None
) -> str:
    """A pod gave way to a job of another queue.

    Args:
        pod: `namespace/name`.
        taker: `namespace/name` of the pod group.
        victim: the victim's queue, or its parent where the leaves have different parents.
        reclaimer: the same on the other side; without one of them the first sentence stands alone.
    """
    first = f"Pod {pod} was preempted by workload {taker}."
    if victim is None or reclaimer is None:
        return first
    return f"{first}\n{queue_text(victim)}\n{queue_text(reclaimer)}"


@lru_cache(256)  # one statement's victims are told of the same few queues
def queue_text(queue: QueueLine) -> str:
    """Use, quota, fair share and priority of a queue."""
    used, quota, share = (
        _amounts(vector) for vector in (queue.allocated, queue.deserved, queue.fair_share)
    )
    return (
        f"{queue.name} uses <{used}> with a quota of <{quota}>, fair-share of <{share}> "
        f"and queue priority of <{queue.priority}>."
    )


def _amounts(vector: Vector) -> str:
    cpu, memory, gpu = vector
    return (
        f"GPU: {whole_devices(gpu)}, CPU: {humanized(cpu, CORE)} (cores), "
        f"memory: {humanized(memory, GIGABYTE)} (GB)"
    )


def preempted_text(pod: str, taker: str) -> str:
    """A pod gave way to a job of higher priority in its own queue."""
    return f"Pod {pod} was preempted by higher priority workload {taker}"


def moved_text(pod: str) -> str:
    """A pod was moved to make room."""
    return (
        f"Pod {pod} was preempted and rescheduled due to bin packing "
        "(resource consolidation) procedure"
    )


def stale_text(pod: str, *, minimum: int | None, sub_group: str = "") -> str:
    """A pod of a gang that has lost members.

    Args:
        pod: `namespace/name`.
        minimum: of its pod set, None = the pod set is unknown.
        sub_group: its pod set; "" or `default` where the job has no other.
    """
    text = "Workload doesn't meet the minimum required number of pods"
    if minimum is not None:
        text += f" ({minimum})"
    if sub_group not in ("", DEFAULT_POD_SET):
        text += f" in sub-group {sub_group}"
    return f"{text}, evicting remaining pod: {pod}"
