"""Why nodes refuse a task, counted: each node for the first thing that keeps the task away.

Reference: pkg/scheduler/api/common_info/pod_errors.go (scheduler-core §12.1).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.labels import GPU_MICRO, MIG_PREFIX
from kai_es.scheduler.columns.resources import CPU_ROW, GPU_ROW
from kai_es.scheduler.flags import LACK_HIDES_REFUSAL

if TYPE_CHECKING:
    from kai_es.scheduler.framework.extensions import Mask
    from kai_es.scheduler.framework.fit import Fit, NodeSet
    from kai_es.scheduler.framework.session import Session
    from kai_es.snapshot.shapes import Shape

_Key = tuple[str, tuple[tuple[str, Arg], ...]]
_FAR: Final = 2**62


class Histogram:
    """Counts the reasons of nodes; what never changes in a session is looked up once per shape."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._refusals: dict[Shape, tuple[list[Reason], NDArray[np.int64]]] = {}

    def of(
        self,
        fit: "Fit",
        nodes: "NodeSet",
        ruled: "Sequence[tuple[Mask, Reason]]",
        refusals: Sequence[Reason],
    ) -> tuple[Reason, ...]:
        """Reasons of the nodes of a set, none of which takes a task; most frequent first.

        Args:
            fit: of the task's shape.
            nodes: that were tried.
            ruled: bool [N], nodes that a rule about what else is there leaves out, and why.
            refusals: of the nodes that were asked one by one, one each.
        """
        fit.update()
        here = np.ones(len(self._session.nodes), np.bool_) if nodes.mask is None else nodes.mask
        counts = _Counts()
        lacking = here & ~fit.free_ok & ~fit.idle_ok
        refusing = here & ~fit.allowed
        if fit.absent:
            lacking, refusing = here, here & False
        elif LACK_HIDES_REFUSAL in self._session.flags:  # compat: pod_errors.go
            refusing = refusing & fit.free_ok
        else:  # a node that would refuse the pod if it were empty needs no more room
            lacking = lacking & fit.allowed
        if lacking.any():
            self._count_lacking(fit, lacking, counts)
        if refusing.any():
            reasons, codes = self._refusals_of(fit)
            for reason, n in zip(reasons, np.bincount(codes[refusing] + 1)[1:], strict=False):
                counts.add(reason, int(n))
        left = here & fit.usable
        for mask, reason in ruled:
            counts.add(reason, int((left & mask).sum()))
            left = left & ~mask
        for reason in refusals:
            counts.add(reason, 1)
        return counts.reasons()

    def _count_lacking(self, fit: "Fit", lacking: "Mask", counts: "_Counts") -> None:
        """Resources that are too small on nodes, compared with what is not used there."""
        state, index = self._session.nodes, self._session.columns.index
        room = state.columns.allocatable - state.used
        room[GPU_ROW] -= state.share_count * GPU_MICRO
        request = fit.demand.request
        short = (request[:, None] - room) * lacking
        for name, amount in fit.absent:
            reason = Reason(code="not-enough", args={"resource": name, "missing": amount})
            counts.add(reason, int(lacking.sum()))
        only_short = fit.allowed & ((short > 0).sum(axis=0) == 1)
        for row in index.order():
            over = short[row] > 0
            if request[row] == 0 and row != CPU_ROW:
                continue
            n_nodes = int(over.sum())
            if n_nodes == 0:
                continue
            name = index.names[row]
            code = "not-enough-mig" if name.startswith(MIG_PREFIX) else "not-enough"
            nearest = np.where(over & only_short, short[row], _FAR)
            n = int(nearest.argmin()) if len(nearest) else 0
            fix = ""
            if nearest[n] < _FAR:
                fix = f"{name} of node {state.columns.facts[n].name} +{int(nearest[n])}"
            counts.add(Reason(code=code, args={"resource": name}, fix=fix), n_nodes)
        memory = fit.shape.spec.gpu.memory_mib
        if memory:
            small = int((lacking & (state.gpu_memory < memory)).sum())
            counts.add(Reason(code="device-too-small"), small)

    def _refusals_of(self, fit: "Fit") -> tuple[list[Reason], NDArray[np.int64]]:
        """Reasons of the nodes that refuse a shape in any state, and which of them, −1 = none."""
        found = self._refusals.get(fit.shape)
        if found is not None:
            return found
        number: dict[_Key, int] = {}
        reasons: list[Reason] = []
        codes = np.full(len(self._session.nodes), -1, np.int64)
        for n in np.flatnonzero(~fit.allowed).tolist():
            reason = self._refusal(fit, n)
            if reason is None:
                continue
            codes[n] = number.setdefault(_key(reason), len(reasons))
            if codes[n] == len(reasons):
                reasons.append(reason)
        self._refusals[fit.shape] = reasons, codes
        return reasons, codes

    def _refusal(self, fit: "Fit", n: int) -> Reason | None:
        for why in self._session.ext.node_why:
            reason = why(fit.shape, n)
            if reason is not None:
                return reason
        return None


class _Counts:
    """Nodes by reason; of several fixes for one reason the first is kept."""

    def __init__(self) -> None:
        self._found: dict[_Key, tuple[Reason, int]] = {}

    def add(self, reason: Reason, n_nodes: int) -> None:
        """Some more nodes."""
        if n_nodes:
            key = _key(reason)
            before = self._found.get(key)
            kept, n = (reason, 0) if before is None else before
            self._found[key] = (kept, n + n_nodes)

    def reasons(self) -> tuple[Reason, ...]:
        """All of them, most frequent first."""
        found = [
            Reason(code=r.code, args=r.args, count=n, parts=r.parts, fix=r.fix)
            for r, n in self._found.values()
        ]
        found.sort(key=lambda r: (-r.count, *_key(r)))
        return tuple(found)


def _key(reason: Reason) -> _Key:
    args = reason.args.items()
    if reason.parts:  # the queue's own words are in the parts
        args = {**reason.args, "part": repr(_key(reason.parts[0]))}.items()
    return reason.code, tuple(sorted(args))
