"""Whether some single node is large enough for a pod at all (`MaxNodePoolResources`).

Reference: pkg/scheduler/k8s_internal/predicates/maxNodeResources.go (plugins §3.5).
"""

from typing import Final

import numpy as np

from kai_es.events.decisions import Reason
from kai_es.kube.labels import BASE_RESOURCES, CPU, GPU, MEMORY, MIG_PREFIX
from kai_es.scheduler.columns.resources import CPU_ROW, GPU_ROW, MEMORY_ROW, PODS_ROW, Vector
from kai_es.scheduler.flags import EXTENDED_NOT_SERVED, LARGEST_NOT_SHOWN
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.reasons.render import request_text
from kai_es.snapshot.shapes import Shape

_ALWAYS_SHOWN: Final = frozenset({CPU, MEMORY, GPU, "ephemeral-storage", "storage"})


class LargestNode:
    """The largest amount of each resource on any node, against what pods ask for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._largest: Vector | None = None
        self._small: set[Shape] = set()

    def check(self, task: int) -> Reason | None:
        """Why no single node is large enough, None = one is."""
        session = self._session
        shape = session.row(task).shape
        if shape in self._small:
            return None
        demand = session.columns.demand(shape)
        if self._largest is None:
            self._largest = session.nodes.columns.allocatable.max(axis=1, initial=0)
        largest, served = self._largest, self._served(shape)
        names = session.columns.index.names
        over = {name: 0 for name, _ in demand.absent if name not in served}
        if not over and (demand.request <= largest).all():
            self._small.add(shape)
            return None
        for row in np.flatnonzero(demand.request > np.maximum(largest, 0)).tolist():
            if row <= PODS_ROW or names[row] not in served:
                over[names[row]] = int(largest[row])
        for row in (GPU_ROW, CPU_ROW, MEMORY_ROW, PODS_ROW):
            if names[row] in over:
                return self._too_large(task, names[row], over[names[row]])
        if not over:
            return None  # a node has less than nothing of what is not asked for
        first = min(over)
        return self._too_large(task, first, over[first])

    def _served(self, shape: Shape) -> frozenset[str]:
        """Resources that a device class serves, so that no node need have them."""
        claims = self._session.claims
        if claims is None or EXTENDED_NOT_SERVED in self._session.flags:
            return frozenset()
        return frozenset(claims.served(shape))

    def _too_large(self, task: int, resource: str, most: int) -> Reason:
        session = self._session
        row = session.row(task)
        if LARGEST_NOT_SHOWN in session.flags and resource not in _ALWAYS_SHOWN:
            most = 0  # compat: maxNodeResources.go keeps no maximum for these
        return Reason(
            code="larger-than-any-node",
            args={
                "pod": f"{row.pod.namespace}/{row.pod.name}",
                "resource": resource,
                "most": most,
                "pool": session.columns.lens.pool,
                "request": shape_text(row.shape),
            },
        )


def shape_text(shape: Shape) -> str:
    """What pods of a shape ask for, as people read it."""
    asked = shape.spec.requests
    others = sorted(n for n in asked if n not in BASE_RESOURCES and not n.startswith(MIG_PREFIX))
    shown = {name: asked.get(name, 0) for name in (*BASE_RESOURCES, *others)}
    return request_text(shown, shape.quota, shape.spec.gpu.mig)
