"""Devices that are split among tasks: the account of the GPU groups of one node.

A GPU group is one physical device that tasks share. Accounts are values: every change makes a new
one, so that a statement restores an earlier one by putting it back.

Reference: pkg/scheduler/api/node_info/gpu_sharing_node_info.go (scheduler-core §5.6).
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kai_es.kube.labels import GPU_MICRO

RELEASING: Final = 0
PIPELINED: Final = 1
OTHER: Final = 2
ABSENT: Final = 3
"""How a task counts on a node: leaving, waiting for what leaves, there, or not at all."""

NO_ROOM: Final = -1
"""Less than any task takes."""


class Device(NamedTuple):
    """One shared device. Amounts in MiB.

    used:      of all its tasks.
    allocated: of tasks that do not wait; None = no such task was ever on it, which is not the same
               as 0: a device known from waiting tasks alone has nothing idle.
    releasing: of tasks that leave, less those that wait; may be negative.
    marked:    the whole device is counted among the releasing ones of its node.
    """

    used: int = 0
    allocated: int | None = None
    releasing: int = 0
    marked: bool = False

    def room(self, capacity: int) -> int:
        """What fits now or after releases; a device that leaves whole is not shared: NO_ROOM."""
        allocated = self.allocated or 0
        if self.used == 0 or allocated == self.releasing:
            return NO_ROOM
        return capacity - allocated + self.releasing

    def fits_idle(self, memory: int, capacity: int) -> bool:
        """Whether `memory` fits now."""
        return self.allocated is not None and capacity - self.allocated - memory >= 0


Devices = Mapping[str, Device]
"""The shared devices of a node by GPU group. Never changed in place."""

NO_DEVICES: Final[Devices] = {}
_UNUSED: Final = Device()


class Whole(NamedTuple):
    """Whole devices of a node: how many it has; idle, used, releasing in gpu_micro."""

    devices: int
    idle: int
    used: int
    releasing: int


def add(
    devices: Devices, whole: Whole, groups: Iterable[str], memory: int, kind: int
) -> tuple[Devices, Whole]:
    """A shared task comes to a node, on each of `groups` with `memory`."""
    result = dict(devices)
    for group in groups:
        old = result.get(group, _UNUSED)
        used, allocated = old.used + memory, old.allocated
        releasing, marked = old.releasing, old.marked
        result[group] = old._replace(used=used)
        if kind == RELEASING:
            releasing += memory
            allocated = (allocated or 0) + memory
            if used == releasing:
                if not marked:
                    whole = whole._replace(releasing=whole.releasing + GPU_MICRO)
                    marked = True
                if _beyond(whole, result):
                    whole = whole._replace(idle=whole.idle - GPU_MICRO)
        elif kind == PIPELINED:
            if used - memory == releasing:  # before it, all on the device was leaving, or nothing
                whole = whole._replace(releasing=whole.releasing - GPU_MICRO)
            releasing -= memory
        else:
            allocated = (allocated or 0) + memory
            if used <= memory and _beyond(whole, result):
                whole = whole._replace(idle=whole.idle - GPU_MICRO)
            if marked:
                whole = whole._replace(releasing=whole.releasing - GPU_MICRO)
                marked = False
        result[group] = Device(used, allocated, releasing, marked)
    return result, whole


def remove(
    devices: Devices, whole: Whole, groups: Iterable[str], memory: int, kind: int
) -> tuple[Devices, Whole]:
    """A shared task leaves the account of a node; exact only in reverse order of additions."""
    result = dict(devices)
    for group in groups:
        old = result.get(group, _UNUSED)
        used, allocated = old.used - memory, old.allocated
        releasing, marked = old.releasing, old.marked
        result[group] = old._replace(used=used)
        if kind == PIPELINED:
            releasing += memory
            if used == 0 and releasing == 0:
                whole = whole._replace(releasing=whole.releasing + GPU_MICRO)
        else:
            if kind == RELEASING:
                releasing -= memory
            allocated = (allocated or 0) - memory
            if used <= 0 and not _beyond(whole, result):
                whole = whole._replace(idle=whole.idle + GPU_MICRO)
            if kind == RELEASING:
                if used <= 0 and marked:
                    whole = whole._replace(releasing=whole.releasing - GPU_MICRO)
                    marked = False
            elif used != 0 and releasing == used and not marked:
                whole = whole._replace(releasing=whole.releasing + GPU_MICRO)
                marked = True
        result[group] = Device(used, allocated, releasing, marked)
    return result, whole


def _beyond(whole: Whole, devices: Devices) -> bool:
    """Whether idle and used devices together are more than the node has."""
    return whole.devices < whole.idle // GPU_MICRO + in_use(whole, devices)


def in_use(whole: Whole, devices: Devices) -> int:
    """Whole devices in use and shared devices with tasks."""
    return whole.used // GPU_MICRO + count(devices)


def count(devices: Devices) -> int:
    """Shared devices with tasks."""
    return sum(1 for device in devices.values() if device.used > 0)


def room(devices: Devices, capacity: int) -> int:
    """The most that one of them has for one more task; NO_ROOM if none may be shared."""
    return max((device.room(capacity) for device in devices.values()), default=NO_ROOM)


def hundredths_up(part: int, capacity: int) -> int:
    """Part of a capacity in hundredths, rounded up."""
    return -(-100 * part // capacity)


def sharing_idle(devices: Devices, capacity: int) -> int:
    """Room on shared devices that have tasks, gpu_micro, each rounded up to hundredths of use."""
    return sum(
        (100 - hundredths_up(device.allocated, capacity)) * (GPU_MICRO // 100)
        for device in devices.values()
        if device.allocated is not None and device.allocated > 0
    )


def sharing_releasing(devices: Devices, capacity: int) -> int:
    """Room that comes free on shared devices that do not leave as a whole, gpu_micro."""
    return sum(
        hundredths_up(device.releasing, capacity) * (GPU_MICRO // 100)
        for device in devices.values()
        if device.releasing > 0 and device.releasing != device.used
    )
