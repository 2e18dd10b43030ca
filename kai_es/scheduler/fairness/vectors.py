"""Amounts of the three resources that fairness knows.

A vector is (CPU millicores, memory bytes, GPU in `gpu_micro`), the order in which the reference
looks at resources. `UNLIMITED` is larger than every real amount, so the plain comparison is the
reference's unlimited-aware one.

Reference: pkg/scheduler/plugins/proportion/resource_share/resource_quantities.go (fairness §2.4).
"""

import enum
from typing import Final, TypeAlias

from kai_es.kube.labels import CPU, GPU, MEMORY

Vector: TypeAlias = tuple[int, int, int]

NOTHING: Final[Vector] = (0, 0, 0)


class Resource(enum.IntEnum):
    """Position in a vector."""

    CPU = 0
    MEMORY = 1
    GPU = 2


RESOURCES: Final = (Resource.CPU, Resource.MEMORY, Resource.GPU)
RESOURCE_NAMES: Final = (CPU, MEMORY, GPU)


def added(one: Vector, other: Vector) -> Vector:
    """Sum by resource."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def subtracted(one: Vector, other: Vector) -> Vector:
    """Difference by resource; may be negative."""
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


def fits(one: Vector, other: Vector) -> bool:
    """`one ≤ other` in every resource."""
    return one[0] <= other[0] and one[1] <= other[1] and one[2] <= other[2]


def less_somewhere(one: Vector, other: Vector) -> bool:
    """`one < other` in at least one resource."""
    return one[0] < other[0] or one[1] < other[1] or one[2] < other[2]


def less_everywhere(one: Vector, other: Vector) -> bool:
    """`one < other` in every resource."""
    return one[0] < other[0] and one[1] < other[1] and one[2] < other[2]


def asked(vector: Vector) -> tuple[bool, bool, bool]:
    """Which resources a vector names."""
    return vector[0] > 0, vector[1] > 0, vector[2] > 0
