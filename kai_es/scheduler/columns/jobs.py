"""The pod groups of a shard as jobs: tree, queue, priority, tasks and counts.

Reference: pkg/scheduler/api/podgroup_info/job_info.go (scheduler-core §4.10, §4.11, §5.10).
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kai_es.kube.labels import DEFAULT_POD_SET
from kai_es.kube.objects import PodGroup, PriorityClass
from kai_es.scheduler.columns.queues import NO_QUEUE, NOTHING, Fair, QueueColumns, Uses, plus
from kai_es.scheduler.jobs.tree import JobTree, has_constraint, tree_of, without_aliases
from kai_es.snapshot.effective import GroupState
from kai_es.snapshot.snapshot import GroupKey, GroupRow, PodRow
from kai_es.snapshot.status import ALLOCATED, TaskStatus

DEFAULT_PRIORITY: Final = 50
PREEMPTIBLE_BELOW: Final = 100

N_STATUSES: Final = len(TaskStatus)
PENDING: Final = int(TaskStatus.PENDING)
GATED: Final = int(TaskStatus.GATED)

GrantedOf = Callable[[PodRow], Fair]
StatusOf = Callable[[PodRow], TaskStatus]
AliasesOf = Callable[[str], Mapping[str, str]]


class Priorities:
    """What priority classes mean."""

    def __init__(self, classes: Iterable[PriorityClass]) -> None:
        self._values: dict[str, int] = {}
        defaults: list[tuple[str, int]] = []
        for found in classes:
            self._values[found.name] = found.value
            if found.global_default:
                defaults.append((found.name, found.value))
        # of several defaults (the API server allows one) the first by name
        self.default = min(defaults)[1] if defaults else DEFAULT_PRIORITY

    def of(self, name: str) -> int:
        """The priority of a pod group that names this class."""
        return self._values.get(name, self.default)


def is_preemptible(preemptibility: str, priority: int) -> bool:
    """Whether others may take the place of such a job."""
    if preemptibility == "preemptible":
        return True
    return preemptibility != "non-preemptible" and priority < PREEMPTIBLE_BELOW


class Job:
    """One pod group. Sessions read it and never write to it; a change makes a new one.

    key:         namespace and name.
    order:       fallback of the job order: older first, then name, namespace, uid.
    order_key:   job order as columns have the job, with the token of the order it was made for.
    queue:       row in `QueueColumns`, NO_QUEUE if missing.
    tasks:       by leaf of `tree`: rows of its pods, older first, then uid.
    constrained: some part of it must or should be together in a topology.
    strangers:   rows of pods whose sub-group label names no pod set.
    counts:      by leaf: number of tasks by status.
    totals:      number of tasks by status.
    uses:        what it adds to its queue.
    """

    __slots__ = (
        "constrained",
        "counts",
        "group",
        "key",
        "order",
        "order_key",
        "preemptible",
        "priority",
        "queue",
        "state",
        "strangers",
        "tasks",
        "totals",
        "tree",
        "uses",
    )

    def __init__(self, key: GroupKey, group: PodGroup, state: GroupState) -> None:
        self.key = key
        self.group = group
        self.state = state
        self.order = (group.created_ms, group.name, group.namespace, group.uid)
        self.order_key: tuple[int, tuple[object, ...]] | None = None
        self.queue = NO_QUEUE
        self.priority = 0
        self.preemptible = False
        self.tree: JobTree = tree_of(group)
        self.constrained = False
        self.tasks: tuple[tuple[int, ...], ...] = ()
        self.strangers: tuple[int, ...] = ()
        self.counts: tuple[list[int], ...] = ()
        self.totals = [0] * N_STATUSES
        self.uses = Uses()

    @property
    def uid(self) -> str:
        """Uid of the pod group."""
        return self.group.uid

    @property
    def name(self) -> str:
        """Name of the pod group."""
        return self.group.name

    @property
    def namespace(self) -> str:
        """Namespace of the pod group."""
        return self.group.namespace

    @property
    def n_tasks(self) -> int:
        """All tasks, in whatever status."""
        return sum(self.totals)

    def resolve(self, queues: QueueColumns, priorities: Priorities) -> None:
        """Look up queue, priority and preemptibility; without a queue it has neither (§4.10)."""
        self.order_key = None
        self.queue = queues.row.get(self.group.queue, NO_QUEUE)
        if self.queue == NO_QUEUE:
            self.priority, self.preemptible = 0, False
        else:
            self.priority = priorities.of(self.group.priority_class)
            self.preemptible = is_preemptible(self.group.preemptibility, self.priority)
        self.uses.fixed = NOTHING if self.preemptible else self.uses.allocated


def build_job(
    row: GroupRow,
    key: GroupKey,
    pods: Iterable[PodRow],
    status_of: StatusOf,
    granted: GrantedOf,
    aliases: AliasesOf,
) -> Job:
    """The job of a pod group and its pods.

    Args:
        row: the pod group.
        key: under which it is kept.
        pods: in any order.
        status_of: effective status.
        granted: what an allocated task weighs in its queue.
        aliases: node labels of a topology's levels by alias.
    """
    job = Job(key, row.group, row.state)
    job.constrained = has_constraint(row.group)
    if job.constrained:
        job.tree = without_aliases(job.tree, aliases)
    leaf_of: Mapping[str, int] = job.tree.leaf_of
    n_leaves = len(job.tree.leaves)
    leaves: list[list[PodRow]] = [[] for _ in range(n_leaves)]
    counts = tuple([0] * N_STATUSES for _ in range(n_leaves))
    strangers: list[PodRow] = []
    for pod in pods:
        leaf = leaf_of.get(pod.pod.sub_group or DEFAULT_POD_SET)
        if leaf is None:
            strangers.append(pod)
            continue
        leaves[leaf].append(pod)
        counts[leaf][status_of(pod)] += 1
    for found in leaves:
        if len(found) > 1:
            found.sort(key=_by_age)
    job.tasks = tuple(tuple(pod.row for pod in found) for found in leaves)
    job.strangers = tuple(pod.row for pod in sorted(strangers, key=_by_age))
    job.counts = counts
    job.totals = counts[0] if n_leaves == 1 else [sum(c) for c in zip(*counts, strict=True)]
    _count_uses(job, leaves, status_of, granted)
    return job


def _by_age(pod: PodRow) -> tuple[int, str]:
    return pod.pod.created_ms, pod.pod.uid


def _count_uses(
    job: Job, leaves: Iterable[Iterable[PodRow]], status_of: StatusOf, granted: GrantedOf
) -> None:
    uses = job.uses
    for pods in leaves:
        for pod in pods:
            status = status_of(pod)
            if status is TaskStatus.PENDING:
                uses.requested = plus(uses.requested, pod.shape.fair)
                uses.memory_mib += pod.shape.memory_mib
            elif status in ALLOCATED:
                uses.allocated = plus(uses.allocated, granted(pod))
    uses.requested = plus(uses.requested, uses.allocated)
