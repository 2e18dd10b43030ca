"""All columns of one shard, brought up to date from the rows by what changed.

Equal to columns built from scratch on the same rows and at the same time, whatever came before;
`tests/property/test_columns.py` holds it to that.
"""

from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from kai_es.kube.conditions import waits_for_another_pool
from kai_es.kube.labels import SPACE_NAME_LABEL
from kai_es.kube.objects import Namespace, PodGroup
from kai_es.kube.topologies import Topology
from kai_es.scheduler.columns.jobs import GATED, PENDING, Job, Priorities, build_job
from kai_es.scheduler.columns.labels import LabelColumns
from kai_es.scheduler.columns.lens import Lens
from kai_es.scheduler.columns.matches import QUESTIONS_MAX, PodMatches
from kai_es.scheduler.columns.nodes import NodeColumns, accepted_gpu
from kai_es.scheduler.columns.queues import NO_QUEUE, NOTHING, Fair, QueueColumns
from kai_es.scheduler.columns.resources import Demand, ResourceIndex
from kai_es.scheduler.columns.topology import TopologyTree, build_tree
from kai_es.scheduler.dra.pools import Pools
from kai_es.snapshot.shapes import Shape
from kai_es.snapshot.snapshot import GroupKey, GroupRow, PodRow, Snapshot
from kai_es.snapshot.status import ACTIVE_ALLOCATED, ACTIVE_USED, TaskStatus

NAMESPACE: Final = "Namespace"
TOPOLOGY: Final = "Topology"
_STALE_SHAPES: int = 4096  # demands of dead shapes that may pile up before they are swept

_ALLOCATED_INTS = tuple(sorted(int(status) for status in ACTIVE_ALLOCATED))
_USED_INTS = tuple(sorted(int(status) for status in ACTIVE_USED))


class Columns:
    """What a session opens on. Nothing here changes between two calls of `refresh`.

    nodes, queues: tables of the shard.
    jobs:       every job by key.
    by_queue:   jobs with an active-allocated task, by queue row.
    pending:    jobs with a pending task.
    waiting:    jobs with a pending or gated task.
    doubtful:   jobs that are marked stale, or may be stale.
    status:     by pod row; only tasks of jobs have a meaningful one.
    job_of, leaf_of: by pod row.
    versions:   by kind of `Snapshot.plain`, a number that rises whenever an object of it changes.
    """

    def __init__(self, rows: Snapshot, lens: Lens) -> None:
        self.rows = rows
        self.lens = lens
        self.index = ResourceIndex()
        self.nodes = NodeColumns(lens, self.index)
        self.queues = QueueColumns((), lens)
        self.priorities = Priorities(())
        self.jobs: dict[GroupKey, Job] = {}
        self.by_queue: dict[int, dict[GroupKey, Job]] = {}
        self.pending: dict[GroupKey, Job] = {}
        self.waiting: dict[GroupKey, Job] = {}
        self.doubtful: dict[GroupKey, Job] = {}
        self.status = bytearray()
        self.job_of: list[Job | None] = []
        self.leaf_of: list[int] = []
        self.versions: dict[str, int] = {}
        self._labels = LabelColumns(())
        self._labels_version = -1
        self._matches: PodMatches | None = None
        self._unmatched: set[str] = set()
        self._pools = Pools(())
        self._pools_version = -1
        self._trees: dict[str, TopologyTree | None] = {}
        self._trees_version = (-1, -1)
        self._demands: dict[Shape, Demand] = {}
        self._demand_width = 0
        self._order_tokens: dict[tuple[str, ...], int] = {}
        self._now_ms = 0
        self._stuck: set[str] = set()
        self._leaving: dict[str, PodRow] = {}
        self._dirty_nodes: set[str] = set()
        self._dirty_groups: set[GroupKey] = set()
        self._dirty_queues = True
        self._spaces: dict[str, set[str]] = {}
        rows.follow(self)
        for node in rows.nodes.live():
            self.node_changed(node.node.name)
        for name in rows.pods_of_node:  # pods may know of a node before we do
            self.node_changed(name)
        for group in rows.groups.live():
            self.group_changed(group.name)
        for key in rows.pods_of_group:
            self.group_changed(key)

    # -- marks of change

    def node_changed(self, name: str) -> None:
        """A node or its pods changed."""
        self._dirty_nodes.add(name)
        if self._matches is not None:
            self._unmatched.add(name)

    def group_changed(self, key: GroupKey) -> None:
        """A pod group or its pods changed."""
        if self.lens.groups_by_name:
            self._spaces.setdefault(key[1], set()).add(key[0])
            key = ("", key[1])
        self._dirty_groups.add(key)

    def queues_changed(self) -> None:
        """Queues or priority classes changed."""
        self._dirty_queues = True

    def object_changed(self, kind: str, name: Hashable) -> None:
        """An object that is looked up by name changed."""
        del name
        self.versions[kind] = self.versions.get(kind, 0) + 1
        if kind == NAMESPACE:
            self._matches = None
        if kind == TOPOLOGY:
            self._dirty_groups.update(job.key for job in self.jobs.values() if job.constrained)

    # -- refresh

    def refresh(self, now_ms: int) -> None:
        """Follow the rows up to now; `now_ms` decides which leaving pods count as stuck."""
        self._now_ms = now_ms
        if self._dirty_queues:
            self._rebuild_queues()
        self._find_stuck()
        if self._dirty_nodes:
            self._refresh_nodes()
        if self._dirty_groups:
            self._refresh_groups()

    def _rebuild_queues(self) -> None:
        self._dirty_queues = False
        rows = self.rows
        self.queues = QueueColumns((row.queue for row in rows.queues.live()), self.lens)
        self.priorities = Priorities(row.priority_class for row in rows.classes.live())
        self.by_queue = {}
        for job in self.jobs.values():
            job.resolve(self.queues, self.priorities)
            self._enter(job)

    def _find_stuck(self) -> None:
        for uid, row in list(self._leaving.items()):
            live = self.rows.pods.get(uid)
            if live is not row:
                del self._leaving[uid]
                self._stuck.discard(uid)
                continue
            stuck = self._now_ms - row.pod.deleted_ms > self.lens.stuck_after_ms
            if stuck != (uid in self._stuck):
                (self._stuck.add if stuck else self._stuck.discard)(uid)
                self.node_changed(row.state.node)
                if row.pod.group:
                    self.group_changed((row.pod.namespace, row.pod.group))

    def _refresh_nodes(self) -> None:
        dirty, self._dirty_nodes = self._dirty_nodes, set()
        self._watch_leaving(dirty)
        moved = self.nodes.update(dirty, self.rows, self.demand, self.status_of)
        for name in moved:  # what their tasks weigh depends on the node
            for row in self.rows.pods_of_node.get(name, {}).values():
                if row.pod.group:
                    self.group_changed((row.pod.namespace, row.pod.group))

    def _watch_leaving(self, nodes: Iterable[str]) -> None:
        """Pods that run on after their deletion may become stuck by the clock alone."""
        for name in nodes:
            for uid, row in self.rows.pods_of_node.get(name, {}).items():
                if (
                    row.state.status is TaskStatus.RELEASING
                    and row.pod.deleted_ms
                    and row.pod.phase == "Running"
                ):
                    self._leaving[uid] = row
                    if self._now_ms - row.pod.deleted_ms > self.lens.stuck_after_ms:
                        self._stuck.add(uid)

    def _refresh_groups(self) -> None:
        dirty, self._dirty_groups = self._dirty_groups, set()
        grow = len(self.rows.pod_rows) - len(self.status)
        if grow > 0:
            self.status.extend(bytes(grow))
            self.job_of.extend([None] * grow)
            self.leaf_of.extend([0] * grow)
        for key in dirty:
            old = self.jobs.pop(key, None)
            if old is not None:
                self._leave(old)
            row = self._group(key)
            if row is not None and self._is_ours(row.group):
                pods = [pod for pod in self._pods(key) if self.lens.owns(pod.pod)]
                job = build_job(row, key, pods, self.status_of, self.granted, self._aliases)
                job.resolve(self.queues, self.priorities)
                self.jobs[key] = job
                self._place(job, pods)
                self._enter(job)

    def _is_ours(self, group: PodGroup) -> bool:
        """Whether the shard schedules a pod group; the pods of others only weigh on nodes."""
        lens = self.lens
        return lens.selects(group.labels) and not waits_for_another_pool(group, lens.pool_key)

    def _group(self, key: GroupKey) -> GroupRow | None:
        if not self.lens.groups_by_name:
            return self.rows.groups.get(key)
        rows = (self.rows.groups.get((ns, key[1])) for ns in sorted(self._spaces[key[1]]))
        found = [row for row in rows if row is not None]
        return found[-1] if found else None  # compat: they overwrite each other; ours by namespace

    def _pods(self, key: GroupKey) -> list[PodRow]:
        index = self.rows.pods_of_group
        if not self.lens.groups_by_name:
            return list(index.get(key, {}).values())
        spaces = sorted(self._spaces[key[1]])
        return [row for ns in spaces for row in index.get((ns, key[1]), {}).values()]

    def _place(self, job: Job, pods: Iterable[PodRow]) -> None:
        for leaf, tasks in enumerate(job.tasks):
            for row in tasks:
                self.job_of[row] = job
                self.leaf_of[row] = leaf
        for pod in pods:
            self.status[pod.row] = self.status_of(pod)

    def _leave(self, job: Job) -> None:
        for tasks in job.tasks:
            for row in tasks:
                if self.job_of[row] is job:
                    self.job_of[row] = None
        if job.queue != NO_QUEUE:
            self.queues.count_out(job.queue, job.uses)
            self.by_queue.get(job.queue, {}).pop(job.key, None)
        for table in (self.pending, self.waiting, self.doubtful):
            table.pop(job.key, None)

    def _enter(self, job: Job) -> None:
        totals, key = job.totals, job.key
        if job.queue != NO_QUEUE:
            self.queues.count_in(job.queue, job.uses)
            if any(totals[status] for status in _ALLOCATED_INTS):
                self.by_queue.setdefault(job.queue, {})[key] = job
        if totals[PENDING]:
            self.pending[key] = job
        if totals[PENDING] or totals[GATED]:
            self.waiting[key] = job
        if job.state.stale_since_ms or _may_be_stale(job):
            self.doubtful[key] = job

    def order_token(self, plugins: tuple[str, ...]) -> int:
        """A number for a list of plugins, by which keys kept with jobs are known."""
        return self._order_tokens.setdefault(plugins, len(self._order_tokens))

    # -- what a pod is and weighs

    def status_of(self, row: PodRow) -> TaskStatus:
        """Effective status of a pod now."""
        if self._stuck and row.pod.uid in self._stuck:
            return TaskStatus.STUCK_IN_RELEASING
        return row.state.status

    def granted(self, row: PodRow) -> Fair:
        """What an allocated task weighs in its queue; nothing on a node outside the shard."""
        n = self.nodes.row.get(row.state.node)
        if n is None:
            return NOTHING
        shape = row.shape
        if not shape.shared:
            return shape.fair
        cpu, memory, _ = shape.fair
        return cpu, memory, accepted_gpu(shape, self.nodes.facts[n].gpu_memory)

    def pools(self) -> Pools:
        """Devices on offer."""
        rows = self.rows.devices
        if self._pools_version != rows.version:
            self._pools = Pools(row.slice for row in rows.slices.live())
            self._pools_version = rows.version
        return self._pools

    def labels(self) -> LabelColumns:
        """Labels and taints of the nodes."""
        if self._labels_version != self.nodes.version:
            self._labels = LabelColumns([facts.node for facts in self.nodes.facts])
            self._labels_version = self.nodes.version
        return self._labels

    def matches(self) -> PodMatches:
        """How many pods that somebody asks about are on each node."""
        if self._matches is None or len(self._matches) > QUESTIONS_MAX:
            self._matches = PodMatches(self.rows, self.status_of, self.labels_of_space)
            self._unmatched.clear()
        if self._unmatched:
            self._matches.refresh(sorted(self._unmatched))
            self._unmatched.clear()
        return self._matches

    def labels_of_space(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace; it has its name as one whether it is known or not."""
        found = self.rows.object(NAMESPACE, name)
        labels = found.labels if isinstance(found, Namespace) else {}
        return {SPACE_NAME_LABEL: name, **labels}

    def topology(self, name: str) -> TopologyTree | None:
        """A topology over the nodes, None = there is no such."""
        version = (self.nodes.version, self.versions.get(TOPOLOGY, 0))
        if self._trees_version != version:
            self._trees, self._trees_version = {}, version
        if name not in self._trees:
            found = self.rows.object(TOPOLOGY, name)
            self._trees[name] = None
            if isinstance(found, Topology):
                levels = [level.label for level in found.levels]
                self._trees[name] = build_tree(name, levels, self.labels())
        return self._trees[name]

    def _aliases(self, topology: str) -> Mapping[str, str]:
        """Node labels of a topology's levels by alias."""
        found = self.rows.object(TOPOLOGY, topology)
        if not isinstance(found, Topology):
            return {}
        return {level.alias: level.label for level in found.levels if level.alias}

    def demand(self, shape: Shape) -> Demand:
        """The request of a shape as vectors."""
        if self._demand_width != len(self.index) or len(self._demands) > _STALE_SHAPES:
            self._demands = {}
            self._demand_width = len(self.index)
        found = self._demands.get(shape)
        if found is None:
            found = self._demands[shape] = Demand(shape, self.index)
        return found


def _may_be_stale(job: Job) -> bool:
    """Whether some pod set has fewer used tasks than it needs while the job has some at all."""
    short = used_any = False
    for leaf, counts in zip(job.tree.leaves, job.counts, strict=True):
        used = 0
        for status in _USED_INTS:
            used += counts[status]
        short = short or used < leaf.min_available
        used_any = used_any or used > 0
    return short and used_any
