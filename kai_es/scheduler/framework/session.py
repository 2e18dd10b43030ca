"""The in-memory world of one cycle: a cheap view on the columns that tentative work may change.

Input columns are frozen; what a statement writes is copied here. Tasks are pod rows, nodes are
node rows, jobs are `columns.jobs.Job`; row numbers never decide an order.

Reference: pkg/scheduler/framework/session.go.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from kai_es.events.decisions import CycleInputs, QueueFairShare, Verdict
from kai_es.events.requests import BUDGET
from kai_es.kube.labels import GPU_MICRO
from kai_es.scheduler.columns.columns import Columns
from kai_es.scheduler.columns.jobs import Job
from kai_es.scheduler.columns.nodes import KIND, NO_ROW, accepted_gpu
from kai_es.scheduler.columns.queues import NOTHING, Fair, plus
from kai_es.scheduler.columns.resources import Demand
from kai_es.scheduler.config import Config
from kai_es.scheduler.framework.claims import Claims
from kai_es.scheduler.framework.extensions import Extensions
from kai_es.scheduler.framework.failures import Failures
from kai_es.scheduler.framework.fit import Fits
from kai_es.scheduler.framework.journal import Journal
from kai_es.scheduler.framework.ledger import Ledger
from kai_es.scheduler.framework.nodes import EntryOnNode, NodeState
from kai_es.scheduler.framework.statuses import (
    IS_ACTIVE,
    IS_ALLOCATED,
    IS_RELEASING,
    IS_UNGATED,
    IS_USED,
    PENDING,
    RELEASING,
    Statuses,
)
from kai_es.scheduler.framework.support import missing_feature
from kai_es.scheduler.framework.work import Work
from kai_es.scheduler.hooks import SessionHooks
from kai_es.scheduler.jobs.gang import ready_for_scheduling
from kai_es.scheduler.jobs.order import member_by_name
from kai_es.scheduler.jobs.select import tasks_to_allocate
from kai_es.scheduler.jobs.tree import PodSet
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.snapshot import PodRow


class Shares(Protocol):
    """Who keeps the shares of the queues.

    fair_share, allocated, deserved: by queue row.
    """

    fair_share: list[Fair]
    allocated: list[Fair]
    deserved: list[Fair]

    def shares(self) -> tuple[QueueFairShare, ...]:
        """The division, by queue name."""


class Session:
    """See the module.

    status:      by pod row.
    task_node:   by pod row: node row, None = as in the rows and not asked for yet.
    task_groups: by pod row: GPU groups, None = as in the rows.
    virtual:     by pod row: its status exists only in a statement.
    journal:     what a statement overwrote; empty between statements.
    claims:      claims on devices, None = nothing is known of any (set by the plugin).
    evicted:     tasks whose eviction is final.
    touched_queues: rows of the queues of jobs with a task whose status was written.
    visitors:    by node, tasks whose entry on it was ever written, taken back or not.
    neighbours:  of `solve.neighbours`, made when first asked for.
    tried_groups: GPU groups of the last place that was tried for a task, whatever came of it.
    """

    def __init__(
        self, columns: Columns, config: Config, inputs: CycleInputs, hooks: SessionHooks
    ) -> None:
        self.columns = columns
        self.config = config
        self.inputs = inputs
        self.hooks = hooks
        self.flags = frozenset(inputs.flags)
        self.now_ms = inputs.now_ms
        self.rows: list[PodRow | None] = columns.rows.pod_rows
        self.ext = Extensions()
        self.nodes = NodeState(columns.nodes)
        self.status = bytearray(columns.status)
        n_rows = len(self.status)
        self.task_node: list[int | None] = [None] * n_rows
        self.task_groups: list[tuple[str, ...] | None] = [None] * n_rows
        self.virtual = bytearray(n_rows)
        self.journal: Journal = []
        self.fits = Fits(self)
        self.claims: Claims | None = None
        self.failures = Failures(self)
        self.ledger = Ledger(self)
        self.shares: Shares | None = None
        self.evicted: set[int] = set()
        self.tried_groups: dict[int, tuple[str, ...]] = {}
        self.missing_by_shape: dict[Shape, str] = {}
        self.pod_signatures: dict[Shape, bytes] = {}
        self._counts: dict[Job, list[list[int]]] = {}
        self.touched_queues: set[int] = set()
        self._stamps: dict[Job, int] = {}
        self._last_stamp = 0
        self._pending: tuple[int, list[Job]] = (-1, [])
        self._entries: dict[tuple[int, int], EntryOnNode | None] = {}
        self.visitors: dict[int, dict[int, None]] = {}
        self.neighbours: object = None
        self._ordered: dict[tuple[Job, int], Sequence[int]] = {}
        self._next: dict[tuple[Job, bool], tuple[int, list[int]]] = {}
        self._amounts: dict[tuple[Job, bool], tuple[int, Fair]] = {}
        self._order_token = columns.order_token(tuple(option.name for option in config.plugins))
        memories = [f.gpu_memory for f in columns.nodes.facts if f.gpu_memory > 100]
        self.gpu_memory_min = min(memories, default=hooks.gpu_memory_default)
        self.gpu_memory_max = max(memories, default=hooks.gpu_memory_default)

    @property
    def may_not_evict(self) -> bool:
        """Whether the gate forbids evictions."""
        return self.inputs.gate.verdict is not Verdict.OPEN

    # -- tasks

    def row(self, task: int) -> PodRow:
        """The pod of a task."""
        row = self.rows[task]
        assert row is not None, f"no pod in row {task}"
        return row

    def demand(self, task: int) -> Demand:
        """What a task asks for, as vectors."""
        return self.columns.demand(self.row(task).shape)

    def node_of(self, task: int) -> int:
        """Row of the node that a task counts on, NO_ROW if none of the shard."""
        node = self.task_node[task]
        if node is None:
            node = self.nodes.columns.row.get(self.row(task).state.node, NO_ROW)
            self.task_node[task] = node
        return node

    def groups_of(self, task: int) -> tuple[str, ...]:
        """GPU groups that a task uses."""
        groups = self.task_groups[task]
        return self.row(task).state.gpu_groups if groups is None else groups

    def entry(self, task: int, n: int) -> EntryOnNode | None:
        """How a task counts on a node, None = not at all."""
        key = (task, n)
        if key in self._entries:
            return self._entries[key]
        return self.entry_before(task, n)

    def entry_before(self, task: int, n: int) -> EntryOnNode | None:
        """The same before anything was tried in this session."""
        row = self.row(task)
        status = self.columns.status[task]
        if status in IS_USED and self.nodes.columns.row.get(row.state.node, NO_ROW) == n:
            return KIND[status], self._devices_at_start(row)
        return None

    def _devices_at_start(self, row: PodRow) -> tuple[str, ...]:
        if row.shape.dra and not row.shape.shared:
            return self.columns.rows.devices.devices_of(row.pod, row.state)
        return row.state.gpu_groups

    def set_entry(
        self, task: int, n: int, entry: EntryOnNode | None, before: EntryOnNode | None
    ) -> None:
        """Write how a task counts on a node; the amounts are moved by the caller."""
        key = (task, n)
        self.journal.append((self._entries, key, before))
        self._entries[key] = entry
        self.visitors.setdefault(n, {})[task] = None

    def set_status(self, task: int, status: int) -> None:
        """Write a task's status; keeps its job's counts."""
        journal, before = self.journal, self.status[task]
        journal.append((self.status, task, before))
        self.status[task] = status
        job = self.job(task)
        counts = self._counts.get(job)
        if counts is None:
            counts = self._counts[job] = [leaf.copy() for leaf in job.counts]
            self.touched_queues.add(job.queue)
        leaf = counts[self.columns.leaf_of[task]]
        journal.append((leaf, before, leaf[before]))
        leaf[before] -= 1
        journal.append((leaf, status, leaf[status]))
        leaf[status] += 1
        stamps = self._stamps
        journal.append((stamps, job, stamps.get(job, 0)))
        self._last_stamp += 1
        stamps[job] = self._last_stamp

    def settle_status(self, task: int, status: int) -> None:
        """Write a task's status for good: nothing is recorded, no statement can take it back."""
        before = self.status[task]
        self.status[task] = status
        job = self.job(task)
        leaf = self._counts[job][self.columns.leaf_of[task]]
        leaf[before] -= 1
        leaf[status] += 1
        self._last_stamp += 1
        self._stamps[job] = self._last_stamp

    def fair(self, task: int, n: int) -> Fair:
        """What a task weighs in its queue when it is on this node."""
        shape = self.row(task).shape
        if not shape.shared:
            return shape.fair
        cpu, memory, _ = shape.fair
        return cpu, memory, accepted_gpu(shape, self.nodes.columns.facts[n].gpu_memory)

    def asked(self, task: int) -> Fair:
        """What a pending task weighs in its queue: device memory by the smallest device."""
        shape = self.row(task).shape
        if not shape.memory_mib or not self.gpu_memory_min:
            return shape.fair
        cpu, memory, gpu = shape.fair
        return cpu, memory, gpu + shape.memory_mib * GPU_MICRO // self.gpu_memory_min

    def is_dynamic(self, shape: Shape) -> bool:
        """Whether nodes must be asked one by one for tasks of a shape."""
        return shape.shared or any(test(shape) for test in self.ext.dynamic)

    # -- jobs

    def job(self, task: int) -> Job:
        """The job of a task."""
        job = self.columns.job_of[task]
        assert job is not None, f"task {task} has no job"
        return job

    def stamp(self, job: Job) -> int:
        """A number that differs whenever the state of the job's tasks differs."""
        return self._stamps.get(job, 0)

    def counts(self, job: Job) -> Sequence[Sequence[int]]:
        """Tasks of a job by leaf and status."""
        return self._counts.get(job, job.counts)

    def touched(self) -> Iterable[Job]:
        """Jobs with a task whose status was written in this session."""
        return self._counts.keys()

    def tally(self, work: Work, statuses: Statuses) -> list[int]:
        """Tasks of a work in some statuses, by leaf."""
        if work.tasks is None:
            job = work.job
            return [statuses.count(leaf) for leaf in self._counts.get(job, job.counts)]
        status = self.status
        return [sum(1 for task in leaf if status[task] in statuses) for leaf in work.tasks]

    def has(self, job: Job, statuses: Statuses) -> bool:
        """Whether a job has a task in one of these statuses."""
        counts = self._counts.get(job, job.counts)
        if len(counts) == 1:
            return statuses.count(counts[0]) > 0
        return any(statuses.count(leaf) for leaf in counts)

    def ordered(self, job: Job, leaf: int) -> Sequence[int]:
        """Tasks of a pod set in task order."""
        tasks = job.tasks[leaf]
        keys = self.ext.task_keys
        if len(tasks) < 2 or not keys:
            return tasks
        found = self._ordered.get((job, leaf))
        if found is None:
            labels = [self.row(task).pod.labels for task in tasks]
            ranks = [tuple(key(label) for key in keys) for label in labels]
            order = sorted(range(len(tasks)), key=ranks.__getitem__)  # stable: by age, uid
            found = self._ordered[job, leaf] = [tasks[i] for i in order]
        return found

    def work_tasks(self, work: Work, leaf: int) -> Sequence[int]:
        """Tasks of a work's pod set in task order."""
        return self.ordered(work.job, leaf) if work.tasks is None else work.tasks[leaf]

    def job_key(self, work: Work) -> tuple[object, ...]:
        """Place of a job in its queue; lower is served first."""
        job = work.job
        if work.tasks is not None or job in self._stamps:
            return (*[key(work) for key in self.ext.job_keys], job.order)
        known, token = job.order_key, self._order_token
        if known is None or known[0] != token:
            key = (*[key(work) for key in self.ext.job_keys], job.order)
            known = job.order_key = (token, key)
        return known[1]

    # -- what comes next of a job

    def next_tasks(self, work: Work, *, real: bool) -> list[int]:
        """The tasks of the next attempt to place a work (§5.13). Do not change the list.

        Args:
            work: what to place.
            real: only pending tasks; else, in a simulation, those virtually released too.
        """
        if work.tasks is not None:
            return self._next_tasks(work, real=real)
        job = work.job
        key, stamp = (job, real), self._stamps.get(job, 0)
        found = self._next.get(key)
        if found is None or found[0] != stamp:
            found = self._next[key] = (stamp, self._next_tasks(work, real=real))
            if not self.has(job, IS_RELEASING):  # then nothing tells a simulation from reality
                self._next[job, not real] = found
        return found[1]

    def _next_tasks(self, work: Work, *, real: bool) -> list[int]:
        tree = work.tree
        active = self.tally(work, IS_ACTIVE)
        if len(tree.leaves) == 1 and len(tree.root.members) == 1 and tree.root.needed == 1:
            missing = tree.leaves[0].min_available - active[0]
            return self._take(work, 0, max(missing, 1), real=real)
        many = len(self.status)
        return tasks_to_allocate(
            tree,
            active,
            [
                have + len(self._take(work, leaf, many, real=real))
                for leaf, have in enumerate(active)
            ],
            lambda leaf, n: self._take(work, leaf, n, real=real),
            order=self.ext.member_key or member_by_name,
            flags=self.flags,
        )

    def _take(self, work: Work, leaf: int, n: int, *, real: bool) -> list[int]:
        """The first n tasks of a pod set that may be placed."""
        status, virtual = self.status, self.virtual
        found: list[int] = []
        for task in self.work_tasks(work, leaf):
            now = status[task]
            if now == PENDING or (not real and now == RELEASING and virtual[task]):
                found.append(task)
                if len(found) == n:
                    break
        return found

    def next_amount(self, work: Work, *, real: bool = False) -> Fair:
        """What the next tasks of a work weigh in its queue."""
        if work.tasks is not None:
            return self._amount(self.next_tasks(work, real=real))
        job = work.job
        key, stamp = (job, real), self._stamps.get(job, 0)
        found = self._amounts.get(key)
        if found is None or found[0] != stamp:
            amount = self._amount(self.next_tasks(work, real=real))
            found = self._amounts[key] = (stamp, amount)
        return found[1]

    def _amount(self, tasks: Sequence[int]) -> Fair:
        if len(tasks) == 1:
            return self.asked(tasks[0])
        total = NOTHING
        for task in tasks:
            total = plus(total, self.asked(task))
        return total

    def asked_in_all(self, tasks: Sequence[int]) -> tuple[Fair, int]:
        """What tasks ask for before they are placed, and their GPU memory in MiB."""
        if len(tasks) == 1:
            shape = self.row(tasks[0]).shape
            return shape.fair, shape.memory_mib
        amount, memory = NOTHING, 0
        for task in tasks:
            shape = self.row(task).shape
            amount = plus(amount, shape.fair)
            memory += shape.memory_mib
        return amount, memory

    def allocated(self, work: Work) -> Fair:
        """What the allocated tasks of a work weigh in its queue."""
        total, status = NOTHING, self.status
        for leaf in range(len(work.tree.leaves)):
            for task in self.work_tasks(work, leaf):
                if status[task] in IS_ALLOCATED and (n := self.node_of(task)) != NO_ROW:
                    total = plus(total, self.fair(task, n))
        return total

    # -- which jobs

    def used_in(self, work: Work, leaf: PodSet) -> int:
        """Active-used tasks of a pod set."""
        return self.tally(work, IS_USED)[leaf.leaf]

    def is_ready(self, job: Job) -> bool:
        """Whether enough ungated pods exist to start the job (§5.12)."""
        counts = self._counts.get(job, job.counts)
        if len(counts) == 1:
            return IS_UNGATED.count(counts[0]) >= job.tree.leaves[0].min_available
        return ready_for_scheduling(job.tree, self.tally(Work(job), IS_UNGATED))

    def is_free(self, job: Job) -> bool:
        """Whether nothing keeps the job from being scheduled now (architecture §2, §3)."""
        state = job.state
        if state.held is not None or missing_feature(self, job):
            return False
        return not any(
            not_before > self.now_ms for code, not_before, _ in state.backoff if code != BUDGET
        )

    def gives_way(self, job: Job) -> bool:
        """Whether the job may be evicted for others: a budget that forbade it rests for a while."""
        if not job.preemptible or not job.state.backoff:
            return job.preemptible
        return not any(
            not_before > self.now_ms for code, not_before, _ in job.state.backoff if code == BUDGET
        )

    def pending_jobs(self) -> list[Job]:
        """Jobs with a pending task, in a fixed order. Do not change the list."""
        if self._pending[0] != self._last_stamp:
            found = dict.fromkeys(self.columns.pending.values())
            found.update(dict.fromkeys(self._counts))
            now = self._counts
            jobs = [job for job in found if _any_pending(now.get(job, job.counts))]
            jobs.sort(key=lambda job: job.order)
            self._pending = (self._last_stamp, jobs)
        return self._pending[1]

    def doubtful_jobs(self) -> list[Job]:
        """Jobs that are marked stale or may have become so, in a fixed order."""
        found = dict.fromkeys(self.columns.doubtful.values())
        for job, counts in self._counts.items():
            if len(counts) > 1 or 0 < IS_USED.count(counts[0]) < job.tree.leaves[0].min_available:
                found[job] = None
        return sorted(found, key=lambda job: job.order)


def _any_pending(counts: Sequence[Sequence[int]]) -> bool:
    if len(counts) == 1:
        return counts[0][PENDING] > 0
    return any(leaf[PENDING] for leaf in counts)
