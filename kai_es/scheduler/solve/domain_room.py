"""What a set of pods needs, and what the domains of a topology have for it.

Reference: pkg/scheduler/plugins/topology/job_filtering.go (plugins §7.3–7.5).
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.resources import CPU_ROW, GPU_ROW, MEMORY_ROW, PODS_ROW
from kai_es.scheduler.columns.topology import TopologyTree
from kai_es.scheduler.flags import SHARED_ROOM_MISSED
from kai_es.scheduler.framework.session import Session
from kai_es.scheduler.solve.domains import NOT_COUNTED, Need, Room
from kai_es.snapshot.shapes import Shape

Amounts = NDArray[np.int64]


def need_of(session: Session, tasks: Sequence[int]) -> Need:
    """What tasks ask for together."""
    counts: dict[Shape, int] = {}
    for task in tasks:
        shape = session.row(task).shape
        counts[shape] = counts.get(shape, 0) + 1
    demands = [(session.columns.demand(shape), n) for shape, n in counts.items()]
    total = np.zeros(len(session.columns.index), np.int64)
    largest = np.zeros_like(total)
    absent: dict[str, int] = {}
    for demand, n in demands:
        total += demand.request * n
        np.maximum(largest, demand.request, out=largest)
        for name, amount in demand.absent:
            absent[name] = absent.get(name, 0) + amount * n
    return Need(
        n_tasks=len(tasks),
        total=total,
        largest=largest,
        alike=_alike(counts, [demand.request for demand, _ in demands]),
        shares=any(shape.shared for shape in counts),
        absent=tuple(sorted(absent.items())),
    )


def _alike(shapes: Iterable[Shape], requests: Sequence[Amounts]) -> bool:
    """Whether all ask for GPUs or none does, and for the same further resources."""
    if len(requests) < 2:
        return True
    if len({shape.gpu > 0 for shape in shapes}) > 1:
        return False
    further = np.array(requests) > 0
    further[:, [CPU_ROW, MEMORY_ROW, GPU_ROW]] = False
    return bool((further.all(axis=0) == further.any(axis=0)).all())


def room_of(
    session: Session, tree: TopologyTree, start: int, need: Need, *, leaving: bool = True
) -> Room:
    """What a domain and all those in it have for the pods.

    Args:
        session: the session.
        tree: the topology.
        start: the domain.
        need: of the pods.
        leaving: what is being released counts too.
    """
    state = session.nodes
    free: Amounts = state.free if leaving else state.idle
    counted = free
    if need.shares and state.sharing:
        counted = free.copy()
        missed = SHARED_ROOM_MISSED in session.flags
        if not missed or 0 < need.largest[GPU_ROW] < GPU_MICRO:
            for n in sorted(state.sharing):
                room = _shared_room(session, n, all_devices=missed, leaving=leaving)
                counted[GPU_ROW, n] += room
        if not missed:
            free = counted
    known = tree.below(start)
    pods = np.full(len(tree), NOT_COUNTED, np.int64)
    if need.alike:
        pods[known] = tree.sums(_pods(need, counted))[known]
    return Room(free=tree.sums(free), pods=pods, known=known)


def _pods(need: Need, free: Amounts) -> Amounts:
    """int64 [N]: pods of the largest shape that a node has room for."""
    if need.absent:
        return np.zeros(free.shape[1], np.int64)
    rows = [row for row, amount in enumerate(need.largest.tolist()) if amount > 0]
    found = np.full(free.shape[1], need.n_tasks, np.int64)
    if rows in ([], [PODS_ROW]):
        return found
    found[:] = np.iinfo(np.int64).max
    for row in rows:
        np.minimum(found, free[row] // need.largest[row], out=found)
    found[(free < need.largest[:, None]).any(axis=0)] = 0
    return found


def _shared_room(session: Session, n: int, *, all_devices: bool, leaving: bool) -> int:
    """Room on the shared devices of a node, gpu_micro.

    A device that leaves as a whole is among the whole ones already.
    """
    capacity = session.nodes.columns.facts[n].gpu_memory
    total = 0
    for device in session.nodes.devices[n].values():
        allocated = device.allocated or 0
        if device.used > 0 and (all_devices or allocated != device.releasing):
            room = capacity - allocated + (device.releasing if leaving else 0)
            total += max(room, 0) * GPU_MICRO // capacity
    return total
