"""A queue's quota, and what follows from quota, fair share and use.

Reference: pkg/scheduler/plugins/proportion/resource_share/*.go (fairness §2.1, §2.3).
"""

import math
from typing import Final, NamedTuple

from kai_es.kube.labels import GPU_MICRO, UNLIMITED
from kai_es.kube.objects import Queue
from kai_es.scheduler.fairness.vectors import Vector

_MEGABYTE: Final = 10**6
_WHEN_NOTHING: Final = (1000.0, 1000.0, 1000.0 / GPU_MICRO)
"""Share per amount where nothing is allocatable: 1000 per unit (fairness §2.3)."""


class Quota(NamedTuple):
    """What a queue is guaranteed, may have at most, and weighs beyond its quota.

    deserved, limit: amounts, `UNLIMITED` = no bound.
    weight: CPU, memory, GPU.
    """

    deserved: Vector
    limit: Vector
    weight: tuple[float, float, float]


def quota_of(queue: Queue) -> Quota:
    """The quota of a queue object: any negative memory is unlimited, of CPU and GPU only −1."""
    cpu, memory, gpu = queue.cpu, queue.memory, queue.gpu
    return Quota(
        deserved=(_amount(cpu.quota, 1), _memory(memory.quota), _amount(gpu.quota, GPU_MICRO)),
        limit=(_amount(cpu.limit, 1), _memory(memory.limit), _amount(gpu.limit, GPU_MICRO)),
        weight=(cpu.weight, memory.weight, gpu.weight),
    )


def _memory(megabytes: float) -> int:
    return UNLIMITED if megabytes < 0 else _amount(megabytes, _MEGABYTE)


def _amount(value: float, unit: int) -> int:
    if value == -1 or not math.isfinite(value):
        return UNLIMITED
    return min(round(value * unit), UNLIMITED)


def requestable(request: int, limit: int) -> int:
    """What a queue may still ask for of one resource."""
    return min(request, limit)


def allocatable(deserved: int, fair_share: int, limit: int) -> int:
    """What a queue may use of one resource without being above its part; `UNLIMITED` = all."""
    if deserved >= UNLIMITED:
        return limit
    return min(limit, max(deserved, fair_share))


def allocatable_share(deserved: Vector, fair_share: Vector, limit: Vector) -> Vector:
    """`allocatable` of all resources."""
    return (
        allocatable(deserved[0], fair_share[0], limit[0]),
        allocatable(deserved[1], fair_share[1], limit[1]),
        allocatable(deserved[2], fair_share[2], limit[2]),
    )


def dominant_share(used: Vector, share: Vector, total: Vector) -> float:
    """The largest ratio of use to share over the resources, at least 0.

    Args:
        used: of the queue.
        share: its allocatable share; the total stands in where that is unlimited.
        total: of the cluster.
    """
    cpu, memory, gpu = share
    a = total[0] if cpu >= UNLIMITED else cpu
    b = total[1] if memory >= UNLIMITED else memory
    c = total[2] if gpu >= UNLIMITED else gpu
    return max(
        used[0] / a if a else used[0] * _WHEN_NOTHING[0],
        used[1] / b if b else used[1] * _WHEN_NOTHING[1],
        used[2] / c if c else used[2] * _WHEN_NOTHING[2],
        0.0,
    )
