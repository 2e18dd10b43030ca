"""Why tasks and jobs were not placed in this cycle, as reason trees.

Reference: pkg/scheduler/api/common_info/{job_errors,pod_errors}.go (scheduler-core §12).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from kai_es.events.decisions import Reason
from kai_es.scheduler.columns.nodes import NO_ROW
from kai_es.scheduler.framework.histogram import Histogram
from kai_es.scheduler.jobs.gang import sub_group_is_gang

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.framework.fit import Fit, NodeSet
    from kai_es.scheduler.framework.session import Session
    from kai_es.scheduler.framework.work import Work
    from kai_es.scheduler.jobs.tree import PodSet


SHAPES_MAX: Final = 8
"""Shapes of a gang's further tasks that are looked at to tell how many of them are blocked."""


class Stuck(NamedTuple):
    """Where an attempt ended: the task without a place, how many had one, and those after it."""

    task: int
    n_placed: int
    rest: Sequence[int]


@dataclass(slots=True)
class TaskFailure:
    """Why a task was not placed.

    general: a reason that holds on every node, None = nodes were looked at.
    nodes:   reasons of the nodes of its last attempt, each with its number of nodes, most first.
    """

    general: Reason | None = None
    nodes: tuple[Reason, ...] = ()


class Failures:
    """All failures of a session."""

    def __init__(self, session: "Session") -> None:
        self.session = session
        self.jobs: dict[Job, list[Reason]] = {}
        self.tasks: dict[int, TaskFailure] = {}
        self._histogram = Histogram(session)
        self._known: dict[object, tuple[Reason, ...]] = {}

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
            found = self._histogram.of(fit, nodes, ruled, refusals)
            self._known = {} if is_own else {key: found}
        self.tasks[task] = TaskFailure(nodes=found)

    def not_placed(self, work: "Work", leaf: "PodSet", stuck: "Stuck", nodes: "NodeSet") -> None:
        """A task of a job was not placed, so its attempt failed; those before it still are."""
        session, task = self.session, stuck.task
        pod = session.row(task).pod
        failure = self.tasks.get(task)
        used = session.used_in(work, leaf)
        args: dict[str, str | int | float] = {"pod": f"{pod.namespace}/{pod.name}"}
        if not sub_group_is_gang(work.tree) or used >= leaf.min_available:
            code = "task-not-placed"
        else:
            args |= {
                "placed": stuck.n_placed,
                "needed": leaf.min_available,
                "blocked": self._n_blocked(stuck, nodes),
            }
            code = "gang-not-placed"
            if len(work.tree.leaves) > 1 or leaf.name != "default":
                code, args["sub_group"] = "sub-group-not-placed", leaf.name
        parts = () if failure is None else (task_reason(failure),)
        self.job(work.job, Reason(code=code, args=args, parts=parts))

    def _n_blocked(self, stuck: "Stuck", nodes: "NodeSet") -> int:
        """How many tasks of an attempt have no place: the stuck one, and of those after it."""
        fits, shape = self.session.fits, self.session.row(stuck.task).shape
        blocked = {shape: True}
        n = 1
        for task in stuck.rest:
            shape = self.session.row(task).shape
            if shape not in blocked and len(blocked) < SHAPES_MAX:
                blocked[shape] = fits.of(task).best(task, nodes) == NO_ROW
            n += blocked.get(shape, False)
        return n


def task_reason(failure: TaskFailure) -> Reason:
    """The tree of a task's failure."""
    if failure.general is not None:
        return failure.general
    fix = next((reason.fix for reason in failure.nodes if reason.fix), "")
    return Reason(code="no-node-fits", parts=failure.nodes, fix=fix)
