"""What is to be written now of each object, from the log alone. Pure.

A write is planned on the version that the log showed last, and carries its resourceVersion; after a
write nothing more is planned for the object until the log has shown what it became. So a status
always replaces one that was computed from an earlier offset (invariant 16): that one had to be in
the log before this one could be planned.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from kai_es.events.decisions import Cycle, Reason
from kai_es.events.requests import AttemptFailed, Bound, Evicted, Refused
from kai_es.events.snapshot import Batch
from kai_es.kube.labels import DEFAULT_NODE_POOL, NODE_POOL_LABEL
from kai_es.kube.objects import PodGroup, Queue
from kai_es.scheduler.fairness.shares import quota_of
from kai_es.scheduler.jobs.tree import tree_of
from kai_es.scheduler.reasons.quota import Asked, QuotaNumbers, quota_details
from kai_es.snapshot.ranking import Live, Rank
from kai_es.snapshot.snapshot import PodRow
from kai_es.snapshot.status import TaskStatus
from kai_es.snapshot.world import World
from kai_es.status import events
from kai_es.status.amounts import fair_vector
from kai_es.status.conditions import Marks
from kai_es.status.events import KubeEvent, about_group, about_pod
from kai_es.status.follow import POD, POD_GROUP, QUEUE, Follower, News
from kai_es.status.groups import GroupSeen, is_fixed, patches
from kai_es.status.patch import Patch, Write
from kai_es.status.pods import write_of
from kai_es.status.queues import child_names, queue_patch
from kai_es.status.said import (
    NORMAL,
    Task,
    Words,
    pool_of,
    said_by,
    stale_text,
    unknown_sub_group,
    words_of,
)
from kai_es.status.tally import Sums, with_children

BINDING_WAIT_S: Final = 60.0
"""A group of which pods are on their way to a node is about to change again; so long it waits."""
REQUESTED_WAIT_S: Final = 8.0
REQUESTED_WAIT_MAX_S: Final = 60.0
"""What a group asks for is written with what it gets, if that comes within this time. While there
is much else to write it waits longer: such a write takes the API server's time from the binds that
would spare it."""
MARKS_WAIT_S: Final = 30.0
MARKS_WAIT_MAX_S: Final = 300.0
"""Annotations that mirror marks: nobody reads them but a KAI that takes over later, and a group
that is short-lived never needs them. While there is much else to write they wait longer."""
MARKS_AGAIN_S: Final = 15.0
AGAIN_S: Final = 2.0
EVENT_PODS_MAX: Final = 10
"""Pods of one group that are told of by events; all are by their condition."""


class Planned(NamedTuple):
    """Writes of one object, in order: the first with `rv`, each further with the answer's.

    rank: of the version that they are planned on.
    later_s: what is left is to be looked at in so many seconds, 0 = nothing is left.
    can_wait: nobody misses them while there is much else to write.
    """

    kind: str
    uid: str
    rank: Rank
    writes: tuple[Write, ...]
    later_s: float = 0.0
    can_wait: bool = False


class Postponed(NamedTuple):
    """It is too early: something is about to change; look again in so many seconds."""

    after_s: float


Plan = Planned | Postponed | None


class Told(NamedTuple):
    """What explaining a group came to.

    events: those that are told of it.
    pods:   whose condition says something else.
    """

    events: tuple[KubeEvent, ...]
    pods: tuple[str, ...]


class Planner:
    """Plans on a world, which somebody else folds; `fold` must see each batch after that."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.follower = Follower(world)
        self._words: dict[str, Words] = {}
        self._unseen: dict[tuple[str, str], Rank] = {}
        self._totals_at = -1
        self._totals: Mapping[str, Sums] = {}

    # -- following

    def fold(self, batch: Batch) -> tuple[News, list[KubeEvent]]:
        """Take in a batch; what it gives cause to, and what it is told as."""
        news = self.follower.fold(batch)
        told: list[KubeEvent] = []
        for row in batch.rows:
            match row:
                case Cycle():
                    told += events.of_cycle(row, self.world)
                    told += self._stale(row)
                case Bound() | AttemptFailed() | Refused() | Evicted():
                    told += events.of_result(row, self.world, batch.time)
                case _:
                    pass
        return news, told

    def everything(self) -> News:
        """All there is, to be looked at once by a new leader."""
        snapshot, news = self.world.snapshot, News(queues=True)
        held = {uid for reasons in self.world.reigns.reasons.values() for uid in reasons}
        groups = (row.group for row in snapshot.groups.live())
        held |= {group.uid for group in groups if self.follower.has_strangers(group)}
        news.groups.update(dict.fromkeys(sorted(snapshot.groups.rows)))
        news.explained.update(dict.fromkeys(sorted(held)))
        news.pods.update(dict.fromkeys(sorted(self.world.requests.by_pod)))
        return news

    # -- what is known of own writes

    def is_current(self, kind: str, uid: str) -> bool:
        """Whether the log has shown what the last write came to."""
        awaited = self._unseen.get((kind, uid))
        if awaited is None:
            return True
        entry = self.world.objects.get(kind, uid)
        if entry is not None and entry.rank < awaited:
            return False
        del self._unseen[kind, uid]
        return True

    def awaits(self, kind: str, uid: str) -> bool:
        """Whether a version is waited for."""
        return (kind, uid) in self._unseen

    def is_own(self, kind: str, uid: str) -> bool:
        """Whether the newest version is what the last write made of the object."""
        entry = self._live(kind, uid)
        return entry is not None and self._unseen.get((kind, uid)) == entry.rank

    def wrote(self, planned: Planned, rv: int) -> None:
        """The object became this version; one that did not change is let be until it does."""
        rank = planned.rank
        self._unseen[planned.kind, planned.uid] = Rank(rank.incarnation, max(rv, rank.rv + 1))

    def refused(self, planned: Planned) -> None:
        """There is a newer version, or this one takes no such write: wait for the next."""
        self.wrote(planned, 0)

    def give_up_waiting(self, kind: str, uid: str) -> None:
        """The version does not come: it was never, or of a state that was restored over."""
        self._unseen.pop((kind, uid), None)

    # -- plans

    def pod(self, uid: str, now_ms: int) -> Plan:
        """Conditions of a pod."""
        entry, row = self._live(POD, uid), self.world.snapshot.pods.get(uid)
        if entry is None or row is None or not self.follower.is_ours(row.pod):
            return None
        if self._has_open_request(uid):
            return None
        requests = self.world.requests.of_pod(uid)
        text = self._said_of(row)
        write = write_of(row.pod, text, requests, offset=self.world.offset, now_ms=now_ms)
        return None if write is None else Planned(POD, uid, entry.rank, (write,))

    def group(self, uid: str, now_ms: int, *, waited_s: float, is_calm: bool = True) -> Plan:
        """Status and annotations of a pod group.

        Args:
            uid: of the group.
            now_ms: time of a transition.
            waited_s: since there was cause to look at it.
            is_calm: little is being written, so what can wait need not.
        """
        entry = self._live(POD_GROUP, uid)
        if entry is None:
            self._words.pop(uid, None)
            return None
        group = entry.obj
        assert isinstance(group, PodGroup)
        row = self.world.snapshot.groups.rows.get(uid)
        found = self.world.snapshot.groups.get((group.namespace, group.name))
        if group.deleted_ms or row is None or found is not row:
            return None
        if self._held(group) is None:
            self._words.pop(uid, None)
        words = self._words.get(uid)
        statuses = [one.status for one in self._tasks(group)]
        place = self.follower.tally.place_of(row.name)
        seen = GroupSeen(
            group=group,
            sums=self.follower.tally.groups.get(row.name),
            fixed=place is not None and place.fixed,
            marks=Marks(
                row.state.stale_since_ms, row.state.last_start_ms, row.state.last_eviction_ms
            ),
            statuses=statuses,
            condition=words.condition if words is not None else None,
            pool=self._pool(group),
        )
        writes = patches(seen, offset=self.world.offset, now_ms=now_ms)
        if not writes:
            return None
        is_binding = TaskStatus.BINDING in statuses
        planned = Planned(POD_GROUP, uid, entry.rank, tuple(writes))
        return ripe(planned, waited_s, is_binding=is_binding, is_calm=is_calm)

    def queues(self) -> Iterator[Planned]:
        """Statuses of all queues that say something else than their sums."""
        snapshot = self.world.snapshot
        rows = {row.name: row.queue for row in snapshot.queues.live()}
        parents = {name: queue.parent for name, queue in rows.items()}
        totals, children = self.queue_totals(parents), child_names(parents)
        for name in sorted(rows):
            queue = rows[name]
            below = children.get(name)
            patch = queue_patch(queue, totals[name], below, offset=self.world.offset)
            entry = self._live(QUEUE, queue.uid)
            if patch is not None and entry is not None and not queue.deleted_ms:
                yield Planned(QUEUE, queue.uid, entry.rank, (patch,))

    def queue_totals(self, parents: Mapping[str, str] | None = None) -> dict[str, Sums]:
        """Sums of all queues, those below each counted in."""
        if parents is None:
            live: Iterable[Queue] = (row.queue for row in self.world.snapshot.queues.live())
            parents = {queue.name: queue.parent for queue in live}
        return with_children(self.follower.tally.queues, parents)

    # -- explanations

    def explain(self, uid: str, now_ms: int) -> Told | None:
        """Put what the last cycle says of a group into words, None = it says nothing."""
        entry = self._live(POD_GROUP, uid)
        group = entry.obj if entry is not None else None
        held = self._held(group) if isinstance(group, PodGroup) else None
        if not isinstance(group, PodGroup) or held is None:
            self._words.pop(uid, None)
            return None
        shard, reasons = held
        config = self.world.snapshot.config(shard)
        detailed = config is not None and bool(config.settings.get("detailed_fit_errors"))
        tasks = self._tasks(group)
        pool = self._pool(group)
        said = said_by(reasons)
        fixed = is_fixed(group, self.follower.priorities)
        details = partial(self._details, fixed=fixed)
        words = words_of(group, tasks, said, pool=pool, detailed=detailed, details=details)
        self._words[uid] = words
        component = events.scheduler_of(self.world, shard)
        return Told(
            tuple(self._events(group, words, component, now_ms)),
            tuple(one for one in words.pods if not self._says(one, words.pods[one])),
        )

    def _details(self, asked: Asked, *, fixed: bool) -> dict[str, object] | None:
        """Of the queue that refused a group, as the log says now."""
        row = self.world.snapshot.queues.get(asked.queue)
        if row is None:
            return None
        if self._totals_at != self.world.offset:  # thousands of groups may wait for one queue
            self._totals_at, self._totals = self.world.offset, self.queue_totals()
        quota, sums = quota_of(row.queue), self._totals[asked.queue]
        requested, allocated, kept = map(fair_vector, sums.as_tuple())
        numbers = QuotaNumbers(quota.deserved, quota.limit, allocated, kept, requested)
        return quota_details(asked, numbers, fixed=fixed)

    def _events(
        self, group: PodGroup, words: Words, component: str, now_ms: int
    ) -> Iterator[KubeEvent]:
        n_pods = 0
        for one in words.events:
            about = about_group(group)
            if one.uid:
                n_pods += 1
                row = self.world.snapshot.pods.get(one.uid)
                if n_pods > EVENT_PODS_MAX or row is None:
                    continue
                about = about_pod(row.pod)
            yield KubeEvent(about, one.type, one.reason, one.message, component, now_ms)

    def _stale(self, cycle: Cycle) -> Iterator[KubeEvent]:
        """Gangs that have just become stale."""
        for mark in cycle.decision.marks:
            entry = self._live(POD_GROUP, mark.group_uid)
            if not mark.stale_since_ms or entry is None or not isinstance(entry.obj, PodGroup):
                continue
            group = entry.obj
            by_leaf: dict[int, list[TaskStatus]] = {}
            tree = tree_of(group)
            for row in self._rows(group):
                leaf = tree.leaf_for(row.pod.sub_group)
                if leaf is not None:
                    by_leaf.setdefault(leaf, []).append(row.state.status)
            text = stale_text((leaf, by_leaf.get(leaf.leaf, ())) for leaf in tree.leaves)
            component = events.scheduler_of(self.world, cycle.shard)
            ident = str(mark.stale_since_ms)
            now_ms = cycle.inputs.now_ms
            yield KubeEvent(about_group(group), NORMAL, "StaleJob", text, component, now_ms, ident)

    def _held(self, group: PodGroup) -> tuple[str, Sequence[Reason]] | None:
        """Shard and reasons that hold for a group, None = there is nothing to tell."""
        for shard, reasons in self.world.reigns.reasons.items():
            found = reasons.get(group.uid)
            if found is not None:
                return shard, found.reasons
        if self.follower.has_strangers(group):
            return next(iter(self.world.reigns.reasons), ""), ()
        return None

    # -- looking up

    def _live(self, kind: str, uid: str) -> Live | None:
        return self.world.objects.get(kind, uid)

    def _rows(self, group: PodGroup) -> Iterator[PodRow]:
        pods = self.world.snapshot.pods
        return (pods[uid] for uid in self.follower.pods_of(group))

    def _tasks(self, group: PodGroup) -> list[Task]:
        tree = tree_of(group)
        return [
            Task(
                row.pod.uid,
                f"{row.pod.namespace}/{row.pod.name}",
                row.state.status,
                ""
                if tree.leaf_for(row.pod.sub_group) is not None
                else unknown_sub_group(group, row.pod.sub_group),
            )
            for row in self._rows(group)
        ]

    def _said_of(self, row: PodRow) -> str:
        """Why a pod cannot be scheduled, as it was last put into words."""
        if row.state.status is not TaskStatus.PENDING:
            return ""
        group = self.world.snapshot.groups.get((row.pod.namespace, row.pod.group))
        words = self._words.get(group.group.uid) if group is not None else None
        return words.pods.get(row.pod.uid, "") if words is not None else ""

    def _says(self, uid: str, text: str) -> bool:
        row = self.world.snapshot.pods.get(uid)
        return row is None or row.pod.scheduled.endswith(f"\n{text}")

    def _has_open_request(self, uid: str) -> bool:
        return any(self.world.is_open(request) for request in self.world.requests.of_pod(uid))

    def _pool(self, group: PodGroup) -> str:
        for config in self.world.snapshot.configs.values():
            return pool_of(group, str(config.settings.get("node_pool_key", NODE_POOL_LABEL)))
        return group.labels.get(NODE_POOL_LABEL) or DEFAULT_NODE_POOL


def ripe(planned: Planned, waited_s: float, *, is_binding: bool, is_calm: bool) -> Plan:
    """What of the writes of a group is to be written now.

    Args:
        planned: all that differs.
        waited_s: since there was cause to look at it.
        is_binding: pods of it are on their way to a node.
        is_calm: little is being written, so what can wait need not.
    """
    if is_binding and waited_s < BINDING_WAIT_S:
        return Postponed(BINDING_WAIT_S / 4)  # what they come to wakes it sooner
    statuses = tuple(one for one in planned.writes if isinstance(one, Patch) and one.subresource)
    requested_s = REQUESTED_WAIT_S if is_calm else REQUESTED_WAIT_MAX_S
    if waited_s < requested_s and _is_only_requested(statuses):
        return Postponed(AGAIN_S)
    marks_s = MARKS_WAIT_S if is_calm else MARKS_WAIT_MAX_S
    if len(statuses) == len(planned.writes) or waited_s >= marks_s:
        return planned._replace(can_wait=not statuses)
    if statuses:
        return planned._replace(writes=statuses, later_s=MARKS_WAIT_S)
    return Postponed(max(MARKS_WAIT_S - waited_s, MARKS_AGAIN_S))


def _is_only_requested(statuses: Iterable[Patch]) -> bool:
    """Whether something is to be written of a status, and it is what the group asks for."""
    changes = [patch.changes["status"] for patch in statuses]
    return bool(changes) and all(
        set(status) == {"resourcesStatus", "conditions"}
        and set(status["resourcesStatus"] or ()) == {"requested"}
        for status in changes
    )
