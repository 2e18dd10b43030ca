"""The fold of `snapshot`: what the log says is, at one offset.

`World.apply` is the one place where rows get their meaning; every reader runs it: scheduler, books,
audit, replay. It ranks versions, follows requests, and keeps the columns of `Snapshot` up to date.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from kai_es.events import requests as results
from kai_es.events import snapshot as events
from kai_es.events.decisions import Cycle, GateChange, Reign, ReignEnd
from kai_es.events.requests import AttemptFailed, Result, cycle_of, is_final
from kai_es.events.snapshot import Batch, Origin
from kai_es.kube.objects import (
    ClusterObject,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
    Queue,
    ShardConfig,
    kind_of,
)
from kai_es.snapshot.chain import Chain, Verdict
from kai_es.snapshot.effective import TaskState
from kai_es.snapshot.lifecycle import ENDED_PHASES, Sighting, is_open, task_state
from kai_es.snapshot.liveness import Liveness
from kai_es.snapshot.observed import Since, observed_ms
from kai_es.snapshot.parking import Parking
from kai_es.snapshot.ranking import TOMBSTONE_KEEP_MS, Live, Objects, Rank
from kai_es.snapshot.reigns import Reigns
from kai_es.snapshot.relevance import matters, same_task
from kai_es.snapshot.requests import Requests
from kai_es.snapshot.snapshot import Snapshot
from kai_es.snapshot.standing import Standings

SWEEP_MS: Final = 60_000
"""What can have no effect any more is looked for once a minute of the log's time."""

INCARNATION_RANK: Final = 1 << 64
"""Above any resourceVersion: turns (incarnation, rv) into one number where names are resolved."""


class Applied(NamedTuple):
    """A batch was folded.

    changed: something that `decide` reads changed, other than by a cycle.
    decided: shards of the cycles in it.
    """

    offset: int
    changed: bool
    decided: tuple[str, ...]


class Rejected(NamedTuple):
    """A batch was skipped whole: another one continued the history before it."""

    offset: int


class Missed(NamedTuple):
    """A batch continues one that this reader has not seen: read again from `resume`."""

    offset: int
    resume: int


Outcome: TypeAlias = Applied | Rejected | Missed


class World:
    """State at one offset of `snapshot`. Folding is all it does: no clock, no I/O.

    chain:     accept rule, offset, time, source cursors.
    snapshot:  the rows as `decide` reads them.
    objects:   versions in force, tombstones.
    requests, standings, parking, liveness, reigns: what their modules say.
    """

    def __init__(self) -> None:
        self.chain = Chain()
        self.snapshot = Snapshot()
        self.objects = Objects()
        self.requests = Requests()
        self.standings = Standings()
        self.parking = Parking()
        self.liveness = Liveness()
        self.reigns = Reigns()
        self._touched = _Touched()
        self._changed = False
        self._fold: dict[type[Any], Callable[[Any, Since], None]] = {
            events.Upserted: self._upserted,
            events.Removed: self._removed,
            events.Parked: self._parked,
            events.ParkingEnded: self._parked,
            events.KindListed: self._listed,
            events.AliveSeen: self._alive,
            Reign: self._reign,
            ReignEnd: self._reign_end,
            GateChange: self._gate_change,
            Cycle: self._cycle,
            results.Bound: self._result,
            results.Evicted: self._result,
            results.AttemptFailed: self._result,
            results.Refused: self._result,
        }

    @property
    def offset(self) -> int:
        """Identity of the state: the last accepted batch, −1 before the first."""
        return self.chain.offset

    @property
    def time(self) -> int:
        """The log's clock, ms."""
        return self.chain.time

    def apply(self, offset: int, batch: Batch) -> Outcome:
        """Fold one record of `snapshot`, if the accept rule says so.

        Raises:
            BrokenHistoryError: the batch is accepted but contradicts the history; the state is of
                no use any more.
        """
        match self.chain.judge(batch):
            case Verdict.REJECT:
                return Rejected(offset)
            case Verdict.MISSED:
                return Missed(offset, self.chain.offset + 1)
            case Verdict.ACCEPT:
                pass
        prev_time = self.chain.time
        self.chain.accept(offset, batch)
        self._changed = False
        self._touched = _Touched()
        for row, origin in zip(batch.rows, batch.origins, strict=True):
            self._fold[type(row)](row, self._since(origin, prev_time))
        self._sweep(prev_time)
        self._flush()
        decided = tuple(sorted({row.shard for row in batch.rows if isinstance(row, Cycle)}))
        return Applied(offset, self._changed, decided)

    def sighting(self, pod_uid: str) -> Sighting:
        """What is known of a pod."""
        entry = self.objects.get("Pod", pod_uid)
        if entry is None:
            return Sighting(deleted=self.objects.is_deleted("Pod", pod_uid))
        assert isinstance(entry.obj, Pod)
        return Sighting(pod=entry.obj, incarnation=entry.incarnation)

    def n_live(self, kind: str) -> int:
        """Live uids of a kind, those included of which every version is parked."""
        valid = self.objects.live.get(kind, {})
        parked = (uid for of, uid in self.parking.entries if of == kind and uid not in valid)
        return len(valid) + sum(1 for uid in parked if self.parking.parked(kind, uid))

    def open_requests(self) -> Iterator[str]:
        """Ids of the open requests of every shard, by pod uid."""
        for request in self.requests.all():
            if is_open(request, self.sighting(request.pod_uid)):
                yield request.id

    def has_open_request(self, pod_uid: str, *, evict: bool) -> bool:
        """Whether a pod has an open bind (or evict) request, of whatever shard."""
        seen = self.sighting(pod_uid)
        return any(
            request.evict == evict and is_open(request, seen)
            for request in self.requests.of_pod(pod_uid)
        )

    def show_all(self) -> None:
        """Make everything derived anew, after the state was restored."""
        self._touched = _Touched()
        for kind, entries in sorted(self.objects.live.items()):
            for uid, entry in sorted(entries.items()):
                self._stamp(None, entry.obj)
                self._touched.add(kind, uid)
        for kind, uid in sorted(self.parking.entries):
            self._touched.add(kind, uid)
        self._flush()

    # -- rows

    def _since(self, origin: Origin, prev_time: int) -> Since:
        at = observed_ms(prev_time=prev_time, time=self.time, ingest_ms=origin.ingest_ms)
        return Since(at, self.offset)

    def _upserted(self, row: events.Upserted, since: Since) -> None:
        obj, kind = row.obj, kind_of(row.obj)
        self._see_incarnation(row.incarnation)
        known = self.objects.get(kind, obj.uid)
        former = known.obj if known is not None else None
        rank = Rank(row.incarnation, row.rv)
        if self.objects.upsert(obj, rank=rank, since=since) is None:
            return
        self.parking.supersede(kind, obj.uid, rank=rank)
        has_marks = obj.uid in self.standings.marks
        self._changed = self._changed or matters(former, obj, has_marks=has_marks)
        self._stamp(former, obj)
        self._touched.add(kind, obj.uid)

    def _removed(self, row: events.Removed, since: Since) -> None:
        self._see_incarnation(row.incarnation)
        rank = Rank(row.incarnation, row.rv)
        known = self.objects.rank(row.kind, row.uid)
        if known is not None and known > rank:
            return
        former = self.objects.remove(row.kind, row.uid, rank=rank, time_ms=since.time_ms)
        self.parking.supersede(row.kind, row.uid, rank=rank)
        self._touched.add(row.kind, row.uid)
        if former is not None:
            self._changed = True
            self._stamp(former.obj, None)
        if row.kind == "Node":
            self._touched.pods.update(dict.fromkeys(self.requests.node_gone(row.uid)))
        elif row.kind == "PodGroup":
            self.standings.drop(row.uid)

    def _parked(self, row: events.Parked | events.ParkingEnded, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        if self.parking.fold(row, known=self.objects.rank(row.kind, row.uid)):
            self._touched.add(row.kind, row.uid)

    def _listed(self, row: events.KindListed, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        self.liveness.fold_listed(row)

    def _alive(self, row: events.AliveSeen, since: Since) -> None:
        del since
        self._see_incarnation(row.incarnation)
        self.liveness.fold_alive(row)

    def _reign(self, row: Reign, since: Since) -> None:
        del since
        self.reigns.fold_reign(row)

    def _reign_end(self, row: ReignEnd, since: Since) -> None:
        del since
        self.reigns.fold_end(row)

    def _gate_change(self, row: GateChange, since: Since) -> None:
        del since
        self.reigns.fold_gate(row)

    def _cycle(self, row: Cycle, since: Since) -> None:
        self.reigns.fold_cycle(row)
        for request in self.requests.fold_cycle(row, incarnation=self.liveness.incarnation):
            if self.objects.is_deleted("Node", request.node_uid):
                request.node_gone = True
            self._touched.decided.add(request.pod_uid)
            self._touched.pods[request.pod_uid] = None
        for mark in row.decision.marks:
            if self.objects.is_deleted("PodGroup", mark.group_uid):
                continue
            if self.standings.fold_mark(mark, cycle=row, time_ms=since.time_ms):
                self._touched.groups[mark.group_uid] = None

    def _result(self, row: Result, since: Since) -> None:
        shard, cycle = cycle_of(row.request_id)
        is_past = cycle <= self.reigns.last_cycle(shard)
        request = self.requests.fold_result(row, is_past=is_past)
        if request is not None:
            self._touched.pods[request.pod_uid] = None
            # The pod may look as it did before its cycle, when both are in one batch.
            self._changed = self._changed or is_final(row)
        if isinstance(row, AttemptFailed) and is_final(row) and row.group_uid:
            if self.objects.is_deleted("PodGroup", row.group_uid):
                return
            self.standings.fold_failure(row, shard=shard, cycle=cycle, time_ms=since.time_ms)
            self._touched.groups[row.group_uid] = None

    # -- effects

    def _see_incarnation(self, incarnation: int) -> None:
        self.liveness.incarnation = max(self.liveness.incarnation, incarnation)

    def _stamp(self, former: ClusterObject | None, now: ClusterObject | None) -> None:
        """Keep the count of stamps by pods that have not ended."""
        for obj, count in ((former, -1), (now, +1)):
            if (
                isinstance(obj, Pod)
                and obj.phase not in ENDED_PHASES
                and self.standings.stamp(obj, count=count)
            ):
                self._touched.groups[obj.group_uid] = None

    def _flush(self) -> None:
        """Give the columns what the rows of this batch changed."""
        touched = self._touched
        for uid in touched.pods:
            self._show_pod(uid)
        for uid in touched.groups:
            self._show_group(uid)
        for uid in touched.nodes:
            self._show_node(uid)
        for kind, uid in touched.others:
            self._show_other(kind, uid)
        self.snapshot.offset, self.snapshot.time_ms = self.chain.offset, self.chain.time
        self.snapshot.resume = {name: s.resume for name, s in self.reigns.shards.items()}

    def _show_pod(self, uid: str) -> None:
        seen = self.sighting(uid)
        self.requests.trim(uid, seen)
        shown = self.snapshot.pods.get(uid)
        task: TaskState | None = None
        if seen.pod is None:
            self.snapshot.remove_pod(uid)
        else:
            entry = self.objects.live["Pod"][uid]
            task = task_state(seen, self.requests.of_pod(uid))
            if shown is None or not same_task(shown.state, task):
                self._changed = self._changed or uid not in self._touched.decided
            if shown is None or shown.pod is not seen.pod or shown.state != task:
                self.snapshot.set_pod(seen.pod, rv=entry.rv, task=task)
        for node in self.parking.judge(uid, seen.pod, task):
            self._changed = True
            for node_uid in self._nodes_named(node):
                self._touched.nodes[node_uid] = None

    def _show_group(self, uid: str) -> None:
        entry = self.objects.get("PodGroup", uid)
        if entry is None:
            self.snapshot.remove_group(uid)
            return
        assert isinstance(entry.obj, PodGroup)
        state = self.standings.state(entry.obj)
        self.snapshot.set_group(entry.obj, rv=_name_rank(entry), state=state)

    def _show_node(self, uid: str) -> None:
        entry = self.objects.get("Node", uid)
        if entry is None:
            self.snapshot.remove_node(uid)
            return
        assert isinstance(entry.obj, Node)
        closed = self.parking.reasons(entry.obj.name)
        self.snapshot.set_node(entry.obj, rv=_name_rank(entry), closed=closed)

    def _show_other(self, kind: str, uid: str) -> None:
        entry = self.objects.get(kind, uid)
        if entry is None:
            remove = {
                "Queue": self.snapshot.remove_queue,
                "PriorityClass": self.snapshot.remove_priority_class,
                "ShardConfig": self.snapshot.remove_config,
            }.get(kind)
            if remove is not None:  # a kind of which no version was ever valid
                remove(uid)
            return
        obj = entry.obj
        match obj:
            case Queue():
                self.snapshot.set_queue(obj, rv=_name_rank(entry))
            case PriorityClass():
                self.snapshot.set_priority_class(obj, rv=_name_rank(entry))
            case ShardConfig():
                self.snapshot.set_config(obj)
            case _:
                raise AssertionError(f"nobody shows {kind}")

    def _nodes_named(self, name: str) -> Iterable[str]:
        """Uids of the live nodes of a name: nearly always one."""
        return self.snapshot.nodes.uids(name)

    def _sweep(self, prev_time: int) -> None:
        """Once a minute, forget what can have no effect any more."""
        if prev_time // SWEEP_MS == self.time // SWEEP_MS:
            return
        before_ms = self.time - TOMBSTONE_KEEP_MS
        for kind, uid in self.objects.forget(before_ms=before_ms):
            if kind == "Pod":
                self.requests.forget(uid)
        live = self.objects.live.get("Pod", {})
        for uid in [u for u in self.requests.by_pod if u not in live]:
            self.requests.forget_ended(uid, before_ms=before_ms)
        groups = self.objects.live.get("PodGroup", {})
        changed = self.standings.sweep(time_ms=self.time, keep_ms=TOMBSTONE_KEEP_MS, is_live=groups)
        self._touched.groups.update(dict.fromkeys(sorted(changed)))


class _Touched:
    """What the rows of one batch may have changed, in order of first mention.

    decided: pods that a cycle has just ordered something for.
    """

    __slots__ = ("decided", "groups", "nodes", "others", "pods")

    def __init__(self) -> None:
        self.pods: dict[str, None] = {}
        self.groups: dict[str, None] = {}
        self.nodes: dict[str, None] = {}
        self.others: dict[tuple[str, str], None] = {}
        self.decided: set[str] = set()

    def add(self, kind: str, uid: str) -> None:
        match kind:
            case "Pod":
                self.pods[uid] = None
            case "PodGroup":
                self.groups[uid] = None
            case "Node":
                self.nodes[uid] = None
            case _:
                self.others[kind, uid] = None


def _name_rank(entry: Live) -> int:
    """Rank among the live uids of one name, as one number."""
    return entry.incarnation * INCARNATION_RANK + entry.rv
