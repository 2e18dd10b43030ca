"""Where tasks of one shape fit, worked out for all nodes at once and kept up by what changed.

Reference: pkg/scheduler/api/node_info/node_info.go (scheduler-core §5.7, §7.5).
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.nodes import FREE, IDLE, NO_ROW, portion_on, task_memory
from kai_es.scheduler.columns.resources import GPU_ROW
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
        "_nodes",
        "_request",
        "_request_list",
        "_seen",
        "allowed",
        "demand",
        "free_ok",
        "idle_ok",
        "is_dynamic",
        "session",
        "shape",
        "usable",
    )

    def __init__(self, session: "Session", shape: Shape) -> None:
        self.session = session
        self.shape = shape
        self.is_dynamic = session.is_dynamic(shape)
        self.demand = session.columns.demand(shape)
        self._nodes = session.nodes
        request = self.demand.request.copy()
        if shape.shared:
            request[GPU_ROW] = ANY_AMOUNT
        self._request = request[:, None]
        self._request_list: list[int] = request.tolist()
        self.allowed = self._static_mask()
        self._compute()

    def _static_mask(self) -> Mask:
        mask = np.ones(len(self._nodes), np.bool_)
        if self.demand.absent:
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
        if self.shape.shared:
            self._share_devices(range(len(self._nodes)))
        self.usable = self.allowed & self.free_ok
        self._seen = len(self._nodes.changes)

    def update(self) -> "Fit":
        """Catch up with the nodes that changed since the last look."""
        changes = self._nodes.changes
        n_new = len(changes) - self._seen
        if n_new == 0:
            return self
        if n_new > REPAIR_MAX:
            rows = set(changes[self._seen :])
            if len(rows) > REPAIR_MAX:
                self._compute()
                return self
        else:
            rows = set(changes[self._seen :])
        amounts, request = self._nodes.amounts, self._request_list
        for n in rows:
            idle, free = amounts[:2, :, n].tolist()
            self.idle_ok[n] = _covers(idle, request)
            self.free_ok[n] = _covers(free, request)
        if self.shape.shared:
            self._share_devices(rows)
        for n in rows:
            self.usable[n] = self.allowed[n] and self.free_ok[n]
        self._seen = len(changes)
        return self

    def _share_devices(self, rows: "range | set[int]") -> None:
        """A share needs that many devices: whole ones or shared ones with room (§5.7)."""
        nodes, shape = self._nodes, self.shape
        n_devices = shape.spec.gpu.count
        facts = nodes.columns.facts
        for n in rows:
            if not self.free_ok[n]:
                continue
            capacity = facts[n].gpu_memory
            memory = task_memory(shape, capacity)
            portion = portion_on(shape, capacity)
            valid = portion <= 100 or portion % 100 == 0
            fitting = sum(1 for d in nodes.devices[n].values() if d.fits(memory, capacity))
            for ok, plane in ((self.idle_ok, IDLE), (self.free_ok, FREE)):
                if ok[n]:
                    whole = int(nodes.amounts[plane, GPU_ROW, n]) // GPU_MICRO
                    ok[n] = valid and whole + min(fitting, n_devices) >= n_devices

    def best(self, task: int, node_set: NodeSet) -> int:
        """The first node of `walk`, NO_ROW if there is none."""
        candidates = self._candidates(node_set)
        if len(candidates) == 0:
            return NO_ROW
        scores = self._scores(task, node_set)
        if isinstance(scores, float):
            return int(candidates[0])
        return int(candidates[scores[candidates].argmax()])

    def walk(self, task: int, node_set: NodeSet) -> Iterator[int]:
        """Nodes that the shape fits, best score first, ties by name."""
        candidates = self._candidates(node_set)
        scores = self._scores(task, node_set)
        if not isinstance(scores, float):
            candidates = candidates[np.argsort(-scores[candidates], kind="stable")]
        yield from candidates.tolist()

    def _candidates(self, node_set: NodeSet) -> Rows:
        mask = node_set.mask
        usable = self.usable if mask is None else self.usable & mask
        rows: Rows = usable.nonzero()[0]
        return rows

    def _scores(self, task: int, node_set: NodeSet) -> "NDArray[np.float64] | float":
        total: NDArray[np.float64] | float = 0.0
        for score in self.session.ext.scores:
            more = score(self, node_set, task)
            if not isinstance(more, float):
                total = more if isinstance(total, float) else total + more
        return total


def _covers(have: list[int], need: list[int]) -> bool:
    for a, b in zip(have, need, strict=True):  # noqa: SIM110 - half the time of all()
        if a < b:
            return False
    return True


class Fits:
    """The fits of a session by shape."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._fits: dict[Shape, Fit] = {}

    def of(self, task: int) -> Fit:
        """The fit of a task's shape, up to date."""
        shape = self._session.row(task).shape
        fit = self._fits.get(shape)
        if fit is None:
            fit = self._fits[shape] = Fit(self._session, shape)
            return fit
        return fit.update()
