"""Which devices of a node a task that shares them gets.

Reference: pkg/scheduler/gpu_sharing/gpuSharing.go (scheduler-core §7.5, plugins §5.6).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.nodes import task_memory
from kai_es.scheduler.columns.resources import GPU_ROW
from kai_es.scheduler.columns.sharing import RELEASING
from kai_es.scheduler.flags import LEAVING_DEVICES_IDLE, UNDO_LEAKS_SHARES

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
        for group, device in devices.items()
        if device.room(capacity) >= memory
        and (score := _score(session, device.used, capacity)) is not None
    ]
    n_whole = _whole(session, n)
    if n_whole > 0:
        score = _score(session, None, capacity)
        if score is not None:
            offers += [(score, None)] * min(n_whole, n_wanted)
    # stable: groups by their age on the node, whole devices last
    offers.sort(key=lambda offer: -offer[0])
    if len(offers) < n_wanted:
        return None
    chosen = offers[:n_wanted]
    if any(group is None for _, group in chosen):
        home = _home(session, task, n, memory)
        if home:
            return home, True
    groups: list[str] = []
    waits, n_idle = False, _idle(session, n)
    for _, group in chosen:
        if group is None:
            groups.append(_new_group(session, task, n, groups))
            n_idle -= 1
            waits = waits or not idle or n_idle < 0
        else:
            groups.append(group)
            waits = waits or not idle or not devices[group].fits_idle(memory, capacity)
    return tuple(groups), waits


def _whole(session: "Session", n: int) -> int:
    """Whole devices that are idle or being released."""
    idle, free = session.nodes.amounts[:2, GPU_ROW, n].tolist()
    return (
        int(idle / GPU_MICRO) + int((free - idle) / GPU_MICRO) if max(idle, free - idle) > 0 else 0
    )


def _idle(session: "Session", n: int) -> int:
    """Whole devices that are idle. compat: the fit of the task has seen to it (it has not)."""
    if LEAVING_DEVICES_IDLE in session.flags:
        return _whole(session, n)
    return int(session.nodes.idle[GPU_ROW, n]) // GPU_MICRO


def _home(session: "Session", task: int, n: int, memory: int) -> tuple[str, ...]:
    """The devices that a victim of the open statement has on the node, if it can stay there.

    A device that it leaves empty is offered to everybody as a whole one; it does as well as any.
    compat: the reference never finds that out (Q-12).
    """
    entry = session.entry(task, n) if session.virtual[task] else None
    if entry is None or entry[0] != RELEASING or UNDO_LEAKS_SHARES in session.flags:
        return ()
    capacity, n_empty = session.nodes.columns.facts[n].gpu_memory, 0
    for group in entry[1]:
        device = session.nodes.devices[n][group]
        if device.allocated == device.releasing:
            n_empty += 1
        elif device.room(capacity) < memory:
            return ()
    return entry[1] if n_empty <= _whole(session, n) else ()


def _score(session: "Session", used: int | None, capacity: int) -> float | None:
    total = 0.0
    for plugin in session.ext.gpu_scores:
        score = plugin(used, capacity)
        if score is None:
            return None
        total += score
    return total


def _new_group(session: "Session", task: int, n: int, taken: Collection[str]) -> str:
    """Id of a device that is not shared yet.

    The task may have opened a device here earlier in the cycle that others have joined since:
    that one is not meant, so ids in use are passed over.
    """
    inputs, facts = session.inputs, session.nodes.columns.facts[n]
    uid, devices = session.row(task).pod.uid, session.nodes.devices[n]
    for number in range(len(taken), len(taken) + len(devices) + 1):
        name = f"{inputs.shard}/{inputs.cycle}/{facts.name}/{uid}/{number}"
        group = str(uuid5(NAMESPACE_OID, name))
        if group not in taken and (group not in devices or devices[group].used == 0):
            return group
    raise AssertionError("one of more ids than devices is not in use")
