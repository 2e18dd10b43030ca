"""Devices of claims in the account of one node: a device counts once, however many pods use it.

Every task brings its whole request into the node's amounts; the corrections here take back what
tasks that use one device together counted too often. A device is in use while any of its tasks is
there, leaves when the last of them leaves, and is waited for when only waiting tasks want it.
Accounts are values: every change makes a new one.

Reference: pkg/scheduler/api/node_info/node_info.go (scheduler-core §5.5).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.sharing import ABSENT

Claimed = Mapping[str, tuple[int, int, int]]
"""By device: tasks that leave, that wait, and that are there (`sharing.RELEASING` and so on)."""

Gpus = tuple[int, int, int]
"""Change of idle, free and used, gpu_micro."""

NOTHING_CLAIMED: Final[Claimed] = {}

_NONE: Final = (0, 0, 0)
_LEAVES: Final = (-1, 0, 1)
_WAITS: Final = (0, -1, 1)
_THERE: Final = (-1, -1, 1)


def change(
    claimed: Claimed, before: tuple[int, Iterable[str]], after: tuple[int, Iterable[str]]
) -> tuple[Claimed, Gpus]:
    """A task that used devices in one way uses them, or others, in another.

    Args:
        claimed: the account.
        before: kind (`columns.sharing`) and devices until now.
        after: the same from now on.

    Returns:
        The new account, and what the node's GPUs have to be corrected by.
    """
    result = dict(claimed)
    touched: dict[str, None] = {}
    for (kind, devices), sign in ((before, -1), (after, 1)):
        if kind == ABSENT:
            continue
        for device in devices:
            touched[device] = None
            counts = list(result.get(device, _NONE))
            counts[kind] += sign
            result[device] = (counts[0], counts[1], counts[2])
    idle = free = used = 0
    for device in touched:
        was, now = _correction(claimed.get(device, _NONE)), _correction(result[device])
        idle += now[0] - was[0]
        free += now[1] - was[1]
        used += now[2] - was[2]
        if result[device] == _NONE:
            del result[device]
    return result, (idle * GPU_MICRO, free * GPU_MICRO, used * GPU_MICRO)


def _correction(counts: tuple[int, int, int]) -> tuple[int, int, int]:
    """What a device weighs less what its tasks weigh one by one, in devices."""
    leaving, waiting, there = counts
    if leaving + waiting + there <= 1:
        return _NONE
    real = _LEAVES if leaving else _WAITS
    if there or (leaving and waiting):
        real = _THERE
    n_idle, n_free = leaving + there, waiting + there
    return real[0] + n_idle, real[1] + n_free, real[2] - leaving - waiting - there


def in_use(claimed: Claimed, devices: Iterable[str]) -> int:
    """How many of these devices are counted on the node already."""
    return sum(1 for device in devices if device in claimed)
