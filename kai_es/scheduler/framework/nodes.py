"""What is idle, free and used on each node while a session tries things out."""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns import claimed, sharing
from kai_es.scheduler.columns.claimed import Claimed
from kai_es.scheduler.columns.nodes import FREE, IDLE, USED, NodeColumns
from kai_es.scheduler.columns.resources import GPU_ROW, Demand, Vector
from kai_es.scheduler.columns.sharing import ABSENT, Devices
from kai_es.scheduler.framework.journal import Journal

EntryOnNode = tuple[int, tuple[str, ...]]
"""How a task counts on a node (`columns.sharing`), and its devices there: GPU groups, or GPUs of
claims."""

_NOBODY: Final[EntryOnNode] = (ABSENT, ())

Saved = tuple[NDArray[np.int64], Devices, Claimed]


class NodeState:
    """Session copy of the writable node columns.

    amounts: int64 [3, R, N], planes idle, free, used (`columns.nodes`).
    idle, free, used: views of them, [R, N].
    devices: shared devices by node.
    claimed: devices of claims by node; claiming: nodes that have had some.
    gpu_memory: int64 [N], MiB of each device.
    share_room: int64 [N], the most MiB that one shared device has for one more task, now or after
             releases; NO_ROOM where none may be shared.
    share_count: int64 [N], shared devices in use.
    changes: rows in the order in which they changed, restores included; whoever caches something
             by node catches up from its own place in it.
    """

    def __init__(self, columns: NodeColumns) -> None:
        self.columns = columns
        self.amounts = columns.amounts.copy()
        self.idle, self.free, self.used = self.amounts
        self.devices = list(columns.devices)
        self.claimed = list(columns.claimed)
        self.claiming = {n for n, claimed in enumerate(self.claimed) if claimed}
        self.sharing = {n for n, devices in enumerate(self.devices) if devices}
        self.gpu_memory = columns.gpu_memory
        self.share_room = np.full(len(self.devices), sharing.NO_ROOM, np.int64)
        self.share_count = np.zeros(len(self.devices), np.int64)
        for n in self.sharing:
            self._set_devices(n, self.devices[n])
        self.changes: list[int] = []
        self._rooms: NDArray[np.int64] | None = None
        self._rooms_seen = 0
        self._any_lossy = bool(columns.lossy.any())

    def __len__(self) -> int:
        return len(self.devices)

    def __setitem__(self, n: int, saved: Saved) -> None:
        """Put back a node, from the journal."""
        self.amounts[:, :, n], devices, self.claimed[n] = saved
        if devices is not self.devices[n]:
            self._set_devices(n, devices)
        self.changes.append(n)

    def _set_devices(self, n: int, devices: Devices) -> None:
        self.devices[n] = devices
        self.share_room[n] = sharing.room(devices, self.columns.facts[n].gpu_memory)
        self.share_count[n] = sharing.count(devices)

    def change(self, journal: Journal, n: int, demand: Demand, before: int, after: int) -> None:
        """A task that counted as `before` counts as `after` (`columns.sharing`).

        The GPUs of shared devices are not in it, see `change_shared`.
        """
        column = self.amounts[:, :, n]
        journal.append((self, n, (column.copy(), self.devices[n], self.claimed[n])))
        delta = demand.changes[before][after]
        if self._any_lossy and self.columns.lossy[n]:
            delta = delta * (self.columns.allocatable[:, n] != 0)
        column += delta
        self.changes.append(n)

    def change_shared(
        self, n: int, memory: int, before: EntryOnNode | None, after: EntryOnNode | None
    ) -> None:
        """The part of `change` that concerns shared devices; the caller has just called it."""
        idle, free, used = self.amounts[:, GPU_ROW, n].tolist()
        whole = sharing.Whole(self.columns.facts[n].gpu_count, idle, used, free - idle)
        devices = self.devices[n]
        if before is not None and before[0] != ABSENT:
            devices, whole = sharing.remove(devices, whole, before[1], memory, before[0])
        if after is not None and after[0] != ABSENT:
            devices, whole = sharing.add(devices, whole, after[1], memory, after[0])
        self._set_devices(n, devices)
        self.amounts[:, GPU_ROW, n] = (whole.idle, whole.idle + whole.releasing, whole.used)
        self.sharing.add(n)

    def change_claimed(self, n: int, before: EntryOnNode | None, after: EntryOnNode | None) -> None:
        """The part of `change` that concerns devices of claims; the caller has just called it."""
        self.claimed[n], gpus = claimed.change(self.claimed[n], before or _NOBODY, after or _NOBODY)
        if self.columns.allocatable[GPU_ROW, n]:
            self.amounts[:, GPU_ROW, n] += gpus
        self.claiming.add(n)

    def leak(
        self, journal: Journal, n: int, demand: Demand, memory: int, groups: tuple[str, ...]
    ) -> None:
        """A share counts as leaving from now on, whatever is undone. compat: see `flags`."""
        for at, (cells, key, saved) in enumerate(journal):
            if cells is self and key == n:
                journal[at] = (self, n, self._with_leaving(n, saved, demand, memory, groups))
        now = (self.amounts[:, :, n].copy(), self.devices[n], self.claimed[n])
        self[n] = self._with_leaving(n, now, demand, memory, groups)

    def _with_leaving(
        self, n: int, saved: Saved, demand: Demand, memory: int, groups: tuple[str, ...]
    ) -> Saved:
        column = saved[0] + demand.changes[ABSENT][sharing.RELEASING]
        idle, free, used = column[:, GPU_ROW].tolist()
        whole = sharing.Whole(self.columns.facts[n].gpu_count, idle, used, free - idle)
        devices, whole = sharing.add(saved[1], whole, groups, memory, sharing.RELEASING)
        column[:, GPU_ROW] = (whole.idle, whole.idle + whole.releasing, whole.used)
        return column, devices, saved[2]

    def column(self, n: int) -> tuple[Vector, Vector, Vector]:
        """Idle, free and used of one node."""
        return self.amounts[IDLE, :, n], self.amounts[FREE, :, n], self.amounts[USED, :, n]

    def idle_gpus(self, n: int) -> int:
        """Idle GPUs with room on shared devices and idle MIG slices, gpu_micro (§5.5)."""
        facts = self.columns.facts[n]
        mig = self._mig(n, self.idle) if facts.mig_gpus else 0
        return (
            int(self.idle[GPU_ROW, n])
            + sharing.sharing_idle(self.devices[n], facts.gpu_memory)
            + mig
        )

    def releasing_gpus(self, n: int) -> int:
        """Releasing GPUs, the same way."""
        facts = self.columns.facts[n]
        mig = self._mig(n, self.free - self.idle) if facts.mig_gpus else 0
        return (
            int(self.free[GPU_ROW, n] - self.idle[GPU_ROW, n])
            + sharing.sharing_releasing(self.devices[n], facts.gpu_memory)
            + mig
        )

    def rooms(self) -> NDArray[np.int64]:
        """Int64 [2, N]: idle and releasing GPUs of each node, gpu_micro, and their memory, MiB.

        Kept up to date from call to call; do not write to it.
        """
        if self._rooms is None:
            self._rooms = np.zeros((2, len(self)), np.int64)
            stale: Iterable[int] = range(len(self))
        else:
            stale = set(self.changes[self._rooms_seen :])
        self._rooms_seen = len(self.changes)
        for n in stale:
            gpus = self.idle_gpus(n) + self.releasing_gpus(n)
            self._rooms[:, n] = gpus, self.free_memory(n, self.columns.facts[n].gpu_memory)
        return self._rooms

    def free_memory(self, n: int, capacity: int) -> int:
        """MiB of GPU memory that is idle or being released, whole devices and shared ones."""
        shared = 0
        for device in self.devices[n].values():
            if device.allocated is not None and device.allocated > 0:
                shared += capacity - device.allocated
            if device.releasing > 0 and device.releasing != device.used:
                shared += device.releasing
        facts = self.columns.facts[n]
        idle = int(self.idle[GPU_ROW, n])
        releasing = int(self.free[GPU_ROW, n]) - idle
        if facts.mig_gpus:
            idle += self._mig(n, self.idle)
            releasing += self._mig(n, self.free - self.idle)
        return shared + (int(idle / GPU_MICRO) + int(releasing / GPU_MICRO)) * capacity

    def _mig(self, n: int, plane: NDArray[np.int64]) -> int:
        return sum(slices * int(plane[row, n]) for row, slices in self.columns.mig_rows)
