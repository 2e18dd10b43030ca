"""What statuses are made of, kept up to date row by row; and what each batch gives cause to.

Nothing here walks over all pods or groups after the start, save when a priority class or the name
of the scheduler changes. Equal to counting a world anew: `tests/property/test_status.py`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kai_es.events.decisions import Cycle
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused
from kai_es.events.snapshot import Batch, Removed, Upserted
from kai_es.kube.conditions import TRUE
from kai_es.kube.devices import ResourceClaim
from kai_es.kube.labels import GPU_MEMORY_LABEL, SCHEDULER_NAME
from kai_es.kube.objects import (
    ClusterObject,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
    ShardConfig,
)
from kai_es.scheduler.columns.jobs import Priorities
from kai_es.scheduler.jobs.tree import tree_of
from kai_es.snapshot.snapshot import GroupKey
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World
from kai_es.status.groups import is_fixed
from kai_es.status.shares import NOTHING, share_of
from kai_es.status.sharing import AMD_MEMORY_PREFIX
from kai_es.status.tally import Place, Tally

POD: Final = "Pod"
POD_GROUP: Final = "PodGroup"
QUEUE: Final = "Queue"

_NodeFacts = tuple[str, ...]


@dataclass(slots=True)
class News:
    """What a batch gives cause to look at, by uid, each once.

    pods:      what is written of them may be wrong now.
    groups:    likewise.
    explained: groups of which a cycle says something else than before.
    queues:    sums, names or parents of some queue changed.
    seen:      objects of which there is a new version, which may be what was written.
    """

    pods: dict[str, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    explained: dict[str, None] = field(default_factory=dict)
    queues: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)


class Follower:
    """Sums of a world, following its batches.

    tally:      the sums.
    priorities: what priority classes mean.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._news = News()
        self._heard: dict[GroupKey, None] = {}
        self._keys: dict[str, GroupKey] = {}
        self._nodes: dict[str, tuple[str, _NodeFacts]] = {}
        self._fresh: dict[str, None] = {}
        world.snapshot.follow(self)
        self.recount()

    def recount(self) -> None:
        """Count everything anew."""
        snapshot = self._world.snapshot
        self.tally = Tally()
        self.priorities = self._priorities()
        self._schedulers = self._scheduler_names()
        for row in snapshot.nodes.rows.values():
            self._nodes[row.node.uid] = (row.node.name, _facts(row.node))
        for group in snapshot.groups.rows.values():
            self._place(group.group.uid, group.name)
        for uid in snapshot.pods:
            self._count(uid)

    def fold(self, batch: Batch) -> News:
        """Take in a batch that the world has just folded."""
        self._news = News()
        has_claims = False
        for row in batch.rows:
            match row:
                case Upserted():
                    has_claims = has_claims or isinstance(row.obj, ResourceClaim)
                    self._upserted(row.obj)
                case Removed():
                    has_claims = has_claims or row.kind == "ResourceClaim"
                    self._removed(row)
                case Cycle():
                    self._cycle(row)
                case Bound() | Evicted() | AttemptFailed() | Refused():
                    self._news.pods[row.pod_uid] = None
                case _:
                    pass
        if has_claims:
            self._recount_claimed()
        self._heard.clear()
        for key in self.tally.changed_groups:
            found = self._world.snapshot.groups.get(key)
            if found is not None:
                self._news.groups[found.group.uid] = None
        self.tally.changed_groups.clear()
        self._news.queues = self._news.queues or self.tally.changed_queues
        self.tally.changed_queues = False
        return self._news

    def pods_of(self, group: PodGroup) -> Iterator[str]:
        """Uids of the pods that name a group and are this scheduler's."""
        rows = self._world.snapshot.pods_of_group.get((group.namespace, group.name), {})
        return (uid for uid, row in rows.items() if self.is_ours(row.pod))

    def has_strangers(self, group: PodGroup) -> bool:
        """Whether a pod that waits names a sub-group which is not there; no cycle speaks of it."""
        tree, pods = tree_of(group), self._world.snapshot.pods
        return any(
            row.state.status is TaskStatus.PENDING and tree.leaf_for(row.pod.sub_group) is None
            for row in map(pods.__getitem__, self.pods_of(group))
        )

    def is_ours(self, pod: Pod) -> bool:
        """Whether a pod is of a scheduler of ours."""
        return pod.spec.scheduler in self._schedulers

    # -- rows

    def _upserted(self, obj: ClusterObject) -> None:
        news = self._news
        match obj:
            case Pod():
                news.seen.append((POD, obj.uid))
                self._count(obj.uid)
                self._note_pod(obj)
            case PodGroup():
                news.seen.append((POD_GROUP, obj.uid))
                self._place(obj.uid, (obj.namespace, obj.name))
                if obj.sub_groups:
                    news.explained[obj.uid] = None
            case Queue():
                news.seen.append((QUEUE, obj.uid))
            case Node():
                self._node(obj.uid, obj.name, _facts(obj))
            case PriorityClass():
                self._replace_all()
            case ShardConfig():
                self._configured()
            case _:
                pass

    def _removed(self, row: Removed) -> None:
        match row.kind:
            case "Pod":
                self._count(row.uid)
            case "PodGroup":
                self._fresh.pop(row.uid, None)
                key = self._keys.pop(row.uid, None)
                if key is not None:
                    self._place_key(key)
            case "Queue":
                self._news.queues = True
            case "Node":
                name, _ = self._nodes.pop(row.uid, ("", ()))
                self._count_node(name)
            case "PriorityClass":
                self._replace_all()
            case "ShardConfig":
                self._configured()
            case _:
                pass

    def _cycle(self, cycle: Cycle) -> None:
        news = self._news
        news.explained.update(dict.fromkeys(sorted(cycle.decision.reasons)))
        for mark in cycle.decision.marks:
            news.groups[mark.group_uid] = None
        for uid in list(self._fresh):
            if uid in cycle.decision.reasons or uid in cycle.reasons_same:
                news.explained[uid] = None
                del self._fresh[uid]

    def _note_pod(self, pod: Pod) -> None:
        """What a new version of a pod gives cause to, besides sums."""
        row = self._world.snapshot.pods.get(pod.uid)
        if row is None or not self.is_ours(pod):
            return
        if row.state.status is TaskStatus.PENDING:
            group = self._world.snapshot.groups.get((pod.namespace, pod.group))
            if not pod.scheduled and group is not None:
                self._fresh[group.group.uid] = None
                if tree_of(group.group).leaf_for(pod.sub_group) is None:
                    self._news.explained[group.group.uid] = None
        elif pod.node and pod.bound != TRUE and self._world.requests.of_pod(pod.uid):
            self._news.pods[pod.uid] = None

    # -- counting

    def _count(self, uid: str) -> None:
        row = self._world.snapshot.pods.get(uid)
        if row is None or not row.pod.group or not self.is_ours(row.pod):
            self.tally.set_pod(uid, None, NOTHING)
            return
        pod, snapshot = row.pod, self._world.snapshot
        node = snapshot.nodes.get(pod.node) if pod.node and pod.spec.gpu.memory_mib else None
        devices = snapshot.devices
        claimed = devices.gpus_of_pod(pod) if devices.concerns(pod) else {}
        share = share_of(pod, node.node if node is not None else None, claimed)
        self.tally.set_pod(uid, (pod.namespace, pod.group), share)

    def _place(self, uid: str, key: GroupKey) -> None:
        old = self._keys.get(uid)
        self._keys[uid] = key
        if old is not None and old != key:
            self._place_key(old)
        self._place_key(key)

    def _place_key(self, key: GroupKey) -> None:
        found = self._world.snapshot.groups.get(key)
        if found is None:
            self.tally.place(key, None)
            return
        fixed = is_fixed(found.group, self.priorities)
        self.tally.place(key, Place(found.group.queue, fixed))

    def _node(self, uid: str, name: str, facts: _NodeFacts) -> None:
        if self._nodes.get(uid) != (name, facts):
            self._nodes[uid] = (name, facts)
            self._count_node(name)

    def _count_node(self, name: str) -> None:
        for uid in self._world.snapshot.pods_of_node.get(name, {}):
            self._count(uid)

    def _recount_claimed(self) -> None:
        """Claims changed: pods that have claims, of the groups that the snapshot named."""
        snapshot = self._world.snapshot
        for key in self._heard:
            for uid, row in snapshot.pods_of_group.get(key, {}).items():
                if snapshot.devices.concerns(row.pod):
                    self._count(uid)

    def _replace_all(self) -> None:
        self.priorities = self._priorities()
        for key in list(self._keys.values()):
            self._place_key(key)

    def _configured(self) -> None:
        names = self._scheduler_names()
        if names != self._schedulers:
            self._schedulers = names
            for uid in self._world.snapshot.pods:
                self._count(uid)

    def _priorities(self) -> Priorities:
        rows = self._world.snapshot.classes.live()
        return Priorities(row.priority_class for row in rows)

    def _scheduler_names(self) -> frozenset[str]:
        configs = self._world.snapshot.configs.values()
        named = {str(c.settings.get("scheduler_name", SCHEDULER_NAME)) for c in configs}
        return frozenset(named or {SCHEDULER_NAME})

    # -- as a follower of the snapshot

    def node_changed(self, name: str) -> None:
        """See `Follower` of the snapshot."""

    def group_changed(self, key: GroupKey) -> None:
        """See `Follower` of the snapshot."""
        self._heard[key] = None

    def queues_changed(self) -> None:
        """See `Follower` of the snapshot."""

    def object_changed(self, kind: str, name: object) -> None:
        """See `Follower` of the snapshot."""


def _facts(node: Node) -> _NodeFacts:
    """What of a node's labels says how much memory its devices have."""
    return tuple(
        f"{key}={node.labels[key]}"
        for key in sorted(node.labels)
        if key == GPU_MEMORY_LABEL or key.startswith(AMD_MEMORY_PREFIX)
    )
