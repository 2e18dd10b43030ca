"""Which devices of a node a task that shares them gets.

Reference: pkg/scheduler/gpu_sharing/gpuSharing.go (scheduler-core §7.5, plugins §5.6).
"""

from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.nodes import FREE, IDLE, task_memory
from kai_es.scheduler.columns.resources import GPU_ROW

if TYPE_CHECKING:
    from kai_es.scheduler.framework.session import Session


def pick_devices(
    session: "Session", task: int, n: int, *, idle: bool
) -> tuple[tuple[str, ...], bool] | None:
    """GPU groups for a shared request, and whether it must wait for one of them.

    Args:
        session: the session.
        task: its row.
        n: the node.
        idle: the task may start there now, as far as other resources go.

    Returns:
        None if the node has not enough devices.
    """
    state = session.nodes
    shape, capacity = session.row(task).shape, state.columns.facts[n].gpu_memory
    memory, n_wanted = task_memory(shape, capacity), shape.spec.gpu.count
    devices = state.devices[n]
    offers: list[tuple[float, str | None]] = [
        (score, group)
        for group in sorted(devices)
        if devices[group].fits(memory, capacity)
        and (score := _score(session, devices[group].used, capacity)) is not None
    ]
    is_idle, is_free = (int(state.amounts[p, GPU_ROW, n]) for p in (IDLE, FREE))
    n_whole = int(is_idle / GPU_MICRO) + int((is_free - is_idle) / GPU_MICRO)
    if (is_idle > 0 or is_free > is_idle) and n_whole > 0:
        score = _score(session, None, capacity)
        if score is not None:
            offers += [(score, None)] * n_whole
    offers.sort(key=lambda offer: -offer[0])  # stable: groups by name, whole devices last
    if len(offers) < n_wanted:
        return None
    groups: list[str] = []
    waits = False
    for _, group in offers[:n_wanted]:
        if group is None:
            groups.append(_new_group(session, task, n, len(groups)))
            waits = waits or not idle
        else:
            groups.append(group)
            waits = waits or not idle or not devices[group].fits_idle(memory, capacity)
    return tuple(groups), waits


def _score(session: "Session", used: int | None, capacity: int) -> float | None:
    total = 0.0
    for plugin in session.ext.gpu_scores:
        score = plugin(used, capacity)
        if score is None:
            return None
        total += score
    return total


def _new_group(session: "Session", task: int, n: int, number: int) -> str:
    inputs, facts = session.inputs, session.nodes.columns.facts[n]
    uid = session.row(task).pod.uid
    name = f"{inputs.shard}/{inputs.cycle}/{facts.name}/{uid}/{number}"
    return str(uuid5(NAMESPACE_OID, name))
