"""The extension points: what plugins register, and how several of them combine.

Reference: pkg/scheduler/framework/session_plugins.go (scheduler-core §7.2). Where the reference
calls a function per node, ours works on all nodes at once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kai_es.events.decisions import Reason, ZoneAmount

if TYPE_CHECKING:
    from kai_es.scheduler.columns.jobs import Job
    from kai_es.scheduler.columns.queues import Fair
    from kai_es.scheduler.framework.fit import Fit, NodeSet
    from kai_es.scheduler.framework.work import Work
    from kai_es.scheduler.jobs.tree import Member, PodSet
    from kai_es.snapshot.shapes import Shape

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

JobKey = Callable[["Work"], Any]
TaskKey = Callable[[Mapping[str, str]], Any]
QueueKey = Callable[[int, "Fair", "Fair"], Any]
TaskCheck = Callable[[int], Reason | None]
NodeCheck = Callable[[int, int], Reason | None]
VictimFilter = Callable[["Work"], Callable[["Job"], bool]]
CapacityCheck = Callable[["Job", "Fair", int], Reason | None]


class TaskMask(NamedTuple):
    """Where a task may go, by what else is on the nodes. Bool [N] each.

    now:   it may start.
    later: it may wait for what leaves.
    """

    now: Mask
    later: Mask


class TaskRule(Protocol):
    """A rule about one task and what else is on the nodes."""

    def mask(self, task: int) -> TaskMask | None:
        """Where a task may go, None = anywhere."""

    def why(self, task: int) -> Iterable[tuple[Mask, Reason]]:
        """Bool [N], nodes that the rule leaves out for a reason, whenever; each node once."""


@dataclass(frozen=True, slots=True)
class Refused:
    """No set of nodes will do for a (sub-)group, and why."""

    reasons: tuple[Reason, ...]


Subsets = Callable[
    ["Work", "Member", Sequence["PodSet"], Sequence[int], "NodeSet"], "Iterable[NodeSet] | Refused"
]


@dataclass(slots=True)
class Extensions:
    """Registered functions, each list in the order of the plugin configuration.

    job_keys:    key of a job; compared in turn, lower first.
    task_keys:   key of a task by its labels; compared in turn, lower first.
    member_key:  key of a direct member of a sub-group set; the last registered one.
    queue_key:   key of a queue by what its next job wants and what victims would free; the first
                 registered one.
    can_reclaim: why a job may not take from other queues; the first one, never without any.
    reclaim_queues: why a reclaimer may take nothing from a leaf queue; all are asked.
    reclaim_victims, preempt_victims: for a pending job, whether a job may be a victim; all.
    reclaim_validators, preempt_validators: whether a simulated scenario may be done; all.
    solution_start: called before reclaim searches for a job.
    job_capacity, quota: why a job's next tasks (amount, GPU memory MiB) are too much; the first.
    node_capacity: why a task is too much on a node; the first.
    subset_nodes: one set of nodes into sets to try in turn, for a member of a constrained job, its
                 leaves with tasks and their tasks; chained.
    pre_job:     called at the start of every attempt to place a job.
    pre_task:    why a task cannot be placed anywhere; first reason wins.
    hopeless:    the part of `pre_task` that no eviction can cure.
    node_masks:  bool [N] per shape: nodes that may take it, whatever is placed.
    node_why:    reason why a node is not in such a mask; first wins, in display order.
    task_rules:  by what else is on the nodes; all must agree.
    node_checks: per task and node, for shapes that `dynamic` says yes to.
    scores:      float64 [N] or None per placement; added up.
    gpu_scores:  score of a shared device (MiB used) or of a whole one (None) on a node with so many
                 MiB per device, None = not offered; added up.
    choose_zones: choose NUMA zones for a task about to be placed on a node, on idle resources or
                 not; whether it has to start anew there.
    zones:       the NUMA zones that a task has on a node.
    volumes:     claims of volumes that are bound where a task goes.
    generators:  scenario generators by name.
    allocated, deallocated: events; row and node.
    """

    job_keys: list[JobKey] = field(default_factory=list)
    task_keys: list[TaskKey] = field(default_factory=list)
    member_key: "Callable[[Member, Any], Any] | None" = None
    queue_key: QueueKey | None = None
    can_reclaim: "Callable[[Work], Reason | None] | None" = None
    reclaim_queues: "list[Callable[[Work, int], Reason | None]]" = field(default_factory=list)
    reclaim_victims: list[VictimFilter] = field(default_factory=list)
    preempt_victims: list[VictimFilter] = field(default_factory=list)
    reclaim_validators: list[Callable[[Any, Sequence[int]], bool]] = field(default_factory=list)
    preempt_validators: list[Callable[[Any, Sequence[int]], bool]] = field(default_factory=list)
    solution_start: list[Callable[["Job"], None]] = field(default_factory=list)
    job_capacity: CapacityCheck | None = None
    quota: CapacityCheck | None = None
    node_capacity: NodeCheck | None = None
    subset_nodes: list[Subsets] = field(default_factory=list)
    pre_job: list[Callable[["Work"], None]] = field(default_factory=list)
    pre_task: list[TaskCheck] = field(default_factory=list)
    hopeless: list[TaskCheck] = field(default_factory=list)
    node_masks: list[Callable[["Shape"], Mask | None]] = field(default_factory=list)
    node_why: list[Callable[["Shape", int], Reason | None]] = field(default_factory=list)
    task_rules: list[TaskRule] = field(default_factory=list)
    dynamic: list[Callable[["Shape"], bool]] = field(default_factory=list)
    node_checks: list[NodeCheck] = field(default_factory=list)
    scores: "list[Callable[[Fit, NodeSet, int], Scores | float]]" = field(default_factory=list)
    gpu_scores: list[Callable[[int | None, int], float | None]] = field(default_factory=list)
    choose_zones: Callable[[int, int, bool], bool] | None = None
    zones: Callable[[int, int], tuple[ZoneAmount, ...]] | None = None
    volumes: Callable[[int], tuple[str, ...]] | None = None
    generators: dict[str, Any] = field(default_factory=dict)
    allocated: list[Callable[[int, int], None]] = field(default_factory=list)
    deallocated: list[Callable[[int, int], None]] = field(default_factory=list)
