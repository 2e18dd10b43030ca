"""Why tasks and jobs were not placed in this cycle, as reason trees.

Reference: pkg/scheduler/api/common_info/{job_errors,pod_errors}.go (scheduler-core §12).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Arg, Reason
from kai_es.kube.labels import GPU_MICRO, MIG_PREFIX
from kai_es.scheduler.columns.resources import CPU_ROW, GPU_ROW
from kai_es.scheduler.jobs.gang import sub_group_is_gang

_Mask = NDArray[np.bool_]
_Counts = dict[tuple[str, tuple[tuple[str, Arg], ...]], tuple[int, Reason]]
_FAR: Final = 2**62

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.fit import Fit, NodeSet
    from kai_es.scheduler.framework.session import Session
    from kai_es.scheduler.framework.work import Work
    from kai_es.scheduler.jobs.tree import PodSet


@dataclass(slots=True)
class TaskFailure:
    """Why a task was not placed.

    general: a reason that holds on every node, None = nodes were looked at.
    nodes:   reasons of the nodes of its last attempt, each with its number of nodes, most first.
    """

    general: Reason | None = None
    nodes: tuple[Reason, ...] = ()


@dataclass(slots=True)
class Failures:
    """All failures of a session."""

    session: "Session"
    jobs: "dict[Job, list[Reason]]" = field(default_factory=dict)
    tasks: dict[int, TaskFailure] = field(default_factory=dict)
    _known: dict[object, tuple[Reason, ...]] = field(default_factory=dict)

    def job(self, job: "Job", reason: Reason) -> None:
        """A reason of the job as a whole."""
        self.jobs.setdefault(job, []).append(reason)

    def forget(self, job: "Job") -> None:
        """What was found of a job that is tried once more."""
        self.jobs.pop(job, None)

    def task(self, task: int, reason: Reason) -> None:
        """A task cannot be placed on any node."""
        self.tasks[task] = TaskFailure(general=reason)

    def no_node(
        self, task: int, fit: "Fit", nodes: "NodeSet", refusals: Sequence[Reason] = ()
    ) -> None:
        """No node of the set takes a task; `refusals` are of nodes that its shape fits."""
        state = self.session.nodes
        ruled = [found for rule in self.session.ext.task_rules for found in rule.why(task)]
        key = (fit.shape, len(state.changes), nodes)
        is_own = bool(ruled or refusals)
        found = None if is_own else self._known.get(key)
        if found is None:
            found = self._histogram(fit, nodes, ruled, refusals)
            self._known = {} if is_own else {key: found}
        self.tasks[task] = TaskFailure(nodes=found)

    def not_placed(
        self, work: "Work", leaf: "PodSet", task: int, n_placed: int, *, pipeline_only: bool
    ) -> None:
        """A task of a job was not placed, so its attempt failed."""
        if pipeline_only:
            return
        session = self.session
        pod = session.row(task).pod
        failure = self.tasks.get(task)
        used = session.used_in(work, leaf)
        args: dict[str, str | int | float] = {"pod": f"{pod.namespace}/{pod.name}"}
        if not sub_group_is_gang(work.tree) or used >= leaf.min_available:
            code = "task-not-placed"
        else:
            args |= {"placed": n_placed, "needed": leaf.min_available}
            code = "gang-not-placed"
            if len(work.tree.leaves) > 1 or leaf.name != "default":
                code, args["sub_group"] = "sub-group-not-placed", leaf.name
        parts = () if failure is None else (task_reason(failure),)
        self.job(work.job, Reason(code=code, args=args, parts=parts))

    # -- nodes

    def _histogram(
        self,
        fit: "Fit",
        nodes: "NodeSet",
        ruled: Sequence[tuple[_Mask, Reason]],
        refusals: Sequence[Reason],
    ) -> tuple[Reason, ...]:
        """Reasons of the nodes that refuse a shape, with their numbers (§12.1)."""
        fit.update()
        here = np.ones(len(self.session.nodes), np.bool_) if nodes.mask is None else nodes.mask
        counts: _Counts = {}
        lacking = here & ~fit.free_ok & ~fit.idle_ok
        if lacking.any():
            self._count_lacking(fit, lacking, counts)
        for n in np.flatnonzero(here & fit.free_ok & ~fit.allowed).tolist():
            reason = self._refusal(fit, n)
            if reason is not None:
                _count(counts, reason, 1)
        left = here & fit.free_ok & fit.allowed
        for mask, reason in ruled:
            if n_nodes := int((left & mask).sum()):
                _count(counts, reason, n_nodes)
                left = left & ~mask
        for reason in refusals:
            _count(counts, reason, 1)
        found = [msgspec.structs.replace(reason, count=n) for n, reason in counts.values()]
        found.sort(key=lambda r: (-r.count, r.code, repr(sorted(r.args.items()))))
        return tuple(found)

    def _count_lacking(self, fit: "Fit", lacking: _Mask, counts: _Counts) -> None:
        """Resources that are too small on nodes, compared with what is not used there."""
        session = self.session
        state, index = session.nodes, session.columns.index
        room = state.columns.allocatable - state.used
        room[GPU_ROW] -= state.share_count * GPU_MICRO
        request = fit.demand.request
        short = (request[:, None] - room) * lacking
        for name, amount in fit.absent:
            reason = Reason(code="not-enough", args={"resource": name, "missing": amount})
            _count(counts, reason, int(lacking.sum()))
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
            _count(counts, Reason(code=code, args={"resource": name}, fix=fix), n_nodes)
        self._count_memory(fit, lacking, counts)

    def _count_memory(self, fit: "Fit", lacking: _Mask, counts: _Counts) -> None:
        memory = fit.shape.spec.gpu.memory_mib
        if memory:
            facts = self.session.nodes.columns.facts
            small = sum(1 for n in np.flatnonzero(lacking) if facts[n].gpu_memory < memory)
            if small:
                _count(counts, Reason(code="device-too-small"), small)

    def _refusal(self, fit: "Fit", n: int) -> Reason | None:
        for why in self.session.ext.node_why:
            reason = why(fit.shape, n)
            if reason is not None:
                return reason
        return None


def _count(counts: _Counts, reason: Reason, n_nodes: int) -> None:
    key = (reason.code, tuple(sorted(reason.args.items())))
    before, first = counts.get(key, (0, reason))
    counts[key] = (before + n_nodes, first)


def task_reason(failure: TaskFailure) -> Reason:
    """The tree of a task's failure."""
    if failure.general is not None:
        return failure.general
    fix = next((reason.fix for reason in failure.nodes if reason.fix), "")
    return Reason(code="no-node-fits", parts=failure.nodes, fix=fix)
