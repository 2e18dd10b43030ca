"""Resource dimensions of a shard, and requests as vectors over them.

Reference: pkg/scheduler/api/resource_info/resource_vector.go (scheduler-core §5.2).
"""

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import BASE_RESOURCES, GPU
from kai_es.snapshot.shapes import Shape

Vector = NDArray[np.int64]

CPU_ROW: Final = 0
MEMORY_ROW: Final = 1
GPU_ROW: Final = 2
PODS_ROW: Final = 3


class ResourceIndex:
    """Rows of the resource-major arrays: CPU, memory, gpu, pods, then what nodes offer.

    A dimension exists because some node has offered it; one that is only asked for fits nowhere
    and needs none. Rows are never given up or moved: `order` is the order that people see.
    """

    def __init__(self) -> None:
        self.names: list[str] = list(BASE_RESOURCES)
        self.row: dict[str, int] = {name: row for row, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: Iterable[str]) -> bool:
        """Make sure that these names have a row; whether one was new."""
        new = sorted({name for name in names if name not in self.row})
        for name in new:
            self.row[name] = len(self.names)
            self.names.append(name)
        return bool(new)

    def order(self) -> list[int]:
        """Rows in the order of display: the four base resources, then names in byte order."""
        n_base = len(BASE_RESOURCES)
        rest = sorted(range(n_base, len(self.names)), key=self.names.__getitem__)
        return [*range(n_base), *rest]

    def vector(self, amounts: Mapping[str, int]) -> Vector:
        """int64 [R]; names without a row are left out."""
        vector = np.zeros(len(self.names), np.int64)
        for name, amount in amounts.items():
            row = self.row.get(name)
            if row is not None:
                vector[row] = amount
        return vector


class Demand:
    """A shape against one resource index.

    request:  int64 [R]; `gpu` = devices, fractions and claims, 0 for device memory and MIG.
    tracked:  int64 [R], what a node's account moves by: as `request`, but no GPU for shares of
              devices, which are counted per device.
    absent:   requested names that no node offers.
    as_other, as_releasing, as_pipelined: int64 [3, R]: change of idle, free (idle + releasing) and
              used when a task of that status comes to a node.
    changes:  by kinds before and after (`columns.sharing`): the same when a task changes.
    """

    __slots__ = (
        "absent",
        "as_other",
        "as_pipelined",
        "as_releasing",
        "changes",
        "request",
        "tracked",
    )

    def __init__(self, shape: Shape, index: ResourceIndex) -> None:
        requests = shape.spec.requests
        self.request = index.vector(requests)
        self.request[GPU_ROW] = shape.gpu + shape.dra
        self.tracked = self.request.copy()
        if shape.shared:
            self.tracked[GPU_ROW] = 0
        self.absent = tuple(
            (name, amount)
            for name, amount in sorted(requests.items())
            if name not in index.row and amount > 0 and name != GPU
        )
        zero = np.zeros_like(self.tracked)
        self.as_other = np.stack((-self.tracked, -self.tracked, self.tracked))
        self.as_releasing = np.stack((-self.tracked, zero, self.tracked))
        self.as_pipelined = np.stack((zero, -self.tracked, self.tracked))
        kinds = (self.as_releasing, self.as_pipelined, self.as_other, np.zeros_like(self.as_other))
        self.changes = [[after - before for after in kinds] for before in kinds]
        for array in (self.request, self.tracked, *kinds):
            array.flags.writeable = False
