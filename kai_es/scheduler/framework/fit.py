"""Where tasks of one shape fit, worked out for all nodes at once and kept up by what changed.

Reference: pkg/scheduler/api/node_info/node_info.go (scheduler-core §5.7, §7.5).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU, GPU_MICRO
from kai_es.scheduler.columns.nodes import FREE, IDLE, NO_ROW, portion_on
from kai_es.scheduler.columns.resources import GPU_ROW
from kai_es.scheduler.flags import EXTENDED_NOT_SERVED, MEMORY_OF_WHOLE_DEVICES
from kai_es.snapshot.shapes import Shape

if TYPE_CHECKING:
    from kai_es.scheduler.framework.session import Session

Mask = NDArray[np.bool_]
Rows = NDArray[np.intp]

REPAIR_MAX: Final = 32
"""Changed nodes up to which single columns are tested again; beyond it all are."""

ANY_AMOUNT: Final = -(2**62)
"""Below every amount: a dimension that is not compared."""


class NodeSet:
    """Nodes that an attempt may use; `mask` None = all.

    key: what caches tell sets apart by.
    """

    __slots__ = ("key", "mask", "rows")

    def __init__(self, mask: Mask | None, key: object = None) -> None:
        self.mask = mask
        self.key = key
        self.rows: Rows | None = None

    def count(self, n_nodes: int) -> int:
        """Number of nodes in the set, of so many in the shard."""
        return n_nodes if self.mask is None else int(self.mask.sum())

    def __contains__(self, n: int) -> bool:
        """Whether a node is in the set."""
        return self.mask is None or bool(self.mask[n])


ALL_NODES: Final = NodeSet(None)


class Fit:
    """One shape against the nodes.

    allowed: bool [N], static predicates hold.
    idle_ok: bool [N], its request fits what is idle.
    free_ok: bool [N], it fits idle and releasing together.
    usable:  allowed and free_ok.
    is_dynamic: nodes must be asked one by one.
    """

    __slots__ = (
        "_namespace",
        "_nodes",
        "_request",
        "_request_list",
        "_seen",
        "_served",
        "_share_memory",
        "_valid",
        "allowed",
        "demand",
        "free_ok",
        "idle_ok",
        "is_dynamic",
        "session",
        "shape",
        "usable",
    )

    def __init__(self, session: "Session", shape: Shape, namespace: str = "") -> None:
        self.session = session
        self._namespace = namespace
        self.shape = shape
        self.is_dynamic = session.is_dynamic(shape)
        self.demand = session.columns.demand(shape)
        self._nodes = session.nodes
        request = self.demand.request.copy()
        if shape.shared:
            request[GPU_ROW] = ANY_AMOUNT
        self._served = self._served_rows()
        for row in self._served:
            request[row] = ANY_AMOUNT
        self._request = request[:, None]
        self._request_list: list[int] = request.tolist()
        self._share_memory: NDArray[np.int64] | None = None
        self._valid = self._valid_portions() if shape.shared else None
        self.allowed = self._static_mask()
        self._compute()

    def _static_mask(self) -> Mask:
        mask = np.ones(len(self._nodes), np.bool_)
        if self.absent:
            mask[:] = False
        for plugin in self.session.ext.node_masks:
            more = plugin(self.shape)
            if more is not None:
                mask &= more
        return mask

    def _compute(self) -> None:
        amounts = self._nodes.amounts
        self.idle_ok = (amounts[IDLE] >= self._request).all(axis=0)
        self.free_ok = (amounts[FREE] >= self._request).all(axis=0)
        if self._valid is not None:
            self._share_devices(self._valid)
        if self._served:
            self._claim_devices()
        self.usable = self.allowed & self.free_ok
        self._seen = len(self._nodes.changes)

    def update(self) -> "Fit":
        """Catch up with the nodes that changed since the last look."""
        changes = self._nodes.changes
        n_new = len(changes) - self._seen
        if n_new == 0:
            return self
        rows = set(changes[self._seen :])
        if len(rows) > REPAIR_MAX or self._served:
            self._compute()
            return self
        amounts, request = self._nodes.amounts, self._request_list
        for n in rows:
            idle, free = amounts[:2, :, n].tolist()
            if self._valid is None:
                self.idle_ok[n] = _covers(idle, request)
                self.free_ok[n] = free_ok = _covers(free, request)
            else:
                self.idle_ok[n], free_ok = self._share_devices_of(n, idle, free)
                self.free_ok[n] = free_ok
            self.usable[n] = free_ok and self.allowed[n]
        self._seen = len(changes)
        return self

    # -- shares of devices

    def joins(self) -> Mask:
        """Bool [N]: a device that is shared already has room for the shape, now or later."""
        mask: Mask = self._nodes.share_room >= self.share_memory
        return mask

    @property
    def share_memory(self) -> NDArray[np.int64]:
        """MiB that the shape takes of each of its devices on a node, int64 [N] (`task_memory`)."""
        if self._share_memory is None:
            gpu, device = self.shape.spec.gpu, self._nodes.gpu_memory
            if gpu.memory_mib > 0:
                self._share_memory = np.full_like(device, gpu.memory_mib)
            else:
                self._share_memory = (gpu.portion * device).astype(np.int64)
        return self._share_memory

    def _valid_portions(self) -> Mask:
        """Bool [N]: the share of a device is at most one; compat: or several whole ones (Q-7)."""
        shape, whole_too = self.shape, MEMORY_OF_WHOLE_DEVICES in self.session.flags
        by_memory = {m: portion_on(shape, m) for m in set(self._nodes.gpu_memory.tolist())}
        portions = [by_memory[m] for m in self._nodes.gpu_memory.tolist()]
        return np.array([p <= 100 or (whole_too and p % 100 == 0) for p in portions], np.bool_)

    def _share_devices(self, valid: Mask) -> None:
        """A share needs that many devices: whole ones or shared ones with room (§5.7)."""
        nodes, n_devices = self._nodes, self.shape.spec.gpu.count
        joined = self.joins().astype(np.int64)
        if n_devices > 1:
            for n in nodes.sharing:
                joined[n] = self._n_joined(n, n_devices)
        whole = nodes.amounts[:2, GPU_ROW] // GPU_MICRO
        enough = (whole + joined >= n_devices) & valid
        self.idle_ok &= enough[IDLE]
        self.free_ok &= enough[FREE]

    def _share_devices_of(self, n: int, idle: list[int], free: list[int]) -> tuple[bool, bool]:
        """The same of one node: whether the shape fits what is idle, and what is free."""
        assert self._valid is not None
        if not self._valid[n]:
            return False, False
        n_devices = self.shape.spec.gpu.count
        if n_devices > 1:
            joined = self._n_joined(n, n_devices)
        else:
            joined = int(self._nodes.share_room[n] >= self.share_memory[n])
        request = self._request_list
        idle_ok, free_ok = (
            amounts[GPU_ROW] // GPU_MICRO + joined >= n_devices and _covers(amounts, request)
            for amounts in (idle, free)
        )
        return idle_ok, free_ok

    def _n_joined(self, n: int, most: int) -> int:
        """Shared devices of a node that have room, no more than `most`."""
        capacity, memory = self._nodes.columns.facts[n].gpu_memory, int(self.share_memory[n])
        devices = self._nodes.devices[n].values()
        return min(sum(1 for device in devices if device.room(capacity) >= memory), most)

    # -- devices of claims

    def _served_rows(self) -> tuple[int, ...]:
        """Dimensions that claims on devices bear on; they are compared one by one."""
        claims, columns = self.session.claims, self.session.columns
        if claims is None:
            return ()
        rows = [columns.index.row[name] for name in self._served_names if name in columns.index.row]
        if self._namespace:
            rows.append(GPU_ROW)
        return tuple(rows)

    @property
    def _served_names(self) -> tuple[str, ...]:
        """Extended resources, other than GPUs, that a device class serves."""
        claims = self.session.claims
        if claims is None or EXTENDED_NOT_SERVED in self.session.flags:
            return ()
        return tuple(name for name in claims.served(self.shape) if not name.endswith(GPU))

    @property
    def absent(self) -> tuple[tuple[str, int], ...]:
        """Requested names that neither a node nor a device class offers, with amounts."""
        if not self.demand.absent:
            return ()
        served = self._served_names
        return tuple((name, amount) for name, amount in self.demand.absent if name not in served)

    def _claim_devices(self) -> None:
        """A node that offers none of a resource may have devices for it; others must have it.

        GPUs of a claim that the node counts already cost nothing more.
        """
        nodes, allocatable = self._nodes, self._nodes.columns.allocatable
        for row in self._served:
            need = np.full(len(nodes), self.demand.request[row])
            if row == GPU_ROW:
                claims = self.session.claims
                assert claims is not None
                for n, count in claims.counted(self.shape, self._namespace).items():
                    need[n] -= count * GPU_MICRO
            else:
                need[allocatable[row] == 0] = ANY_AMOUNT
            self.idle_ok &= nodes.amounts[IDLE, row] >= need
            self.free_ok &= nodes.amounts[FREE, row] >= need

    # -- order

    def best(self, task: int, node_set: NodeSet, usable: Mask | None = None) -> int:
        """The first node of `walk`, NO_ROW if there is none."""
        candidates = _candidates(node_set, self.usable if usable is None else usable)
        if len(candidates) == 0:
            return NO_ROW
        scores = self._scores(task, node_set)
        if isinstance(scores, float):
            return int(candidates[0])
        return int(candidates[scores[candidates].argmax()])

    def walk(self, task: int, node_set: NodeSet, usable: Mask | None = None) -> Iterator[int]:
        """Nodes that the shape fits, best score first, ties by name.

        Args:
            task: its row.
            node_set: nodes of the attempt.
            usable: bool [N], nodes that the task may use, None = all that the shape may.
        """
        candidates = _candidates(node_set, self.usable if usable is None else usable)
        if len(candidates) == 0:
            return
        scores = self._scores(task, node_set)
        if isinstance(scores, float):
            yield from candidates.tolist()
            return
        scores = scores[candidates]
        best = int(scores.argmax())
        yield int(candidates[best])  # seldom refused, so the others are put in order after it
        order = np.argsort(-scores, kind="stable")
        yield from candidates[order[1:]].tolist()

    def _scores(self, task: int, node_set: NodeSet) -> "NDArray[np.float64] | float":
        total: NDArray[np.float64] | float = 0.0
        for score in self.session.ext.scores:
            more = score(self, node_set, task)
            if not isinstance(more, float):
                total = more if isinstance(total, float) else total + more
        return total


def _candidates(node_set: NodeSet, usable: Mask) -> Rows:
    mask = node_set.mask
    rows: Rows = (usable if mask is None else usable & mask).nonzero()[0]
    return rows


def _covers(have: list[int], need: list[int]) -> bool:
    for a, b in zip(have, need, strict=True):  # noqa: SIM110 - half the time of all()
        if a < b:
            return False
    return True


class Fits:
    """The fits of a session by shape, and by namespace where the shape names claims."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._fits: dict[Shape, Fit] = {}
        self._claiming: dict[tuple[Shape, str], Fit] = {}

    def of(self, task: int) -> Fit:
        """The fit of a task's shape, up to date."""
        row = self._session.row(task)
        shape = row.shape
        if shape.spec.resource_claims and self._session.claims is not None:
            return self._of_claims(shape, row.pod.namespace)
        fit = self._fits.get(shape)
        if fit is None:
            fit = self._fits[shape] = Fit(self._session, shape)
            return fit
        return fit.update()

    def _of_claims(self, shape: Shape, namespace: str) -> Fit:
        fit = self._claiming.get((shape, namespace))
        if fit is None:
            fit = self._claiming[shape, namespace] = Fit(self._session, shape, namespace)
            return fit
        return fit.update()
